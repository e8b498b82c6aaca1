"""A file is whole or not there, keeps its mode and its links, and nothing is left beside it."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pyod_quadric.storage.atomic import atomic_file, remove_unfinished, write_atomically
from tests.support.processes import HANGING

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


def test_what_nobody_else_may_read_is_not_readable_meanwhile(path):
    path.touch(mode=0o600)
    with atomic_file(path) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600


def test_names_may_be_as_long_as_the_file_system_allows(path):
    longest = os.pathconf(path.parent, "PC_NAME_MAX")
    for name in ("x" * longest, "ü" * (longest // 2)):
        for content in (b"new", b"newer"):
            write_atomically(path.with_name(name), [content])
            assert path.with_name(name).read_bytes() == content
    assert len(list(path.parent.iterdir())) == 2


def test_a_file_never_takes_the_place_of_something_else(path):
    os.mkfifo(path)  # as it would of /dev/null
    with pytest.raises(OSError, match="it is a device or a pipe") as raised:
        write_atomically(path, [b"new"])
    assert raised.value.filename == str(path)
    assert path.is_fifo()
    with pytest.raises(IsADirectoryError):
        write_atomically(path.parent, [b"new"])
    assert list(path.parent.iterdir()) == [path]


def without_links(*_):
    raise OSError(errno.EPERM, "as file systems without links say it")


@pytest.mark.parametrize("has_links", [True, False])
def test_the_old_file_is_kept_and_what_is_new_is_not_overwritten(path, monkeypatch, has_links):
    if not has_links:
        monkeypatch.setattr(os, "link", without_links)
    old = path.with_name("old")
    for content in (b"1", b"2", b"3"):
        write_atomically(path, [content], keep=old)
    assert (old.read_bytes(), path.read_bytes()) == (b"2", b"3")
    old.unlink()
    with atomic_file(old, overwrite=False) as file:
        file.write(b"4")
    with pytest.raises(FileExistsError, match="is there already"), atomic_file(old, overwrite=False) as file:
        file.write(b"5")
    assert old.read_bytes() == b"4"
    assert sorted(path.parent.iterdir()) == [path, old]


def test_a_process_that_is_to_end_leaves_nothing(path):
    path.write_bytes(b"old")

    def write():
        with atomic_file(path) as file:
            file.write(b"new")
            remove_unfinished()
            assert list(path.parent.iterdir()) == [path]

    with pytest.raises(FileNotFoundError):  # if it does not end
        write()
    assert path.read_bytes() == b"old"


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


def test_many_processes_save_to_one_place(path):
    """Every read finds a whole model and a whole checkpoint, no save raises, and of the killed ones nothing is left."""
    (path.parent / "folder").mkdir()
    command = [sys.executable, "-m", "tests.support.many_savers", path.parent / "folder"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2], timeout=HANGING, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["writers"]) == {""}
    assert [said for said in found["readers"] if not said.startswith("SystemExit(")] == []
    assert found["files"] == ["model", "run.ckpt", "run.ckpt.previous"]
