"""Files that nobody means are read, or one of our errors says what is wrong; tests/support/fuzz.py tries more of them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.fuzz import KINDS, outcome
from tests.support.fuzzed_files import KINDS as FILES
from tests.support.profiles import n_examples


@pytest.mark.parametrize("kind", sorted({*FILES} - {"npy"}))  # numpy leaves damaged archives open
@settings(n_examples(15), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_files_are_read_or_refused(kind, data):
    assert outcome(KINDS[kind].use, data.draw(KINDS[kind].examples))
