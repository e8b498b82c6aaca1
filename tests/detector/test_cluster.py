"""Workers score blocks of rows as the detector does, read the model once, and get only a path with every block."""

import os
import pickle
import threading

import numpy as np
import pandas as pd
import pytest

from pyod_quadric import QuadricDetector, cluster
from pyod_quadric.cluster import MOST_MODELS, batch_scorer, score_dask
from tests.support.processes import HANGING

ROWS = np.random.default_rng(0).normal(size=(500, 6)) ** 3
NAMES = list("abcdef")


@pytest.fixture(scope="module")
def detector():
    return QuadricDetector().fit(ROWS)


@pytest.fixture(scope="module")
def path(detector, tmp_path_factory):
    path = tmp_path_factory.mktemp("cluster") / "model.safetensors"
    detector.save(path)
    return path


def test_scores_are_those_of_the_detector(detector, path):
    np.testing.assert_array_equal(batch_scorer(path)(ROWS), detector.decision_function(ROWS))


def test_no_rows_have_no_scores(path):
    assert batch_scorer(path)(ROWS[:0]).shape == (0,)


def test_data_frames_keep_their_index(tmp_path):
    frame = pd.DataFrame(ROWS, columns=NAMES, index=[f"row {place}" for place in range(len(ROWS))])
    detector = QuadricDetector().fit(frame)
    detector.save(tmp_path / "named")
    scorer = batch_scorer(tmp_path / "named")
    scores = scorer(frame[100:200])
    assert isinstance(scores, pd.Series)
    assert list(scores.index) == list(frame.index[100:200])
    np.testing.assert_array_equal(scores, detector.decision_function(frame[100:200]))
    assert len(scorer(frame[:0])) == 0
    with pytest.raises(ValueError, match="feature names"):
        scorer(frame[NAMES[::-1]])


@pytest.mark.parametrize("kind", [list, np.array, np.float32])
def test_series_of_rows_keep_their_index(kind, detector, path):
    series = pd.Series([kind(row) for row in ROWS[:20]], index=range(100, 120))
    scores = batch_scorer(path)(series)
    assert isinstance(scores, pd.Series)
    assert list(scores.index) == list(series.index)
    rows = ROWS[:20].astype(np.float32 if kind is np.float32 else np.float64)
    np.testing.assert_array_equal(scores, detector.decision_function(rows))
    assert batch_scorer(path)(series[:0]).shape == (0,)


def test_the_scorer_is_small_and_does_not_grow(detector, path):
    scorer = batch_scorer(path)
    scorer(ROWS)
    assert len(pickle.dumps(scorer)) < 1000 < path.stat().st_size


def test_threads_share_one_model(path):
    cluster._loaded.cache_clear()
    scorer = batch_scorer(path)
    model = scorer._model()
    assert cluster._loaded.cache_info().misses == 1
    found = []
    threads = [threading.Thread(target=lambda: found.append(scorer._model())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(each is model for each in found)


def test_a_process_keeps_the_models_it_used_last(detector, tmp_path):
    scorers = []
    for place in range(MOST_MODELS + 2):
        detector.save(tmp_path / str(place))
        scorers.append(batch_scorer(tmp_path / str(place)))
        scorers[0](ROWS[:1])  # so that this one is never the oldest
    assert cluster._loaded.cache_info().currsize == MOST_MODELS
    misses = cluster._loaded.cache_info().misses
    scorers[0](ROWS[:1])
    assert cluster._loaded.cache_info().misses == misses
    scorers[1](ROWS[:1])
    assert cluster._loaded.cache_info().misses == misses + 1


def test_another_file_at_the_same_place_is_noticed(detector, path, tmp_path):
    target = tmp_path / "model"
    detector.save(target)
    scorer = batch_scorer(target)
    QuadricDetector(contamination=0.2).fit(ROWS).save(target)
    os.utime(target, ns=(1, 1))
    with pytest.raises(ValueError, match=r"is not the model file that the scorer was made for.*make a new scorer"):
        scorer(ROWS)
    assert len(batch_scorer(target)(ROWS)) == len(ROWS)


def test_files_that_are_no_models_are_noticed_at_once(tmp_path):
    (tmp_path / "text").write_text("nothing")
    with pytest.raises(ValueError, match="cannot be loaded"):
        batch_scorer(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        batch_scorer(tmp_path / "nowhere")


def test_wrong_rows_are_noticed(path):
    with pytest.raises(ValueError, match="6 features"):
        batch_scorer(path)(ROWS[:, :5])
    da = pytest.importorskip("dask.array")
    for rows in (da.from_array(ROWS[:, :5]), da.from_array(ROWS[0])):
        with pytest.raises(ValueError, match=r"rows must have shape \(n, 6\)"):
            score_dask(rows, path)


def models_here() -> tuple[int, int]:
    return os.getpid(), cluster._loaded.cache_info().currsize


def in_block(rows, scorer):
    """Score a block on a worker; also say where, and which model that was."""
    return np.stack([scorer(rows), np.full(len(rows), os.getpid()), np.full(len(rows), id(scorer._model()))], axis=1)


def test_two_workers_read_the_model_once_each(detector, path):
    distributed = pytest.importorskip("distributed")
    import dask
    import dask.array as da

    rows = da.from_array(ROWS, chunks=(25, 4))
    expected = np.concatenate([detector.decision_function(block) for block in np.split(ROWS, 20)])  # products round by size
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    # Half a minute to answer is enough, but not on a machine with much else to do.
    patience = dask.config.set({f"distributed.comm.timeouts.{name}": f"{HANGING}s" for name in ("connect", "tcp")})
    with patience, distributed.LocalCluster(**local) as workers, distributed.Client(workers) as client:
        scores = score_dask(rows, path)
        assert scores.shape == (len(ROWS),)
        assert scores.dtype == np.float64
        np.testing.assert_array_equal(scores.compute(), expected)
        np.testing.assert_allclose(expected, detector.decision_function(ROWS), rtol=1e-12)
        # One block for each worker, and 20 blocks in each of three rounds for whichever is free: it has one model for all.
        first = list(client.run(in_block, ROWS[:25], batch_scorer(path)).values())
        assert len({process for block in first for process in block[:, 1]}) == 2
        placed = rows.rechunk({1: -1}).map_blocks(in_block, batch_scorer(path), dtype=float, chunks=((25,) * 20, (3,)))
        seen = np.concatenate([*(placed.compute() for _ in range(3)), *first])
        np.testing.assert_array_equal(seen[: len(ROWS), 0], expected)
        for process in np.unique(seen[:, 1]):
            assert process != os.getpid()
            assert len(np.unique(seen[seen[:, 1] == process, 2])) == 1
        assert all(count == 1 for _, count in client.run(models_here).values())
