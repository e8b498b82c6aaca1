"""Where joblib runs several fits at once and has given out no shares of the cores, each takes one thread, and only there."""

import joblib
import pytest
import torch

from pyod_quadric import QuadricDetector
from pyod_quadric.parallel.threads import VARIABLES, share_of_cores
from tests.support.circle import X


@pytest.fixture
def _two_threads(monkeypatch):
    """Let torch have two threads, whatever the machine has, and nobody have asked for it."""
    before = torch.get_num_threads()
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def threads():
    before = torch.get_num_threads()
    with share_of_cores():
        during = torch.get_num_threads()
    return before, during, torch.get_num_threads()


def in_two_tasks(function):
    return joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(function)() for _ in range(2))


@pytest.mark.usefixtures("_two_threads")
def test_one_thread_in_each_of_two_tasks():
    assert in_two_tasks(threads) == [(2, 1, 2), (2, 1, 2)]


@pytest.mark.usefixtures("_two_threads")
def test_all_threads_where_there_is_one_task():
    assert threads() == (2, 2, 2)
    assert joblib.Parallel(n_jobs=1)([joblib.delayed(threads)()]) == [(2, 2, 2)]
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert threads() == (2, 2, 2)


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("name", VARIABLES)
def test_what_was_asked_for_is_kept(monkeypatch, name):
    monkeypatch.setenv(name, "2")
    assert in_two_tasks(threads) == [(2, 2, 2), (2, 2, 2)]


@pytest.mark.usefixtures("_two_threads")
def test_fits_that_fail_leave_the_threads_as_they_were():
    def failed():
        with pytest.raises(ValueError, match="contamination"):
            QuadricDetector(contamination=2.0).fit(X)
        return torch.get_num_threads()

    assert in_two_tasks(failed) == [2, 2]
