"""At most as many threads as cores if joblib runs several fits at the same time.

joblib starts its worker processes with an environment that gives each its share of the cores, which torch reads. Workers that
are started otherwise, such as SUOD's, and joblib's threads do not get it: each would use as many threads as there are cores.
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
    """Use one thread inside the block, if this is one of several joblib tasks and no number of threads is set.

    The limit is OpenMP's, for this thread only, and ends with the block.

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
