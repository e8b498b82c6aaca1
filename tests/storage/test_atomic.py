"""A file is whole or not there, keeps its mode and its links, and nothing is left beside it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pyod_quadric.storage.atomic import atomic_file, write_atomically

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes, links and signals as POSIX has them")

WRITING = """
import signal, sys, time
from pyod_quadric.storage.atomic import atomic_file

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with atomic_file(sys.argv[1]) as file:
    file.write(b"half")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file[1]"  # a name that means something to patterns


def write_half(path, error):
    with atomic_file(path) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError, ValueError])
def test_a_file_that_is_not_finished_is_not_there(path, error):
    with pytest.raises(error):
        write_half(path, error)
    assert list(path.parent.iterdir()) == []


def test_an_old_file_stays_until_the_new_one_is_whole(path):
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        write_half(path, KeyboardInterrupt)
    assert path.read_bytes() == b"old"


def test_errors_of_the_block_are_its_own(path):
    with pytest.raises(OSError, match=r"^another file$"):
        write_half(path, OSError("another file"))


def test_a_file_that_came_meanwhile_is_not_overwritten(path):
    with pytest.raises(FileExistsError, match="is there already"), atomic_file(path, overwrite=False):
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"
    assert list(path.parent.iterdir()) == [path]


def test_the_mode_is_kept_and_new_files_have_the_usual_one(path):
    write_atomically(path, [b"new"])
    other = path.with_name("other")
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode
    path.chmod(0o640)
    write_atomically(path, [b"newer"])
    assert path.stat().st_mode & 0o777 == 0o640


def test_links_are_followed(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target"
    path.symlink_to(target)
    for content in (b"new", b"newer"):
        write_atomically(path, [content])
        assert path.is_symlink()
        assert target.read_bytes() == content


def test_writers_do_not_meet(path):
    """All write at the same time, and the file is that of one of them."""
    together = threading.Barrier(4)

    def write(number):
        with atomic_file(path) as file:
            together.wait(60)
            file.write(bytes([number]) * 10_000)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_bytes() in [bytes([number]) * 10_000 for number in range(4)]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_process_that_was_ended(path, number):
    process = subprocess.Popen([sys.executable, "-c", WRITING, path], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout.readline() == b"writing\n"
    write_atomically(path, [b"another's"])  # leaves the file of the living alone
    assert len(list(path.parent.iterdir())) == 2
    process.send_signal(number)
    process.communicate(timeout=60)
    if number == signal.SIGKILL:
        write_atomically(path, [b"the next"])
    assert list(path.parent.iterdir()) == [path]
