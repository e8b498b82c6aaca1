"""The page in a real browser, where there is one: it draws, hovers, filters, asks no network, and runs nothing of strangers."""

import re
import shutil

import numpy as np
import pytest

from pyod_quadric import QuadricDetector
from pyod_quadric.report import write_report
from tests.support.pages import HOSTILE, hostile_report

pytest.importorskip("plotly")
sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
WIDE, NARROW = {"width": 1400, "height": 900}, {"width": 400, "height": 800}
PATIENCE = 120_000  # milliseconds, of which a loaded machine may need many


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--enable-unsafe-swiftshader"]  # as root, and WebGL without a graphics card
        try:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options, timeout=PATIENCE)
        except sync_api.Error as error:
            pytest.skip(f"Chromium does not start here: {error.message.splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "hostile.html"
    return path, *hostile_report(path)


@pytest.fixture
def show(browser):
    """Open pages, and see at the end that none has complained or asked for anything."""
    seen, pages = [], []

    def show(path, size=WIDE, **options):
        page = browser.new_context(viewport=size, offline=True, **options).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: seen.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("dialog", lambda dialog: seen.append(dialog.message))
        page.on("request", lambda request: seen.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        pages.append(page)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready=yes]", state="attached")
        return page

    yield show
    for page in pages:
        page.context.close()
    assert seen == []


def counted(page, text):
    sync_api.expect(page.locator("#count")).to_have_text(re.compile(f"^{re.escape(text)}"), timeout=PATIENCE)


def n_on_the_map(page):
    return page.evaluate("document.getElementById('map').data.slice(0, 2).map((trace) => trace.x.length)")


def test_it_draws_hovers_filters_and_runs_nothing_of_strangers(show, hostile):
    path, detector, rows, ids = hostile
    page = show(path)
    assert page.title() == HOSTILE[1]
    for plot in ("scores", "p_values", "drift", "quadrics", "map"):
        assert page.locator(f"#{plot} .main-svg").count() > 0, plot
    assert "WebGL is not supported" not in page.inner_text("main")
    assert not page.locator(
        "[data-title*=Share], .plotly-cloud-dialog-box"
    ).count()  # plotly.js would send charts to its makers
    counted(page, "300 of 300 rows")
    n_above = int((detector.decision_function(rows) > detector.threshold_).sum())
    assert n_on_the_map(page) == [300 - n_above, n_above]
    page.locator("#map").scroll_into_view_if_needed()
    x, y = page.evaluate("""() => {
        const map = document.getElementById("map"), { xaxis, yaxis } = map._fullLayout, box = map.getBoundingClientRect();
        const trace = map.data[1], last = trace.x.length - 1;
        return [box.x + xaxis._offset + xaxis.d2p(trace.x[last]), box.y + yaxis._offset + yaxis.d2p(trace.y[last])];
    }""")
    page.mouse.move(x - 30, y + 30)
    page.mouse.move(x, y)
    hover = page.locator("#map .hovertext").first
    hover.wait_for()
    assert hover.text_content().startswith(f"row 0{ids[0]}score ")
    page.evaluate("Plotly.relayout('map', { dragmode: 'select' })")
    page.mouse.move(x - 20, y - 20)
    page.mouse.down()
    page.mouse.move(x + 20, y + 20, steps=5)
    page.mouse.up()
    counted(page, "1 of 300 rows")
    page.fill("[name=text]", "IMG SRC=x")
    n_found = sum("img src=x" in one for one in ids)
    counted(page, f"{n_found} of 300 rows")
    assert sum(n_on_the_map(page)) == n_found
    assert page.locator("#rows tbody tr").count() == n_found
    page.fill("[name=text]", "")
    page.check("[name=above]")
    counted(page, f"{n_above} of 300 rows")
    page.click("#rows tbody button >> nth=0")
    assert page.evaluate("document.getElementById('map').data[2].x.length") == 1
    page.click("button[type=reset]")
    counted(page, "300 of 300 rows")
    page.fill("[name=low]", str(detector.threshold_ + 1e-9))
    counted(page, f"{n_above} of 300 rows")
    page.fill("[name=high]", "0")
    counted(page, "0 of 300 rows")
    assert page.evaluate("[window.hacked, document.querySelectorAll('main img, main a[href], script').length]") == [None, 3]


def test_narrow_and_without_javascript(show, hostile):
    path, *_ = hostile
    page = show(path, NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    page = show(path, NARROW, java_script_enabled=False)
    text = page.inner_text("main")
    assert "The pictures and the table of rows need JavaScript" in text
    assert "rows of 6 features were scored" in text
    assert f"{HOSTILE[0]} = " in text
    assert page.locator("#map").bounding_box()["height"] < 10


def test_it_holds_100_000_rows(show, tmp_path):
    rng = np.random.default_rng(0)
    detector = QuadricDetector(score_function="linear").fit(rng.normal(size=(500, 2)))
    path = tmp_path / "large.html"
    write_report(detector, rng.normal(size=(100_000, 2)), path)
    assert path.stat().st_size < 1e7
    page = show(path)
    counted(page, "100,000 of 100,000 rows; the table lists the 200 with the highest scores")
    assert sum(n_on_the_map(page)) == 100_000
    full = page.locator("#map").screenshot()
    page.fill("[name=text]", "99999")
    counted(page, "1 of 100,000 rows")
    assert len(full) > 2 * len(page.locator("#map").screenshot())  # points were drawn, which compress worse than none
