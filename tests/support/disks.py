"""Disks that take no more."""

from contextlib import contextmanager


@contextmanager
def limited_size(path, n_bytes=1000):
    """Let files grow to so many bytes only: some of the content is written, and then no more."""
    import resource  # which POSIX has

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
