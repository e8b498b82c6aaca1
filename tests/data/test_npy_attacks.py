"""Files of arrays as an attacker would make them, or a careless program: a clear error, and no memory or process is lost."""

import contextlib
import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyod_quadric import QuadricDetector
from pyod_quadric.data import disk
from pyod_quadric.data.disk import NpyFile, check_npy
from pyod_quadric.data.files import open_rows, read_labels
from tests.support.circle import X


def npy(header, n_bytes=48):
    text = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(n_bytes)


def header_of(shape, descr="'<f8'"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


def files(folder, raw, name):
    """Write an array to a .npy file and into an .npz file."""
    (folder / "a.npy").write_bytes(raw)
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr(f"{name}.npy", raw)
    return folder / "a.npy", folder / "a.npz"


@pytest.mark.parametrize(
    "header",
    [
        header_of("(4611686018427387904, 4)"),  # the product is 0 in 64 bits
        header_of("(2305843009213693953, 8)"),  # 64 bytes
        header_of("(4294967296, 1)"),  # 32 GiB
        header_of(f"({'9' * 100}, 3)"),
        header_of("(-3, -2)"),
        header_of("(3, -2)"),
        header_of("(3.0, 2)"),
        header_of("(True, 2)"),
        "{'descr': '|S2', 'fortran_order': True, 'shape': (False, 2), }\n",  # by fuzzing
        header_of("(2, 2)", "'|O'"),
        header_of("(2, 2)", "[('a', '<f8')]"),
        header_of("(99999999999, 1)", "'|V0'"),
        header_of(f"({'-' * 3000}1, 2)"),
        "(" * 9000,
        "-" * 9000 + "1\n",
        "'" + "a" * 9000,
        "\0" * 100,
        "lambda: 1\n",
    ],
    ids=lambda header: header[:60].strip(),
)
@pytest.mark.filterwarnings("ignore:Reading `.npy`")
def test_headers_that_lie_are_refused(header, tmp_path):
    for read, name in ((open_rows, "X"), (read_labels, "y")):
        for path in files(tmp_path, npy(header), name):
            with pytest.raises(ValueError, match=r"cannot be read|must hold"):
                read(path)


SOUND = header_of("(3, 2)")


@given(
    st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.sampled_from("'(){}[],:0123456789-~.<f\0 e")), min_size=1, max_size=4)
)
def test_damaged_headers_are_refused_or_read(changes):
    changed = list(SOUND)
    for place, sign in changes:
        changed[place] = sign
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        path.write_bytes(npy("".join(changed)))
        for read in (check_npy, lambda path: open_rows(path)[:]):
            with contextlib.suppress(ValueError, OSError):
                read(path)


# Cut off while it is read


@pytest.fixture(params=["C", "F"])
def path(request, tmp_path):
    np.save(tmp_path / "rows.npy", np.asarray(X, order=request.param))
    return tmp_path / "rows.npy"


@pytest.fixture
def cut_off(path, monkeypatch):
    """Let somebody cut the file off after it was found unchanged and opened: a map of it would end the process by SIGBUS."""
    reads, fill = [], NpyFile._fill

    def filled(self, *arguments):
        reads.append(path.stat().st_size)
        os.truncate(path, 300)
        fill(self, *arguments)

    monkeypatch.setattr(NpyFile, "_fill", filled)
    yield
    assert reads


def fit_and_train(path):
    QuadricDetector(epoch_num=1, batch_size=64, n_quadrics=1).fit(path)


def score(path):
    DETECTOR.decision_function(path)


def partial_fit(path):
    QuadricDetector().partial_fit(path)


DETECTOR = QuadricDetector().fit(X)


@pytest.mark.parametrize("use", [fit_and_train, score, partial_fit])
@pytest.mark.usefixtures("cut_off")
def test_a_file_that_is_cut_off_while_it_is_read_is_an_error(use, path):
    with pytest.raises(OSError, match=r"rows \d+ to \d+ of .*rows.npy cannot be read: the file was cut off while it was read"):
        use(path)


def test_a_file_that_is_cut_off_before_is_one_that_has_changed(path):
    rows = NpyFile(path)
    os.truncate(path, 300)
    with pytest.raises(OSError, match="has changed since it was opened"):
        rows[:2]


# Reading in pieces gives what a map gives


@pytest.mark.parametrize("stored", ["<f4", ">f8", "<i2", "|b1", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pieces_are_those_of_a_map(stored, order, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = np.asarray(10 * rng.normal(size=(300, 3)), stored, order=order)
    np.save(tmp_path / "rows.npy", rows)
    monkeypatch.setattr(disk, "WINDOW_BYTES", 40 * rows.itemsize)
    monkeypatch.setattr(disk, "GAP_BYTES", 3 * rows.itemsize)
    source = NpyFile(tmp_path / "rows.npy")
    picks = (rng.permutation(300)[:20], rng.integers(0, 300, 50), np.arange(7, 20), np.array([299]), np.array([], np.int64))
    for index in (slice(None), slice(5, 250), slice(250, 5), slice(3, None, 7), slice(None, None, -1), slice(-4, None), *picks):
        found = source[index]
        np.testing.assert_array_equal(found, rows[index].astype(source.dtype))
        assert found.flags.c_contiguous
        assert found.flags.owndata
