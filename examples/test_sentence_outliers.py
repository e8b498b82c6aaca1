"""The paper's table of outlier detectors is made, from synthetic embeddings; sentences are read from an archive."""

import io
import tarfile

import numpy as np
import pytest

from examples import sentence_outliers
from examples._baselines import methods


def test_tables(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    tables = sentence_outliers.main(picture=picture, fast=True)
    assert list(tables["methods"]) == list(methods())
    for areas in tables["methods"].values():
        assert list(areas) == ["nyt", "tweets", "amazon"]
        assert all(values.shape == (3,) and (values >= 0).all() and (values <= 1).all() for values in areas.values())
    assert np.mean(list(tables["methods"]["default"].values())) > 0.95
    assert set(tables["ablations"]) >= {"Q-FULL", "5 quadrics", "20 quadrics", "PCA", "PCA, 3 components", "PCA, 4 components"}
    assert "mean" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_embeddings_from_a_file(tmp_path, capsys):
    np.savez(tmp_path / "small.npz", **{k: v.astype(np.float16) for k, v in sentence_outliers.synthetic_domains(40).items()})
    domains = sentence_outliers.load_domains(tmp_path / "small.npz")
    assert {rows.dtype for rows in domains.values()} == {np.dtype(np.float32)}
    sentence_outliers.main(domains, fast=True, quiet=True)
    assert capsys.readouterr().out == ""


def test_mixtures_are_99_to_1():
    inside, outside = np.zeros(1320), np.arange(20.0)  # 990 inliers, 10 outliers, of which one or none ties with the inliers
    areas = sentence_outliers.mixed_auc(inside, outside, n_repeats=20)
    assert set(np.round(areas, 6)) == {0.95, 1.0}


def archive(files):
    """Return a packed archive of texts or of other archives, by name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def test_sentences_are_read_from_the_source_distribution(tmp_path):
    texts = {
        f"hutto_ICWSM_2014/{file}_GroundTruth.txt": f"1\t0.5\t{kind} one\r\n2\t-1\t{kind}\ttwo\r\n".encode()
        for kind, file in sentence_outliers.FILES.items()
    }
    path = tmp_path / "vaderSentiment-3.3.2.tar.gz"
    path.write_bytes(archive({"vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz": archive(texts)}))
    sentences = sentence_outliers.read_sentences(path)
    assert list(sentences) == list(sentence_outliers.FILES)
    assert sentences["nyt"] == ["nyt one", "nyt\ttwo"]


def test_embeddings_are_made_once(tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_outliers, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(sentence_outliers, "download_sentences", lambda: {"movie": ["one", "two"]})
    monkeypatch.setattr(sentence_outliers, "embed", lambda sentences: {k: np.ones((len(v), 3)) for k, v in sentences.items()})
    assert sentence_outliers.load_domains(None)["movie"].shape == (2, 3)
    monkeypatch.setattr(sentence_outliers, "embed", pytest.fail)
    assert sentence_outliers.load_domains(None)["movie"].shape == (2, 3)
