"""Rows on disk: files, folders of shards and loaders give the rows of an array, and a fit to them is the same fit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler, TensorDataset

from pyod_quadric import QuadricDetector
from pyod_quadric.data import disk
from pyod_quadric.data.disk import NpyFile
from pyod_quadric.data.files import open_rows
from pyod_quadric.data.rows import LoaderRows, rows_of
from pyod_quadric.data.sources import ArraySource, Shards, Subset
from tests.support.profiles import n_examples
from tests.support.runs import global_states

DATA = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)


def write_parquet(path, rows, row_group_size=7):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({f"x{k}": rows[:, k] for k in range(rows.shape[1])})
    parquet.write_table(table, path, row_group_size=row_group_size)


def make_npy(folder):
    np.save(folder / "rows.npy", DATA)
    return folder / "rows.npy"


def make_parquet(folder):
    write_parquet(folder / "rows.parquet", DATA)
    return folder / "rows.parquet"


def make_shards(folder):
    for number, part in enumerate(np.split(DATA, [13, 14, 40])):
        np.save(folder / f"part-{number}.npy", part)
    (folder / "readme.txt").write_text("no rows")
    return folder


def make_mixed_shards(folder):
    np.save(folder / "a.npy", DATA[:20])
    write_parquet(folder / "b.parquet", DATA[20:])
    return folder


def make_paths(folder):
    make_shards(folder)
    return [folder / f"part-{number}.npy" for number in range(4)]


def make_memory_map(folder):
    return np.load(make_npy(folder), mmap_mode="r")


def make_loader(folder):
    return DataLoader(TensorDataset(torch.tensor(DATA)), batch_size=7)


def make_fortran(folder):
    np.save(folder / "rows.npy", np.asfortranarray(DATA))
    return folder / "rows.npy"


def make_subset(folder):
    holes = np.insert(DATA, [3, 3, 50], np.nan, axis=0)
    write_parquet(folder / "rows.parquet", holes)
    return Subset(open_rows(folder), np.flatnonzero(np.isfinite(holes).all(axis=1)))


MAKERS = [
    make_npy,
    make_fortran,
    make_parquet,
    make_subset,
    make_shards,
    make_mixed_shards,
    make_paths,
    make_memory_map,
    make_loader,
]


@pytest.mark.parametrize("make", MAKERS)
def test_sources_give_the_rows_of_the_array(make, tmp_path):
    rows, expected = rows_of(make(tmp_path)), rows_of(DATA)
    assert (rows.n_rows, rows.n_features, rows.dtype) == (60, 4, torch.float32)
    for size in (1, 7, 13, 60, 100):
        for block, wanted in zip(rows.blocks(size), expected.blocks(size), strict=True):
            assert torch.equal(block, wanted)

    @given(numbers=st.lists(st.integers(0, 59), max_size=9), start=st.integers(0, 60), length=st.integers(0, 60))
    @n_examples(20)
    def check(numbers, start, length):
        numbers = np.array(numbers, dtype=np.int64)
        assert torch.equal(rows.read(numbers), expected.read(numbers))
        assert torch.equal(rows.read(slice(start, start + length)), expected.read(slice(start, start + length)))

    check()


@pytest.mark.filterwarnings("ignore:.* quadrics that were asked for count:UserWarning")
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("settings", [{}, {"epoch_num": 2, "n_quadrics": 3, "batch_size": 16}], ids=["closed", "trained"])
def test_a_fit_to_a_source_is_that_to_the_array(make, settings, tmp_path):
    source = make(tmp_path)
    found, expected = QuadricDetector(**settings).fit(source), QuadricDetector(**settings).fit(DATA)
    assert found.n_features_in_ == 4
    if settings and isinstance(source, DataLoader):
        assert np.isfinite(found.decision_scores_).all()  # a loader keeps its order, so that training takes other batches
        return
    np.testing.assert_array_equal(found.decision_scores_, expected.decision_scores_)
    np.testing.assert_array_equal(found.decision_function(source), expected.decision_function(DATA))
    assert found.threshold_ == expected.threshold_


def test_types_of_shards_are_joined():
    def joined(*types):
        return Shards([ArraySource(np.zeros((2, 3), dtype)) for dtype in types]).dtype

    assert joined(np.float32, np.float64) == joined(np.int8, np.bool_) == joined(np.float32, np.int32) == np.float64
    assert joined(np.float32, np.float16) == joined(np.float32, np.int8) == joined(np.float16, np.uint8) == np.float32


def test_a_source_of_another_width_is_refused(tmp_path):
    detector = QuadricDetector().fit(DATA)
    np.save(tmp_path / "wide.npy", np.zeros((5, 6)))
    with pytest.raises(ValueError, match="4 features, as those of the fit, got 6"):
        detector.decision_function(tmp_path / "wide.npy")


def bad_folder(tmp_path, name):
    (tmp_path / "folder").mkdir()
    np.save(tmp_path / "folder" / "a.npy", DATA)
    good = (tmp_path / "folder" / "a.npy").read_bytes()
    if name == "damaged shard":
        (tmp_path / "folder" / "b.npy").write_bytes(good[:100])
    elif name == "shorter than it says":
        (tmp_path / "folder" / "b.npy").write_bytes(good[:-8])
    elif name == "another width":
        np.save(tmp_path / "folder" / "b.npy", np.zeros((5, 6)))
    elif name == "no rows":
        (tmp_path / "folder" / "a.npy").rename(tmp_path / "folder" / "a.txt")
    return tmp_path / "folder"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("damaged shard", "b.npy cannot be read"),
        ("shorter than it says", "b.npy cannot be read"),
        ("another width", "same number of features"),
        ("no rows", "holds no .npy, .parquet, .csv, .tsv, .jsonl or .ndjson files"),
    ],
)
def test_bad_folders_are_refused_and_an_earlier_fit_stays(name, message, tmp_path):
    detector = QuadricDetector().fit(DATA)
    before = detector.decision_function(DATA)
    with pytest.raises(ValueError, match=message):
        detector.fit(bad_folder(tmp_path, name))
    np.testing.assert_array_equal(detector.decision_function(DATA), before)


def test_a_row_deep_in_a_file_that_is_not_finite_is_named(tmp_path):
    rows = np.tile(DATA, (400, 1))
    rows[20_123, 2] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    with pytest.raises(ValueError, match=r"row 20123 of .*rows\.npy \(counted from 0\) holds NaN"):
        QuadricDetector().fit(tmp_path / "rows.npy")


def test_no_more_of_a_file_is_read_than_is_needed(tmp_path, monkeypatch):
    """Not what is between rows that are far apart, nor more than a window at once."""
    fill, sizes = NpyFile._fill, []

    def recorded(self, file, first, numbers):
        sizes.append(numbers.size // 4)
        fill(self, file, first, numbers)

    monkeypatch.setattr(NpyFile, "_fill", recorded)
    path = make_npy(tmp_path)
    source = NpyFile(path)
    assert sizes == []
    np.testing.assert_array_equal(source[3:5], DATA[3:5])
    np.testing.assert_array_equal(source[np.array([9, 7])], DATA[[9, 7]])
    assert sizes == [2, 3]
    monkeypatch.setattr(disk, "WINDOW_BYTES", 10 * 4 * 4)  # ten rows
    monkeypatch.setattr(disk, "GAP_BYTES", 5 * 4 * 4)
    source = NpyFile(path)
    np.testing.assert_array_equal(source[np.array([59, 0, 7, 51, 55])], DATA[[59, 0, 7, 51, 55]])
    assert sizes[2:] == [1, 1, 9]
    np.testing.assert_array_equal(source[:], DATA)
    assert sizes[5:] == [10] * 6


@pytest.mark.parametrize("dtype", [">f4", ">i2", "longdouble", "bool", "float16", "uint32"])
def test_files_of_all_kinds_of_numbers_give_the_fit_of_the_array(dtype, tmp_path):
    rows = (3 * DATA).clip(min=0).astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    found, expected = QuadricDetector().fit(tmp_path / "rows.npy"), QuadricDetector().fit(rows)
    np.testing.assert_array_equal(found.decision_scores_, expected.decision_scores_)


def test_the_order_of_rows_in_memory_does_not_matter(tmp_path):
    np.save(tmp_path / "rows.npy", np.asfortranarray(DATA))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = QuadricDetector().fit(DATA).decision_scores_
    for rows in (mapped, np.asfortranarray(DATA), tmp_path / "rows.npy"):
        np.testing.assert_array_equal(QuadricDetector().fit(rows).decision_scores_, expected)


def test_a_file_that_becomes_another_one_is_noticed(tmp_path):
    source = NpyFile(make_npy(tmp_path))
    np.save(tmp_path / "rows.npy", np.tile(DATA, (3, 1)).astype(np.float64))
    with pytest.raises(OSError, match=r"rows 3 to 4 of .* cannot be read: the file has changed since it was opened"):
        source[3:5]


def test_a_file_that_becomes_shorter_is_noticed(tmp_path):
    source = NpyFile(make_npy(tmp_path))
    (tmp_path / "rows.npy").write_bytes((tmp_path / "rows.npy").read_bytes()[:-16])
    with pytest.raises(OSError, match=r"rows 50 to 59 of .* cannot be read"):
        source[50:60]


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.npy"):
        QuadricDetector().fit(tmp_path / "nothing.npy")
    (tmp_path / "rows.txt").write_text("1 2 3")
    with pytest.raises(ValueError, match=r"must end with \.npy, \.npz, \.csv, \.tsv, \.jsonl, \.ndjson, \.parquet"):
        QuadricDetector().fit(tmp_path / "rows.txt")


def test_loaders_that_cannot_be_gone_through_again_in_order_are_refused():
    with pytest.raises(ValueError, match="several times"):
        QuadricDetector().fit(iter([DATA]))
    with pytest.raises(ValueError, match="shuffle=False"):
        QuadricDetector().fit(DataLoader(TensorDataset(torch.tensor(DATA)), shuffle=True))
    with pytest.raises(ValueError, match="no rows"):
        LoaderRows(DataLoader(TensorDataset(torch.zeros(0, 3))))


@pytest.mark.parametrize(
    "shuffling",
    [
        {"batch_sampler": BatchSampler(RandomSampler(DATA, generator=torch.Generator()), 7, drop_last=False)},
        {"sampler": SubsetRandomSampler(range(60), generator=torch.Generator())},
    ],
    ids=["in batches", "subset"],
)
def test_loaders_that_shuffle_in_other_ways_are_noticed(shuffling):
    with pytest.raises(ValueError, match="began with other rows before; it must not shuffle"):
        QuadricDetector().fit(DataLoader(TensorDataset(torch.tensor(DATA)), **shuffling))


def test_a_loader_draws_no_seed_from_the_global_generator():
    loader = DataLoader(TensorDataset(torch.from_numpy(DATA)), batch_size=50)
    before = global_states()
    QuadricDetector(epoch_num=1).fit(loader).decision_function(loader)
    assert global_states() == before


def test_types_of_batches_are_joined():
    batches = [DATA[:20].astype(np.float64) + 1e6, DATA[20:]]
    expected = QuadricDetector().fit(np.concatenate(batches))
    found = QuadricDetector().fit(Loader(lambda n_passes: batches))
    np.testing.assert_array_equal(found.decision_scores_, expected.decision_scores_)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 20))
def test_blocks_of_a_loader_whatever_the_batches(sizes, size):
    rows = np.arange(2.0 * sum(sizes)).reshape(-1, 2)
    loader = LoaderRows(Loader(lambda n_passes: np.split(rows, np.cumsum(sizes)[:-1])))
    blocks = list(loader.blocks(size))
    assert all(len(block) == size for block in blocks[:-1])
    assert 1 <= len(blocks[-1]) <= size
    np.testing.assert_array_equal(torch.cat(blocks), rows)


class Loader:
    """Gives what a function of the number of the pass gives."""

    def __init__(self, batches):
        self.batches, self.n_passes = batches, 0

    def __iter__(self):
        self.n_passes += 1
        return iter(self.batches(self.n_passes))


def test_loaders_that_change_raise_or_hold_nan_are_named():
    with pytest.raises(ValueError, match="gave 60 rows at first, now it gives 30"):
        QuadricDetector().fit(Loader(lambda n_passes: [DATA[:30]] if n_passes > 2 else [DATA[:30], DATA[30:]]))
    with pytest.raises(ValueError, match="begins with row 30: row 0 holds NaN"):
        QuadricDetector().fit(Loader(lambda n_passes: [DATA[:30], np.full((2, 4), np.nan)]))
    with pytest.raises(ValueError, match="must have 4 features, as the first one does, got 2"):
        QuadricDetector().fit(Loader(lambda n_passes: [DATA, DATA[:, :2]]))

    def failing(n_passes):
        yield DATA
        if n_passes > 2:
            raise RuntimeError("the disk is gone")

    detector = QuadricDetector().fit(DATA)
    before = detector.decision_function(DATA)
    with pytest.raises(RuntimeError, match="the disk is gone"):
        detector.fit(Loader(failing))
    np.testing.assert_array_equal(detector.decision_function(DATA), before)
