"""Every row comes once an epoch, in an order that the seed decides, from any source."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from pyod_quadric.data import batches as module
from pyod_quadric.data.batches import LoaderBatches, RowBatches, shuffled
from pyod_quadric.data.rows import rows_of
from pyod_quadric.parallel.devices import moved

DATA = np.arange(46.0).reshape(23, 2)


@given(n=st.integers(1, 300), batch_size=st.integers(1, 50), window=st.integers(1, 5), seed=st.integers(0, 9))
def test_every_row_comes_once_and_only_the_last_batch_is_short(n, batch_size, window, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW_BLOCKS", window)
        order = list(shuffled(n, batch_size, (seed, 0)))
    np.testing.assert_array_equal(np.sort(np.concatenate(order)), np.arange(n))
    assert [len(batch) for batch in order[:-1]] == [batch_size] * (len(order) - 1)
    assert 1 <= len(order[-1]) <= batch_size


def test_order_depends_on_seed_and_epoch_alone():
    def order(*seed):
        return np.concatenate(list(shuffled(100, 10, seed))).tolist()

    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_rows_are_mixed_across_a_window():
    order = np.concatenate(list(shuffled(1000, 10, (0, 0))))
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.2


@given(n=st.integers(12, 150), one_in=st.integers(2, 12), batch_size=st.integers(1, 30), seed=st.integers(0, 99))
def test_held_out_rows_are_one_in_k_and_never_trained_on(n, one_in, batch_size, seed):
    batches = RowBatches(rows_of(np.arange(float(n))[:, None]), batch_size, seed, one_in)
    trained = torch.cat(list(batches.epoch(0))).flatten().tolist()
    held_out = torch.cat(list(batches.validation())).flatten().tolist()
    assert sorted(trained + held_out) == list(range(n))
    assert [int(row // one_in) for row in held_out][: n // one_in] == list(range(n // one_in))
    assert held_out == torch.cat(list(batches.validation())).flatten().tolist()


def test_held_out_rows_of_periodic_data_are_of_all_kinds():
    held_out = torch.cat(list(RowBatches(rows_of(np.arange(1000.0)[:, None] % 10), 64, 0, 10).validation()))
    assert sorted(set(held_out.flatten().tolist())) == list(range(10))


def test_an_epoch_can_be_entered_in_its_middle():
    batches = RowBatches(rows_of(DATA), 5, 0)
    whole = list(batches.epoch(3))
    for first in range(len(whole)):
        for late, expected in zip(batches.epoch(3, first), whole[first:], strict=True):
            assert torch.equal(late, expected)


def sources(tmp_path):
    np.save(tmp_path / "rows.npy", DATA)
    return {
        "float64": DATA,
        "float32": DATA.astype(np.float32),
        "integers": DATA.astype(np.int64),
        "float16": DATA.astype(np.float16),
        "lists": DATA.tolist(),
        "fortran order": np.asfortranarray(DATA),
        "tensor": torch.tensor(DATA),
        "memory map": np.load(tmp_path / "rows.npy", mmap_mode="r"),
        "path": tmp_path / "rows.npy",
        "string": str(tmp_path / "rows.npy"),
    }


def test_all_sources_give_the_same_rows(tmp_path):
    expected = list(RowBatches(rows_of(DATA), 5, 0).epoch(0))
    for name, source in sources(tmp_path).items():
        rows = rows_of(source)
        assert torch.equal(torch.cat(list(rows.blocks(4))).double(), torch.tensor(DATA)), name
        for batch, wanted in zip(RowBatches(rows, 5, 0).epoch(0), expected, strict=True):
            assert torch.equal(batch.double(), wanted), name


def test_reading_copies_only_what_is_read(tmp_path):
    """A batch does not share the memory of the file."""
    np.save(tmp_path / "rows.npy", DATA)
    rows = rows_of(tmp_path / "rows.npy")
    batch = rows.read(slice(0, 2))
    batch.zero_()
    assert rows.read(slice(0, 2)).sum() > 0


@pytest.mark.parametrize("wrap", [lambda t: DataLoader(TensorDataset(t), batch_size=5), lambda t: list(t.split(5))])
def test_loaders_keep_their_order(wrap):
    tensor = torch.tensor(DATA)
    batches = LoaderBatches(wrap(tensor), 0)
    assert torch.equal(torch.cat(list(batches.epoch(0))), tensor)
    assert torch.equal(torch.cat(list(batches.epoch(0, first=2))), tensor[10:])
    assert list(batches.validation()) == []


def test_shuffling_loaders_follow_the_seed_and_leave_the_global_generator_alone():
    loader = DataLoader(TensorDataset(torch.tensor(DATA)), batch_size=5, shuffle=True)
    before = torch.get_rng_state()

    def order(seed, epoch, first=0):
        return torch.cat(list(LoaderBatches(loader, seed).epoch(epoch, first)))[:, 0].tolist()

    assert order(0, 0) == order(0, 0)
    assert order(0, 0, first=2) == order(0, 0)[10:]
    assert order(0, 0) != order(0, 1) != order(1, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_samplers_are_told_the_epoch():
    class Sampler(list):
        def set_epoch(self, epoch):
            self[:] = [(i + epoch) % 23 for i in range(23)]

    loader = DataLoader(TensorDataset(torch.tensor(DATA)), batch_size=23, sampler=Sampler(range(23)))
    first = next(LoaderBatches(loader, 0).epoch(4))
    assert first[0].tolist() == DATA[4].tolist()


def test_rows_of_a_tensor_are_a_copy():
    tensor = torch.tensor(DATA)
    rows_of(tensor).read(slice(0, 3)).zero_()
    assert tensor[1].sum() > 0


def test_batches_stay_on_the_cpu_unless_moved():
    batch = torch.tensor(DATA)
    assert next(moved([batch], torch.device("cpu"))) is batch
    assert next(moved([batch], torch.device("meta"))).device.type == "meta"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("index", [slice(4, 20), slice(0, None, 7), np.array([3, 7, 9])])
def test_a_bad_row_is_named(bad, index):
    data = DATA.copy()
    data[7, 1] = bad
    with pytest.raises(ValueError, match="row 7 holds NaN or infinite"):
        rows_of(data).read(index)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros(3), r"shape \(n, d\).*got \(3,\)"),
        (np.zeros((0, 3)), "has no rows; at least 1 is needed"),
        (np.array([["a"]]), r"real numbers, got <U1"),
        (torch.zeros(2, 2, dtype=torch.complex64), r"real numbers, got torch.complex64"),
        (np.zeros((2, 2), dtype=complex), r"real numbers, got complex128"),
    ],
)
def test_rows_refuse(source, message):
    with pytest.raises(ValueError, match=message):
        rows_of(source)


def test_holding_out_everything_is_refused():
    # One row in a group of two: the seed decides whether it is the one held out, and 0 decides so.
    with pytest.raises(ValueError, match="1 of 1 are held out"):
        RowBatches(rows_of(DATA[:1]), 5, 0, 2)


def test_pickles_are_not_read(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        rows_of(tmp_path / "objects.npy")


@given(keys=st.lists(st.integers(0, 6), min_size=4, max_size=40), one_in=st.integers(2, 5), seed=st.integers(0, 9))
def test_groups_are_held_out_together(keys, one_in, seed):
    groups = np.array([*keys, 7, 8])
    batches = RowBatches(rows_of(np.arange(float(len(groups)))[:, None]), 3, seed, one_in, groups=groups)
    trained, held_out = (set(torch.cat(list(rows))[:, 0].int().tolist()) for rows in (batches.epoch(0), batches.validation()))
    assert trained | held_out == set(range(len(groups)))
    assert held_out
    assert set(groups[list(trained)]).isdisjoint(groups[list(held_out)])
