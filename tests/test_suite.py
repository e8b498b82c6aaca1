"""The test run draws the same examples every time, whatever ran before."""

import random
import sys
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import n_examples


def drawn():
    """Return the examples that a test draws."""
    seen = []

    @given(number=st.integers(0, 10**9), name=st.text(max_size=3))
    def keep(number, name):
        seen.append((number, name))

    keep()
    return seen


@pytest.mark.skipif(not settings.default.derandomize, reason="this profile is to draw new examples")
def test_examples_depend_neither_on_chance_nor_on_the_modules_loaded(tmp_path, monkeypatch):
    before = drawn()
    assert len(set(before)) > 10
    random.seed(len(before))
    (tmp_path / "numbers.py").write_text("\n".join(str(1000003 * place) for place in range(1, 100)))
    module = ModuleType("numbers_to_draw")
    module.__file__ = str(tmp_path / "numbers.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert drawn() == before


def test_slow_tests_try_more_where_others_do():
    assert n_examples(20).max_examples == max(20, settings.default.max_examples // 5)
