"""A process that is missing, fails, or ends in a joint fit is named to the others, which do not wait for ever."""

import json
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from pyod_quadric.parallel import peers
from pyod_quadric.parallel.peers import PeerError, together
from tests.support.processes import HANGING

ROOT = Path(__file__).parents[2]


def answers(what, folder):
    """Return what both processes have to say, with their exit codes."""
    network = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform.startswith("linux") else {}
    command = [sys.executable, "-m", "tests.support.missing_peers", what, str(folder)]
    environment = os.environ | network | {"PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(command, cwd=ROOT, env=environment | {"RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=HANGING)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    files = [folder / f"{rank}.json" for rank in range(2)]
    assert files[0].exists(), errors[0]
    return [json.loads(file.read_text()) if file.exists() else None for file in files], [p.returncode for p in processes]


def test_who_does_not_come_or_calls_something_else_is_named(tmp_path):
    (first, second), codes = answers("meetings", tmp_path)
    assert codes == [0, 0]
    assert first["threads"] == second["threads"] == "fitted"
    assert first["version"] == second["version"]
    assert re.search(r"process 0 called fit of pyod-quadric 0\.0, 1 called fit of pyod-quadric 0\.1", first["version"])
    assert first["function"] == second["function"]
    assert re.search("process 0 called fit of pyod-quadric .*, 1 called partial_fit of", first["function"])
    assert first["absent"] == "PeerError: process 1 did not call fit within 3 s; all must"


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("raises", "PeerError: fit cannot go on: process 1 failed with KeyboardInterrupt()"),
        ("killed", "PeerError: fit cannot go on: process 1 has ended, or does not answer"),
    ],
)
def test_who_fails_or_ends_is_named(what, expected, tmp_path):
    (first, second), codes = answers(what, tmp_path)
    assert first == expected
    assert second == ("KeyboardInterrupt: " if what == "raises" else None)
    assert codes == [0, -signal.SIGKILL if what == "killed" else 0]


def test_a_store_that_is_gone_is_said(monkeypatch):
    """Its process may end between the moment when all have come and that when the others ask what was called."""

    class Gone:
        timeout = timedelta(seconds=1)

        def set(self, key, value):
            """Take what is said."""

        def wait(self, keys, patience):
            """Say that all have come."""

        def get(self, key):
            raise dist.DistNetworkError("Connection reset by peer")

    monkeypatch.setattr(peers, "n_ranks", lambda: 2)
    monkeypatch.setattr(peers, "process_rank", lambda: 1)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", Gone)
    with (
        pytest.raises(PeerError, match="fit cannot begin: the process that held the store of the group has ended"),
        together("fit"),
    ):
        pass
