"""From findings to one self-contained HTML file: no network, no server, no second file.

Names and ids are untrusted input. They are escaped, and the page's Content-Security-Policy allows only two scripts, by their
hashes.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from pyod_quadric._version import __version__
from pyod_quadric.data.columns import printable
from pyod_quadric.data.sources import Block
from pyod_quadric.detector import QuadricDetector
from pyod_quadric.model.blocks import BATCH_ROWS
from pyod_quadric.report.findings import TINY, Findings, calibration, findings
from pyod_quadric.report.plots import MOST_QUADRICS, plots, points_of
from pyod_quadric.storage.atomic import write_atomically

MOST_FEATURES, MOST_TEXT = 5, 100  # of a row, and signs of a name or an id
QUADRICS = """<figure><div class="plot" id="quadrics" role="img" aria-label="Mean share of each quadric in the score"></div>
<figcaption>{} of {} quadrics, by what they add to usual rows.</figcaption></figure>"""
FEW_ROWS = 50  # too few to see drift
DRIFT_LEVEL = 0.01


def write_report(
    detector: QuadricDetector,
    X: ArrayLike,
    path: str | PathLike[str],
    *,
    ids: Sequence[object] | None = None,
    groups: ArrayLike | None = None,
    title: str = "Outlier report",
    top: int = 20,
    points: int = 100_000,
) -> None:
    """Write a page about rows: scores, a map, the top outliers, what the score is made of, calibration, drift.

    Needs plotly (the extra ``report``) and no network. Equal rows give equal bytes.

    Parameters
    ----------
    detector : QuadricDetector
        A fitted detector.
    X : array-like of shape (n, d)
        Anything that ``detector.decision_function`` takes.
    path : path
        The file to write. An existing file is replaced.
    ids : sequence of shape (n,), optional
        A name for each row.
    groups : array-like of shape (n,), optional
        The group of each row, which the drift test needs if the fit has groups.
    title : str
    top : int, default=20
        The number of outliers to explain.
    points : int, default=100000
        The largest number of rows to draw: rows above the threshold with the highest scores, up to half of this number, and a
        random sample of the others.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from pyod_quadric import QuadricDetector
    >>> rows = np.random.default_rng(0).normal(size=(300, 3))
    >>> detector = QuadricDetector().fit(rows)
    >>> with TemporaryDirectory() as folder:
    ...     write_report(detector, rows, f"{folder}/report.html")
    """
    library()  # raises, before any work is done, if it is missing
    rows = detector._checked(X)
    names = None if rows.names is None else list(rows.names)
    known = None if ids is None else np.array([str(one) for one in ids])
    if known is not None and len(known) != rows.n_rows:
        raise ValueError(f"ids must hold one for each of {rows.n_rows} rows, got {len(known)}")

    def blocks() -> Iterator[Block]:
        start = 0
        for part in rows.blocks(BATCH_ROWS):
            places = np.arange(start, start + len(part))
            yield Block(places, part.cpu().numpy(), np.ones(len(part), bool), None if known is None else known[places])
            start += len(part)

    found = findings(
        detector, blocks(), names=names, groups=None if groups is None else lambda _: groups, top=top, points=points
    )
    write_atomically(Path(path), [page(found, title)])


def library() -> str:
    """Return the text of plotly.js."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("reports need plotly: pip install 'pyod-quadric[report]'") from error
    return str(get_plotlyjs())


