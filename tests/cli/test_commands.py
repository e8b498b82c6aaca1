"""The commands, called in this process: what they write is what the detector says."""

import csv
import io
import json
import shlex

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from pyod_quadric import QuadricDetector, half_half_protocol
from pyod_quadric.cli.main import main
from pyod_quadric.cli.parser import COMMANDS, build_parser, parameters_in
from pyod_quadric.parameters import RARELY_USED, Parameters, declarations

NAMES = ["a", "b", "c", "d"]


def rows_like(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, len(NAMES))) ** 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the same rows in all kinds of files, new rows, and models of the rows with and without names."""
    path = tmp_path_factory.mktemp("cli")
    rows, new = rows_like(300, 0), rows_like(90, 1)
    labels = (np.arange(300) % 10 == 0).astype(int)
    np.save(path / "rows.npy", rows)
    np.savez(path / "rows.npz", X=rows, y=labels)
    np.save(path / "labels.npy", labels)
    np.save(path / "new.npy", new)
    table = pyarrow.table({"id": [f"row {i}" for i in range(300)], **dict(zip(NAMES, rows.T, strict=True)), "y": labels})
    pyarrow.parquet.write_table(table, path / "rows.parquet")
    pyarrow.csv.write_csv(table, path / "rows.csv")
    pyarrow.csv.write_csv(table, path / "rows.tsv", pyarrow.csv.WriteOptions(delimiter="\t"))
    shuffled = {"extra": ["text"] * 90, **{name: new[:, NAMES.index(name)] for name in "dbca"}}
    pyarrow.csv.write_csv(pyarrow.table(shuffled), path / "new.csv")
    assert main(["fit", f"{path}/rows.npy", "-o", f"{path}/model", "-q"]) == 0
    assert main(["fit", f"{path}/rows.csv", "-o", f"{path}/named", "-q", "--drop", "id", "--label-column", "y"]) == 0
    return path


@pytest.fixture
def call(folder, monkeypatch, capsys):
    """Run a command line in a folder, and return its exit code and what it printed to both streams."""
    monkeypatch.chdir(folder)

    def run(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(shlex.split(line))
        return status, *capsys.readouterr()

    return run


def succeeded(outcome: tuple[int, str, str]) -> str:
    status, output, errors = outcome
    assert status == 0, errors
    return output


def as_columns(text: str) -> dict[str, list[str]]:
    lines = list(csv.DictReader(io.StringIO(text)))
    return {name: [line[name] for line in lines] for name in lines[0]}


def test_every_declared_parameter_is_an_option_of_fit(capsys):
    assert main(["fit", "--help"]) == 0
    text = capsys.readouterr().out
    missing = {name for name in declarations(Parameters) if f"--{name.replace('_', '-')} " not in text}
    assert missing == {"training_options", "window"}
    assert "--verbose  " in text  # which is a flag, and no number
    assert all(f"--{name.replace('_', '-')} " in text for name in RARELY_USED)


def test_options_become_parameters():
    line = "fit rows.npy -o model --n-components 0.9 --normalize auto --robust no --loss algebraic --patience none"
    assert parameters_in(build_parser().parse_args(line.split())) == {
        "n_components": 0.9,
        "normalize": "auto",
        "robust": False,
        "training_options": {"loss": "algebraic", "patience": None},
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_help(call, name):
    text = succeeded(call(f"{name} --help"))
    assert text.startswith(f"usage: pyod-quadric {name}")
    assert "--debug" not in text


def test_help_names_all_commands(call):
    assert all(name in succeeded(call("--help")) for name in COMMANDS)
    assert call("--version")[1].startswith("pyod-quadric 0.")


@pytest.mark.parametrize("options", ["rows.npy", "rows.npz", *(f"rows.{s} --drop id,y" for s in ("csv", "tsv", "parquet"))])
def test_fit_is_that_of_the_detector_whatever_the_file(call, folder, tmp_path, options):
    output = succeeded(call(f"fit {options} --output {tmp_path}/model"))
    expected = QuadricDetector().fit(np.load(folder / "rows.npy"))
    fitted = QuadricDetector.load(tmp_path / "model")
    np.testing.assert_array_equal(fitted.decision_scores_, expected.decision_scores_)
    assert fitted.get_params() == expected.get_params()
    assert "300 rows of 4 features" in output
    names = getattr(fitted, "feature_names_in_", None)
    assert names is None if "drop" not in options else list(names) == NAMES


def as_options(given):
    words = {False: "no", True: "yes"}
    return " ".join(
        f"--{name.replace('_', '-')} {words[value] if isinstance(value, bool) else value}" for name, value in given.items()
    )


def test_fit_hands_on_its_options(call, tmp_path):
    given = {
        "contamination": 0.2,
        "n_quadrics": 3,
        "n_components": 3,
        "normalize": False,
        "score_function": "mean_distance",
        "robust": False,
        "distance": "first_order",
        "init": "random",
        "epoch_num": 2,
        "constraint": "stiefel",
        "lr": 0.002,
        "inner_product": "coefficient",
        "optimizer_name": "adam",
        "batch_size": 50,
        "device": "cpu",
        "random_state": 7,
    }
    output = succeeded(call(f"fit rows.npy -o {tmp_path}/model --verbose {as_options(given)}"))
    assert QuadricDetector.load(tmp_path / "model").get_params().items() >= given.items()
    assert output.startswith("epoch 1: loss ")
    assert "trained for 2 epochs: loss " in output


def test_fit_hands_on_rarely_used_options(call, tmp_path):
    flat = {"n_quadrics": 3, "epoch_num": 2, "constraint": "penalty", "batch_size": 50}
    rare = {
        "orthonormality_weight": 2.0,
        "loss": "squared_algebraic",
        "momentum": 0.5,
        "schedule": "constant",
        "validation_fraction": 0.2,
        "patience": 2,
    }
    state = f"--checkpoint {tmp_path}/state --checkpoint-steps 3"
    succeeded(call(f"fit rows.npy -o {tmp_path}/model -q {as_options(flat | rare)} {state}"))
    parameters = QuadricDetector.load(tmp_path / "model").get_params()
    assert parameters.items() >= flat.items()
    assert parameters["training_options"].items() >= rare.items()
    assert (tmp_path / "state").exists()  # what does not go into the file


def test_fit_with_the_settings_of_the_paper(call, tmp_path):
    succeeded(call(f"fit rows.npy -o {tmp_path}/model --paper sub --n-quadrics 5 --epoch-num 1 --n-components none"))
    assert QuadricDetector.load(tmp_path / "model").get_params() == (
        QuadricDetector.from_paper("sub", n_quadrics=5, epoch_num=1).get_params()
    )


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("source", ["model new.npy", "named new.csv", "named new.npy"])
def test_scores_are_those_of_the_detector(call, folder, source, size):
    found = as_columns(succeeded(call(f"score {source} --batch-size {size}" if size != 1 else f"score {source}")))
    detector, new = QuadricDetector.load(folder / "model"), np.load(folder / "new.npy")
    np.testing.assert_allclose(np.array(found["score"], dtype=float), detector.decision_function(new), rtol=1e-12)
    assert [int(label) for label in found["label"]] == detector.predict(new).tolist()
    assert [int(row) for row in found["row"]] == list(range(90))


def test_score_writes_arrays_and_tables(call, tmp_path):
    expected = as_columns(succeeded(call("score model new.npy")))
    succeeded(call(f"score model new.npy -o {tmp_path}/s.npy --labels-output {tmp_path}/l.npy"))
    succeeded(call(f"score model new.npy -o {tmp_path}/s.csv"))
    succeeded(call(f"score model new.npy -o {tmp_path}/s.parquet"))
    scores, labels = np.array(expected["score"], dtype=float), np.array(expected["label"], dtype=int)
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), scores)
    np.testing.assert_array_equal(np.load(tmp_path / "l.npy"), labels)
    assert as_columns((tmp_path / "s.csv").read_text()) == expected
    table = pyarrow.parquet.read_table(tmp_path / "s.parquet")
    assert table.to_pydict() == {"row": list(range(90)), "score": scores.tolist(), "label": labels.tolist()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["l.npy", "s.csv", "s.npy", "s.parquet"]


def test_force_overwrites(call, tmp_path):
    target = tmp_path / "s.csv"
    target.write_text("something else")
    succeeded(call(f"score model new.npy -o {target} --force"))
    assert target.read_text().startswith("row,score,label\n0,")


def test_names_are_not_needed_but_noted(call):
    assert "has no names of columns" in call("score named new.npy")[2]
    assert call("score named new.npy --quiet")[2] == ""


def test_rows_with_nan(call, folder, tmp_path):
    new = np.load(folder / "new.npy")
    good = as_columns(succeeded(call("score model new.npy")))["score"]
    new[[3, 89], 1] = np.nan, np.inf
    np.save(tmp_path / "bad.npy", new)
    left = [row for row in range(90) if row not in (3, 89)]
    dropped = as_columns(succeeded(call(f"score model {tmp_path}/bad.npy --on-nan drop --batch-size 10")))
    assert dropped["row"] == [str(row) for row in left]
    expected = np.array(good, dtype=float)[left]
    np.testing.assert_allclose(np.array(dropped["score"], dtype=float), expected, rtol=1e-12)  # blocks may round otherwise
    status, output, errors = call(f"score model {tmp_path}/bad.npy --on-nan score-nan")
    kept = as_columns(output)
    assert (status, len(kept["row"]), kept["score"][3], kept["label"][89]) == (0, 90, "nan", "-1")
    assert "2 of 90 rows hold NaN" in errors
    succeeded(call(f"fit {tmp_path}/bad.npy -o {tmp_path}/model --on-nan drop -q"))
    refitted = QuadricDetector().fit(new[left])
    np.testing.assert_array_equal(QuadricDetector.load(tmp_path / "model").decision_scores_, refitted.decision_scores_)


def test_explain_the_top_outliers(call, folder, tmp_path):
    detector, new = QuadricDetector.load(folder / "model"), np.load(folder / "new.npy")
    order = np.argsort(-detector.decision_function(new))[:5]
    found = as_columns(succeeded(call("explain named new.csv --top 5")))
    assert found["row"] == [str(row) for row in order]
    contributions = np.array([found[name] for name in NAMES], dtype=float).T
    np.testing.assert_allclose(contributions, detector.explain(new[order]), rtol=1e-9)
    np.testing.assert_allclose(contributions.sum(axis=1), np.array(found["score"], dtype=float))
    succeeded(call(f"explain model new.npy --top 5 -o {tmp_path}/e.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy"), detector.explain(new[order]))


def test_explain_given_rows_by_their_largest_contributions(call, folder, tmp_path):
    expected = QuadricDetector.load(folder / "model").explain(np.load(folder / "new.npy")[[7, 2, 3]])
    succeeded(call(f"explain model new.npy --rows 7,2-3 --largest 2 -o {tmp_path}/e.parquet"))
    found = pyarrow.parquet.read_table(tmp_path / "e.parquet").to_pydict()
    assert found["row"] == [7, 7, 2, 2, 3, 3]
    np.testing.assert_array_equal(found["contribution"], np.sort(expected, axis=1)[:, :1:-1].ravel())
    assert found["feature"][:2] == [f"feature_{place}" for place in np.argsort(-expected[0])[:2]]


def test_compare(call, tmp_path):
    line = "compare rows.npz --label-column y --n-quadrics 4 --init random --epoch-num 3 --lr 0.01,0.1 --json"
    found = json.loads(succeeded(call(f"{line} -o {tmp_path}/c.png")))
    penalty, manifold = found["training"]["penalty"], found["training"]["stiefel"]
    assert penalty["held_out_loss_at_start"] == manifold["held_out_loss_at_start"] > penalty["held_out_loss"]
    assert manifold["orthonormality_error"] < 1e-5 < penalty["orthonormality_error"]
    assert manifold["held_out_loss_made_orthonormal"] == pytest.approx(manifold["held_out_loss"], rel=1e-5)
    assert penalty["held_out_loss_made_orthonormal"] != pytest.approx(penalty["held_out_loss"], rel=1e-5)
    assert list(found["detectors"]) == ["default", "linear", "closed_form", "penalty", "stiefel"]
    assert all(0 < figures["roc_auc"] < 1 for figures in found["detectors"].values())
    assert found["detectors"]["penalty"]["settings"]["init"] == "random"
    assert 0.5 < found["agreement"]["rank_correlation"] <= 1
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    again = json.loads(succeeded(call(line.replace("rows.npz --label-column y", "rows.npy --labels labels.npy"))))
    for result in (found, again):
        for figures in [*result["training"].values(), *result["detectors"].values()]:
            assert figures.pop("seconds") > 0
    assert again == found


def test_compare_prints_tables(call):
    line = "compare rows.csv --id-column id --n-quadrics 2 --epoch-num 1 --lr 0.01"
    without, with_labels = succeeded(call(f"{line} --drop y")), succeeded(call(f"{line} --label-column y"))
    for output in (without, with_labels):
        for words in ("the default detector: ", "its linear part alone", "2 quadrics alone, trained on the manifold"):
            assert f"| {words}" in output
        assert "Quadrics alone score by their mean distance; the default detector adds" in output
        assert "| held out loss " in output
        assert "270 rows for training, 30 held out; 2 quadrics in 4 coordinates" in output
    assert "ROC-AUC" not in without
    assert "| ROC-AUC |" in with_labels


def test_robustness_is_the_half_half_protocol(call, folder, tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 3)
    faces, others = rng.normal(size=(40, 4))[labels] + 0.1 * rng.normal(size=(120, 4)), 9 + rng.normal(size=(60, 4))
    names = [f"person {label:02}" for label in labels]  # in the order of the numbers, which decides the halves
    table = dict(zip(NAMES, faces.T, strict=True))
    pyarrow.csv.write_csv(pyarrow.table({"who": names, **table}), tmp_path / "faces.csv")
    pyarrow.csv.write_csv(pyarrow.table({"who": names}), tmp_path / "who.csv")
    np.save(tmp_path / "faces.npy", faces)
    np.save(tmp_path / "others.npy", others)
    detector = QuadricDetector.load(folder / "model")
    scores, other_scores = detector.decision_function(faces), detector.decision_function(others)
    expected = half_half_protocol(faces, labels, scores, others, other_scores, n_repeats=2, false_positive_rate=0.01)
    line = f"robustness --model model --distractors {tmp_path}/others.npy --false-positive-rate 0.01 --repeats 2"
    for source in ("faces.npy --labels {}/who.csv", "faces.csv --label-column who"):
        command = f"{line} --embeddings {tmp_path}/{source.format(tmp_path)}"
        found = json.loads(succeeded(call(f"{command} --json")))
        for name, (mean, std) in expected.summary().items():
            assert found[name] == {"mean": pytest.approx(mean), "std": pytest.approx(std)}
    assert "| after " in succeeded(call(command))
    with_nan = np.insert(faces, 5, np.nan, axis=0)
    np.save(tmp_path / "holes.npy", with_nan)
    np.save(tmp_path / "holes_who.npy", np.insert(labels, 5, 999))
    holes = f"{line} --embeddings {tmp_path}/holes.npy --labels {tmp_path}/holes_who.npy --on-nan drop --json"
    assert json.loads(succeeded(call(holes))) == found


def test_info(call, folder):
    found = json.loads(succeeded(call("info named --json")))
    detector = QuadricDetector.load(folder / "named")
    assert found["parameters"] == detector.get_params()
    assert found["sizes"]["features"] == 4
    assert found["sizes"]["training_rows"] == 300
    assert found["training"]["threshold"] == detector.threshold_
    assert found["feature_names"] == NAMES
    assert found["versions"] == detector.versions_
    text = succeeded(call("info named"))
    assert "feature names: a, b, c, d" in text
    assert "  training rows: 300" in text


# Decisions


def columns_of(path):
    with path.open(newline="") as file:
        names, *rows = csv.reader(file)
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def test_score_writes_p_values_and_labels_by_rates(call, folder):
    detector, new = QuadricDetector.load(folder / "model"), np.load(folder / "new.npy")
    for options, expected in (
        ("--fpr 0.2", detector.predict(new, false_positive_rate=0.2)),
        ("--fdr 0.5", detector.predict(new, false_discovery_rate=0.5)),
        ("", detector.predict(new)),
    ):
        said = call(f"score model new.npy -o decided.csv --force --p-values --batch-size 7 {options}")
        assert said[0] == 0, said[2]
        found = columns_of(folder / "decided.csv")
        assert list(found) == ["row", "score", "label", "p_value"]
        np.testing.assert_array_equal(found["label"].astype(int), expected)
        np.testing.assert_array_equal(found["p_value"].astype(float), detector.predict_pvalue(new))
    assert f"{detector.predict(new).sum()} of 90 rows are above the threshold" in said[2]


def test_rows_without_a_score_have_no_p_value(call, folder):
    rows = np.load(folder / "new.npy")
    rows[5, 1] = np.nan
    np.save(folder / "spoilt.npy", rows)
    for rate in ("--fdr 0.1", "--fpr 0.1"):
        assert call(f"score model spoilt.npy -o decided.csv --force --p-values --on-nan score-nan {rate}")[0] == 0
        found = columns_of(folder / "decided.csv")
        assert (found["label"][5], found["p_value"][5]) == ("-1", "nan")
        assert len(found["row"]) == 90
        assert call(f"score model spoilt.npy -o decided.csv --force --on-nan drop {rate}")[0] == 0
        assert len(columns_of(folder / "decided.csv")["row"]) == 89


@pytest.mark.parametrize("options", ["--fdr 0", "--fpr 1.5", "--fdr 0.1 --fpr 0.1", "--p-values -o scores.npy --force"])
def test_rates_that_mean_nothing_are_wrong_usage(call, options):
    assert call(f"score model new.npy {options}")[0] == 2


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "file"])
def test_fit_takes_groups_from_anywhere(call, folder, kind):
    rows, people = np.load(folder / "rows.npy"), np.array([f"person {i // 3}" for i in range(300)])
    table = pyarrow.table({"who": people, **dict(zip(NAMES, rows.T, strict=True)), "y": np.zeros(300)})
    pyarrow.csv.write_csv(table, folder / "grouped.csv")
    pyarrow.parquet.write_table(table, folder / "grouped.parquet")
    np.savez(folder / "grouped.npz", X=rows, who=people)
    np.save(folder / "people.npy", people)
    source = {
        "csv": "grouped.csv --group-column who --label-column y",
        "parquet": "grouped.parquet --group-column who --drop y",
        "npz": "grouped.npz --group-column who",
        "file": "rows.npy --groups people.npy",
    }[kind]
    assert call(f"fit {source} -o grouped-{kind} -q")[0] == 0
    found = QuadricDetector.load(folder / f"grouped-{kind}")
    expected = QuadricDetector().fit(rows, groups=people)
    np.testing.assert_array_equal(found.groups_, expected.groups_)
    np.testing.assert_allclose(found.decision_scores_, expected.decision_scores_, rtol=1e-9)


def test_groups_are_given_once(call):
    assert call("fit rows.csv --group-column id --groups labels.npy -o twice")[0] == 2


def test_drift(call, folder):
    detector, new = QuadricDetector.load(folder / "model"), np.load(folder / "new.npy")
    expected = detector.drift_test(new)
    assert json.loads(succeeded(call("drift model new.npy --json"))) == {"rows": 90, **expected._asdict()}
    assert f"statistic {expected.statistic:.4f}, p-value" in succeeded(call("drift model new.npy"))
    status, _, said = call("drift model new.npy --groups labels.npy")
    assert (status, "300 labels" in said) == (1, True)
