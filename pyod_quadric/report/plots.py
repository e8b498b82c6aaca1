"""The pictures of a report as plotly figures, and the rows of its map and table."""

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyod_quadric.report.findings import TINY, Findings

BLUE, ORANGE, BLACK = "#0072b2", "#d55e00", "#1b1b1b"  # which colour-blind people tell apart
LONG_TAIL = 20  # of scores: the largest, in units of the median
MOST_QUADRICS = 60
REACH = 1  # of the map beyond the middle 98 % of the rows, in their width
# The range of the drawn scores: from this part of the median to this many thresholds, or to the largest score of the fit.
LEAST_SCORE, MOST_SCORE = 1000, 20
OF_ROWS = {"title": {"text": "% of rows"}, "rangemode": "tozero"}


def plots(found: Findings) -> dict[str, Any]:
    """Return traces and layouts of all pictures except the map."""
    here, training, threshold = found.scores, found.detector.decision_scores_, float(found.detector.threshold_)
    both = ((here, f"{len(here):,} rows here", BLUE), (training, f"{len(training):,} rows of the fit", BLACK))
    least, middle = min(float(here.min()), float(training.min()), threshold), float(np.median(training))
    most = max(min(float(here.max()), MOST_SCORE * threshold), float(training.max()), threshold)
    is_wide = least > 0 and most > LONG_TAIL * middle
    least = max(least, middle / LEAST_SCORE) if is_wide else least
    edges = np.geomspace(least, most, 61) if is_wide else np.linspace(least, most, 61)
    edges[0], edges[-1] = least, most  # which rounding may miss
    unit = "a mean distance" if found.detector.score_function == "mean_distance" else "a squared distance"
    axis = {"title": {"text": f"outlier score, {unit}"}, "type": "log" if is_wide else "linear"}
    histograms = [_histogram(values, edges, name, colour) for values, name, colour in both]
    peak = max(max(one["y"]) for one in histograms)
    shares = 100 * np.linspace(0, 1, 401)
    order = np.argsort(-found.quadrics[0], kind="stable")[:MOST_QUADRICS]
    who = (("usual rows", BLUE), (f"the {len(found.top['row'])} top outliers", ORANGE))
    pictures: dict[str, Any] = {
        "scores": {
            "traces": [
                *histograms,
                _line([threshold] * 2, [0, peak], f"threshold {threshold:.4g}", ORANGE, dash="dash"),
            ],
            "layout": {"xaxis": axis, "yaxis": OF_ROWS},
        },
        "p_values": {
            "traces": [
                _histogram(found.p_values, np.linspace(0, 1, 21), both[0][1], BLUE),
                _line([0, 1], [5, 5], "rows like those of the fit", BLACK, dash="dash"),
            ],
            "layout": {"xaxis": {"title": {"text": "p-value"}}, "yaxis": OF_ROWS},
        },
        "drift": {
            "traces": [
                _line(np.quantile(values, shares / 100).clip(least, most), shares, name, colour)
                for values, name, colour in both
            ],
            "layout": {"xaxis": axis, "yaxis": {"title": {"text": "% of rows with at most this score"}}},
        },
    }
    if len(order):
        pictures["quadrics"] = {
            "traces": [
                {
                    "type": "bar",
                    "name": name,
                    "marker": {"color": colour},
                    "y": (100 * shares[order]).tolist(),
                    "text": [f"quadric {number}" for number in order],
                    "textposition": "none",
                    "hovertemplate": "%{text}: %{y:.3g} %",
                }
                for shares, (name, colour) in zip(found.quadrics, who, strict=True)
            ],
            "layout": {
                "xaxis": {"title": {"text": "quadrics, in the order of their shares"}, "showticklabels": False},
                "yaxis": {"title": {"text": "mean share of the score, %"}},
            },
        }
    return pictures


def points_of(found: Findings) -> dict[str, Any]:
    """Return the rows of the map and of the table, as columns."""
    drawn, threshold = found.drawn, float(found.detector.threshold_)
    low, high = (max(float(end), TINY) for end in np.quantile(drawn["score"], [0.01, 0.99]))
    ticks = np.linspace(math.log10(low), math.log10(max(high, 1.01 * low, threshold)), 4)
    (x, across, beyond), (y, along, above) = (_within_reach(drawn[name]) for name in "xy")
    n_beyond = int((beyond | above).sum())
    return {
        **{name: _packed(column, "<f8") for name, column in (("row", drawn["row"]), ("score", drawn["score"]))},
        **{name: _packed(column, "<f4") for name, column in (("p_value", drawn["p_value"]), ("x", x), ("y", y))},
        "threshold": threshold,
        "least": low,
        "axes": found.axes,
        "ranges": [across, along],
        "edge": f"Farther out, and put at the edge of the map: {n_beyond:,}." if n_beyond else "",
        "coloraxis": {
            "cmin": ticks[0],
            "cmax": ticks[-1],
            "colorscale": "Viridis",
            "reversescale": True,
            "colorbar": {"tickvals": ticks.tolist(), "ticktext": [f"{10**tick:.3g}" for tick in ticks]},
        },
    }


def _histogram(values: NDArray[np.float64], edges: NDArray[np.float64], name: str, colour: str) -> dict[str, Any]:
    """Return the outline of a histogram, which bars on a logarithmic axis would not be."""
    counts, _ = np.histogram(values.clip(edges[0], edges[-1]), edges)
    steps = 100 * np.append(counts, counts[-1]) / len(values)
    words = [f"{low:.4g} to {high:.4g}: {count:,} rows" for low, high, count in zip(edges, edges[1:], counts, strict=False)]
    words[0], words[-1] = f"up to {edges[1]:.4g}: {counts[0]:,} rows", f"{edges[-2]:.4g} or more: {counts[-1]:,} rows"
    fill = {"fill": "tozeroy", "fillcolor": f"{colour}44"} if colour == BLUE else {}
    line = _line(edges, steps, name, colour, shape="hv")
    return line | fill | {"text": [*words, words[-1]], "hoverinfo": "text+name"}


def _line(x: Any, y: Any, name: str, colour: str, **style: str) -> dict[str, Any]:
    line = {"color": colour, "width": 2, **style}
    return {"mode": "lines", "name": name, "x": np.asarray(x).tolist(), "y": np.asarray(y).tolist(), "line": line}


def _within_reach(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[float], NDArray[np.bool_]]:
    """Return coordinates (n,) with those far out put at the edge, the range that shows all, and which were far out."""
    low, high = np.quantile(values, [0.01, 0.99])
    width = max(float(high - low), TINY)
    least, most = max(float(values.min()), low - REACH * width), min(float(values.max()), high + REACH * width)
    margin = 0.05 * max(most - least, TINY)
    return values.clip(least, most), [least - margin, most + margin], (values < least) | (values > most)


def _packed(column: NDArray[Any], dtype: str) -> str:
    """Return the bytes of a column as text."""
    with np.errstate(over="ignore"):  # what float32 cannot hold is not drawn
        return base64.b64encode(column.astype(dtype).tobytes()).decode()
