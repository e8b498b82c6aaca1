"""Folders for model hubs: the numbers come back, the card says what is true, and what its owner has written stays."""

import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from pyod_quadric import QuadricDetector
from pyod_quadric.model.folder import CARD_FILE, CONFIG_FILE, MODEL_FILE
from tests.support.circle import TEST, X

NAMES = ["x", "``` y", 'z | "\n']  # as strange as names may be
FRAME = pandas.DataFrame(X, columns=NAMES)


@pytest.fixture(scope="module")
def detector():
    return QuadricDetector(contamination=0.05).fit(FRAME, groups=np.repeat(np.arange(100), 2))


@pytest.fixture
def folder(detector, tmp_path):
    detector.save_pretrained(tmp_path / "new" / "folder")
    return tmp_path / "new" / "folder"


def front_matter(card):
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load(card.split("---\n")[1])


def test_the_numbers_come_back(detector, folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted([MODEL_FILE, CONFIG_FILE, CARD_FILE])
    loaded = QuadricDetector.from_pretrained(str(folder))
    test = pandas.DataFrame(TEST, columns=NAMES)
    np.testing.assert_array_equal(loaded.decision_function(test), detector.decision_function(test))
    assert loaded.get_params() == detector.get_params()
    np.testing.assert_array_equal(QuadricDetector.load(folder / MODEL_FILE).labels_, detector.labels_)


def test_card_and_configuration_say_what_is_true(detector, folder):
    card = (folder / CARD_FILE).read_text()
    assert front_matter(card) == {
        "library_name": "pyod-quadric",
        "tags": ["anomaly-detection", "outlier-detection", "pyod"],
    }
    assert "{" not in card.replace(json.dumps({"contamination": 0.05}), "")  # nothing was left to be filled in
    assert f"| rows, features | {len(X)}, 3 |" in card
    assert f"| {int(detector.labels_.sum())} |" in card
    assert "hashes of the names" in card
    blocks = [json.loads(block) for block in re.findall(r"^```json\n(.*?)\n```$", card, flags=re.DOTALL | re.MULTILINE)]
    assert blocks == [{"contamination": 0.05}, NAMES]
    config = json.loads((folder / CONFIG_FILE).read_text())
    assert config["parameters"] == detector.get_params()
    assert (config["threshold"], config["feature_names"]) == (detector.threshold_, NAMES)
    assert config["library_name"] == "pyod-quadric"


@pytest.mark.parametrize(("score", "kept"), [("combined", True), ("linear+quadrics", False)])
def test_the_card_says_whether_rows_are_kept(score, kept, tmp_path):
    detector = QuadricDetector(score_function=score).fit(X)
    detector.save_pretrained(tmp_path)
    card = (tmp_path / CARD_FILE).read_text()
    n_kept = len(detector.model_.neighbors.prototypes) if kept else 0
    assert (f"holds {n_kept} rows of the fit" in card) is kept
    assert ("holds no rows of the fit" in card) is not kept
    assert "hashes of the names" not in card


def test_the_code_of_the_card_runs(detector, folder, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", (folder / CARD_FILE).read_text(), flags=re.DOTALL)
    hub = SimpleNamespace(snapshot_download={"OWNER/NAME": str(folder)}.get)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    namespace = {"rows": pandas.DataFrame(TEST, columns=NAMES)}
    exec(code, namespace)
    np.testing.assert_array_equal(namespace["labels"], detector.predict(namespace["rows"]))


def test_a_card_that_is_there_stays_and_the_rest_is_new(detector, folder):
    (folder / CARD_FILE).write_text("mine")
    other = QuadricDetector(contamination=0.2).fit(X)
    other.save_pretrained(folder)
    assert (folder / CARD_FILE).read_text() == "mine"
    assert QuadricDetector.from_pretrained(folder).threshold_ == other.threshold_
    assert json.loads((folder / CONFIG_FILE).read_text())["feature_names"] is None


def test_no_rows_of_a_stream_and_nothing_of_this_machine_are_published(tmp_path):
    options = {"checkpoint": str(tmp_path / "secret")}
    detector = QuadricDetector(window=150, device="cpu").partial_fit(X)
    detector.set_params(training_options=options)
    detector.save_pretrained(tmp_path / "folder")
    assert not hasattr(QuadricDetector.from_pretrained(tmp_path / "folder"), "_stream")
    assert all(b"secret" not in path.read_bytes() for path in (tmp_path / "folder").iterdir())


def test_what_cannot_be_saved_writes_nothing(tmp_path):
    detector = QuadricDetector(random_state=np.random.RandomState(0)).fit(X)
    with pytest.raises(ValueError, match="files hold no code"):
        detector.save_pretrained(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    with pytest.raises(Exception, match="not fitted"):
        QuadricDetector().save_pretrained(tmp_path / "folder")


@pytest.mark.parametrize("name", ["nowhere", "OWNER/NAME", "."])
def test_what_is_no_folder_is_said_with_the_remedy(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"save_pretrained.*model.safetensors.*snapshot_download"):
        QuadricDetector.from_pretrained(name)
