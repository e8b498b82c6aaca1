"""A checkpoint is whole or not there, and damage is noticed."""

import gc
import sys

import pytest
import torch

from pyod_quadric.storage.checkpoints import read_checkpoint, write_checkpoint


def state(number):
    return {"number": number, "tensor": torch.full((3,), float(number)), "nested": {"list": [1, None, "a"]}}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ckpt"


def test_what_is_written_is_read(path):
    write_checkpoint(path, state(1))
    again = read_checkpoint(path)
    assert again["nested"] == state(1)["nested"]
    assert torch.equal(again["tensor"], state(1)["tensor"])


def test_nothing_there_is_no_error(path):
    assert read_checkpoint(path) is None


def test_the_newest_is_read_and_one_before_is_kept(path):
    for number in (1, 2, 3):
        write_checkpoint(path, state(number))
    assert read_checkpoint(path)["number"] == 3
    path.unlink()  # as if killed between the two renames
    assert read_checkpoint(path)["number"] == 2
    assert [p.name for p in path.parent.iterdir()] == ["run.ckpt.previous"]


@pytest.mark.parametrize("place", [0, 8, 60, 200, -1])
def test_a_flipped_bit_is_noticed_and_the_one_before_is_used(path, place):
    write_checkpoint(path, state(1))
    write_checkpoint(path, state(2))
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 4
    path.write_bytes(damaged)
    with pytest.warns(UserWarning, match=r"going on from run.ckpt.previous"):
        assert read_checkpoint(path)["number"] == 1


@pytest.mark.parametrize("length", [0, 10, 100, 250])
def test_a_truncated_file_is_noticed(path, length):
    write_checkpoint(path, state(1))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match="use another file name to start anew"):
        read_checkpoint(path)


def test_a_file_of_another_program_is_noticed(path):
    torch.save(state(1), path)
    with pytest.raises(ValueError, match="not a checkpoint of this program"):
        read_checkpoint(path)


def test_reading_unpickles_nothing(path, monkeypatch):
    write_checkpoint(path, state(1))

    def refuse(*_, **__):
        raise AssertionError("unpickled")

    for place in ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load"):
        monkeypatch.setattr(place, refuse)
    assert read_checkpoint(path)["number"] == 1
    torch.save(Evil(), path)
    with pytest.raises(ValueError, match="not a checkpoint of this program"):
        read_checkpoint(path)


class Evil:
    def __reduce__(self):
        return (print, ("code ran",))


def test_a_damaged_file_never_takes_the_place_of_a_sound_one(path):
    write_checkpoint(path, state(1))
    write_checkpoint(path, state(2))
    path.write_bytes(path.read_bytes()[:-1])
    write_checkpoint(path, state(3))
    assert read_checkpoint(path)["number"] == 3
    path.unlink()
    assert read_checkpoint(path)["number"] == 1


def test_garbage_of_a_write_that_failed_can_be_collected(tmp_path, monkeypatch):
    """Python 3.13 complains of a buffer in a cycle of garbage that something still looks into."""
    complaints = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)

    def fail():
        try:
            write_checkpoint(tmp_path / "no folder" / "run.ckpt", state(1))
        except OSError as error:
            return [error]  # whose traceback holds this frame
        raise AssertionError

    kept = fail()
    kept.append(kept)
    del kept
    gc.collect()
    assert not complaints


def test_the_one_before_is_beside_the_file_that_a_link_leads_to(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target"
    path.symlink_to(target)
    for number in (1, 2):
        write_checkpoint(path, state(number))
    assert sorted(file.name for file in target.parent.iterdir()) == ["target", "target.previous"]
    target.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="going on from target.previous"):
        assert read_checkpoint(path)["number"] == 1
