"""As many threads as there are cores, and no more, where joblib runs several fits at once.

joblib's own worker processes are started with an environment that gives each its share of the cores, which torch reads at its
start. That does not reach workers that are started otherwise, as those of SUOD are, nor joblib's threads: each of them would
compute with as many threads as there are cores.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from joblib.parallel import get_active_backend
from threadpoolctl import threadpool_limits

VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def share_of_cores() -> Iterator[None]:
    """Compute with one thread inside, if this is one of several tasks of joblib and nobody has said how many threads to take.

    The limit is OpenMP's, of this thread alone, and ends with the context: other threads and what comes later have what they
    had before.

    Examples
    --------
    >>> import torch
    >>> before = torch.get_num_threads()
    >>> with share_of_cores():
    ...     torch.get_num_threads() == before  # this is no task of joblib
    True
    """
    if get_active_backend()[0].nesting_level in (0, None) or any(name in os.environ for name in VARIABLES):
        yield
        return
    torch.get_num_threads()  # torch sets OpenMP's number at its first use in a thread, which must not come after the limit
    with threadpool_limits(limits=1, user_api="openmp"):
        yield