def page(found: Findings, title: str, id_name: str = "id") -> bytes:
    """Return the page."""
    room = files("pyod_quadric.report")
    scripts = {"library": library(), "script": room.joinpath("page.js").read_text("utf-8")}
    known = [_short(one) for one in found.drawn["id"].tolist()] if "id" in found.drawn else None
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts.values()
    )
    # plotly.js draws many points by functions that it makes of its own texts, which is its "unsafe-eval".
    policy = (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:;"
        " form-action 'none'; base-uri 'none'"
    )
    data = {"plots": plots(found), "rows": points_of(found) | {"id_name": _short(id_name), "ids": known}}
    # As JSON, and without signs that could end the script element.
    written = re.sub("[<>&]", lambda sign: f"\\u{ord(sign[0]):04x}", json.dumps(data, allow_nan=False))
    texts = _texts(found, id_name) | {"title": _safe(title), "policy": policy, "data": written, **scripts}
    template = room.joinpath("page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda name: texts[name[1]], template).encode()


def _texts(found: Findings, id_name: str) -> dict[str, str]:
    """Return what can be read without JavaScript, as HTML."""
    detector, n, m = found.detector, len(found.scores), found.quadrics.shape[1]
    threshold, training = float(detector.threshold_), detector.decision_scores_
    n_above, n_drawn = int((found.scores > threshold).sum()), len(found.drawn["row"])
    judged = "each scored by a model that had not seen it" if detector.n_folds is not None else "scored by the model itself"
    summary = (
        f"<p>{n:,} rows of {int(detector.n_features_in_)} features were scored by a detector that was fitted to"
        f" {len(training):,} rows. <strong>{n_above:,} rows ({n_above / n:.2%}) are above the threshold"
        f" {threshold:.5g}</strong>; of the rows of the fit, {judged}, {np.mean(training > threshold):.2%} are.</p>"
    )
    if found.n_dropped:
        summary += f"<p>{found.n_dropped:,} further rows hold NaN or infinite entries and were left out.</p>"
    drawn = f"All {n:,} rows are drawn and listed."
    if n_drawn < n:
        most = n_drawn // 2
        certain = f"all {n_above:,} above the threshold" if n_above <= most else f"the {most:,} with the highest scores"
        drawn = f"{n_drawn:,} of the {n:,} rows are drawn and listed: {certain}, and a random sample of the others."
    held_out = f"The {len(training):,} rows of the fit were {judged}."
    if detector.groups_ is not None:
        held_out += " They came in groups, so that the range of the fourth column is too narrow if groups are few."
    cutoffs = [
        [f"{rate:.1%}", f"{cutoff:.5g}", f"{k:,}", f"{low:.2%} to {high:.2%}", f"{np.mean(found.scores > cutoff):.2%}"]
        for rate, cutoff, k, low, high in calibration(training)
    ]
    header = ["rate", "score above", "held-out rows as high", "new rows like them, in 9 of 10 fits", "rows here"]
    parts = [[name, f"{usual:.1%}", f"{most:.1%}"] for name, (usual, most) in found.parts.items()]
    return {
        "summary": summary + f"<p>{_drift_words(found)}</p>",
        "drawn": f"{drawn} On the map drag a box to come nearer, and click twice to go back; its lasso lists the rows inside.",
        "or_id": " or id" if "id" in found.drawn else "",
        "top": _top(found, id_name),
        "parts": _table("Mean share in the score", ["part", "usual rows", f"the {len(found.top['row'])} top outliers"], parts),
        "quadrics": QUADRICS.format(min(m, MOST_QUADRICS), m) if m else "<p>No quadric has a say.</p>",
        "held_out": held_out,
        "calibration": _table("Scores for false positive rates, and the shares of rows above them", header, cutoffs),
        "drift": _drift_words(found),
        "version": __version__,
    }


def _drift_words(found: Findings) -> str:
    if found.drift is None:
        return "The fit has groups and these rows were given without, so that drift was not tested."
    differ = "The rows as a whole differ"
    if found.drift.pvalue >= DRIFT_LEVEL:
        differ = "There is no sign that the rows as a whole differ"
    few = f" {len(found.scores)} rows are few for this test." if len(found.scores) < FEW_ROWS else ""
    figures = f"Kolmogorov–Smirnov statistic {found.drift.statistic:.3f}, p-value {found.drift.pvalue:.2g}"
    return f"{differ} from those of the fit ({figures}).{few}"


def _top(found: Findings, id_name: str) -> str:
    """Return the table of the top outliers, in which features are shaded by their shares."""
    top, lines = found.top, []
    names = getattr(found.detector, "feature_names_in_", [f"feature {j}" for j in range(top["rows"].shape[1])])
    for i, row in enumerate(top["row"]):
        added, chips = top["contributions"][i] / max(float(top["score"][i]), TINY), ""
        for j in np.argsort(-added, kind="stable")[:MOST_FEATURES]:
            shade = f"background:linear-gradient(90deg,#bfdcee {added[j]:.0%},#fff {added[j]:.0%})"
            chips += f'<span class="chip" style="{shade}">{_safe(names[j])} = {top["rows"][i, j]:.4g}: {added[j]:.0%}</span>'
        ids = [_safe(top["id"][i])] if "id" in top else []
        lines.append([str(row), *ids, f"{top['score'][i]:.5g}", f"{top['p_value'][i]:.2g}", chips])
    known = [_safe(id_name)] if "id" in top else []
    header = ["row", *known, "score", "p-value", "features that add most: value, share of score"]
    return _table(f"The {len(lines)} rows with the highest scores", header, lines)


def _table(caption: str, header: list[str], lines: list[list[str]]) -> str:
    """Return a table of cells that are HTML."""
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    cells = ("".join(f'<td data-name="{name}">{cell}</td>' for name, cell in zip(header, line, strict=True)) for line in lines)
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _safe(text: object) -> str:
    """Return a text of a stranger as HTML."""
    return html.escape(_short(text))


def _short(text: object) -> str:
    """Return a text of a stranger in one line that is not too long."""
    shown = printable(str(text))
    return shown if len(shown) <= MOST_TEXT else f"{shown[: MOST_TEXT - 1]}…"
