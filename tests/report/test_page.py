import base64
import hashlib
import sys
import zlib

import numpy as np
import pytest

from pyod_quadric import QuadricDetector
from pyod_quadric.data.columns import printable
from pyod_quadric.report import write_report
from tests.support.circle import TEST, WAYS, X
from tests.support.pages import HOSTILE, Page, hostile_report

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def detector():
    return QuadricDetector().fit(X)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "hostile.html"
    _, _, ids = hostile_report(path)
    return Page(path.read_bytes()), ids


def numbers(text, dtype):
    return np.frombuffer(base64.b64decode(text), dtype)


def test_the_page_says_what_there_is(detector):
    page = Page.written(lambda path: write_report(detector, TEST, path))
    scores = detector.decision_function(TEST)
    n_above = int((scores > detector.threshold_).sum())
    assert f"{n_above} rows ({n_above / len(TEST):.2%}) are above the threshold {detector.threshold_:.5g}" in page.text
    assert "200 rows of 3 features were scored by a detector that was fitted to 200 rows." in page.text
    assert "All 200 rows are drawn and listed." in page.text
    assert f"p-value {detector.drift_test(TEST).pvalue:.2g})" in page.text
    rows = page.data["rows"]
    order = numbers(rows["row"], "<f8").astype(int)
    np.testing.assert_array_equal(numbers(rows["score"], "<f8"), scores[order])
    np.testing.assert_allclose(numbers(rows["p_value"], "<f4"), detector.predict_pvalue(TEST)[order], rtol=1e-6)
    assert len(numbers(rows["x"], "<f4")) == len(numbers(rows["y"], "<f4")) == 200
    assert rows["ids"] is None
    assert page.data["plots"].keys() == {"scores", "p_values", "drift", "quadrics"}
    headings = [tag for tag, _ in page.elements if tag in ("h1", "h2", "h3")]
    assert headings == ["h1"] + ["h2"] * 6


def test_histograms_count_all_rows(detector):
    far = np.concatenate([TEST, [[1e3, 0, 0]]])
    plots = Page.written(lambda path: write_report(detector, far, path)).data["plots"]
    for trace in [*plots["scores"]["traces"][:2], plots["p_values"]["traces"][0]]:
        assert sum(trace["y"][:-1]) == pytest.approx(100)
    edge, most = plots["scores"]["traces"][0]["x"][-2:]
    scores = detector.decision_function(far)
    assert scores.max() > 10 * most
    assert plots["scores"]["traces"][0]["text"][-1] == f"{edge:.4g} or more: {(scores >= edge).sum()} rows"


@pytest.mark.parametrize("way", ["linear", "mean distance"])
def test_models_of_other_kinds(way):
    fitted = QuadricDetector(**WAYS[way]).fit(X)
    page = Page.written(lambda path: write_report(fitted, TEST, path))
    assert ("No quadric has a say." in page.text) == ("quadrics" not in page.data["plots"]) == (way == "linear")


def test_names_and_ids_are_text_and_nothing_else(hostile):
    page, ids = hostile
    shown = [printable(name) for name in HOSTILE]
    assert all(f"{name} = " in page.text for name in shown)
    assert page.data["rows"]["ids"] == [printable(ids[row]) for row in numbers(page.data["rows"]["row"], "<f8").astype(int)]
    assert [tag for tag, _ in page.elements].count("script") == 3
    assert not {"img", "a", "b", "iframe"} & {tag for tag, _ in page.elements}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert printable(HOSTILE[1]) in page.texts  # the title
    for text in (page.text, page.scripts[0]):
        assert text.isprintable()


def test_the_page_needs_no_other_file_and_runs_no_other_script(hostile):
    page, _ = hostile
    assert not [name for _, attributes in page.elements for name in attributes if name in ("src", "href", "action")]
    (policy,) = [found["content"] for _, found in page.elements if found.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for script in page.scripts[1:]:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy


def test_plots_and_tables_have_names(hostile):
    page, _ = hostile
    plots = [attributes for _, attributes in page.elements if attributes.get("class") == "plot"]
    assert {plot["id"] for plot in plots} == {"map", *page.data["plots"]}
    assert all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    assert [tag for tag, _ in page.elements].count("caption") == 3
    assert ("html", {"lang": "en"}) in page.elements
    assert "need JavaScript. All else is readable without it." in page.text


def test_the_same_rows_give_the_same_bytes(detector, tmp_path):
    sums = set()
    for name in ("a", "b"):
        write_report(detector, TEST, tmp_path / name)
        sums.add(zlib.crc32((tmp_path / name).read_bytes()))
    assert len(sums) == 1


@pytest.mark.parametrize("points", [20, 60])
def test_a_page_of_a_sample_says_so(detector, points):
    page = Page.written(lambda path: write_report(detector, TEST, path, points=points))
    n_above = int((detector.decision_function(TEST) > detector.threshold_).sum())
    certain = f"all {n_above} above the threshold" if n_above <= points // 2 else f"the {points // 2} with the highest scores"
    assert f"{points} of the 200 rows are drawn and listed: {certain}, and a random sample" in page.text
    assert len(numbers(page.data["rows"]["row"], "<f8")) == points


def test_far_out_rows_stay_on_the_map(detector):
    far = np.concatenate([TEST, [[1e30, -1e30, 0]]])
    rows = Page.written(lambda path: write_report(detector, far, path)).data["rows"]
    assert rows["edge"] == "Farther out, and put at the edge of the map: 1."
    for name, (low, high) in zip("xy", rows["ranges"], strict=True):
        column = numbers(rows[name], "<f4")
        assert (column > low).all()
        assert (column < high).all()
        assert high - low < 50


def test_constant_rows(detector):
    page = Page.written(lambda path: write_report(detector, np.ones((3, 3)), path))
    assert "3 rows are few for this test." in page.text


def test_ids_are_one_for_each_row(detector, tmp_path):
    with pytest.raises(ValueError, match="ids must hold one for each of 200 rows, got 2"):
        write_report(detector, TEST, tmp_path / "report.html", ids=["a", "b"])
    assert not list(tmp_path.iterdir())


def test_without_plotly_the_extra_is_named(detector, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"pip install 'pyod-quadric\[report\]'"):
        write_report(detector, TEST, tmp_path / "report.html")
