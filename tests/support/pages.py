"""Pages of reports, taken apart as a browser does it."""

import json
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas

from pyod_quadric import QuadricDetector
from pyod_quadric.report import write_report

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 2</script>",
    "<img src=x onerror='window.hacked = 3'>",
    "&lt;b&gt; <b>bold</b> \"quoted\" 'so'",
    "a\u2028b\u202ec\x1b[2J\x07",
    "{{data}}%{x}<a href='javascript:window.hacked = 4'>",
]


def hostile_report(path, n=300, **options):
    """Write a report of rows whose names, ids and title would like to be more than text; row 0 is the highest outlier."""
    rows = np.random.default_rng(0).normal(size=(n, len(HOSTILE)))
    detector = QuadricDetector(contamination=0.02).fit(pandas.DataFrame(rows, columns=HOSTILE))
    rows[0] = 30
    ids = [f"{HOSTILE[(i + 3) % len(HOSTILE)]} {i}" for i in range(n)]
    frame = pandas.DataFrame(rows, columns=HOSTILE)
    write_report(detector, frame, path, ids=ids, title=HOSTILE[1], **options)
    return detector, frame, ids


class Page(HTMLParser):
    """The elements, the scripts and the text of a page."""

    def __init__(self, content):
        super().__init__()
        self.elements, self.scripts, self.texts, self._open = [], [], [], None
        self.feed(content.decode())
        self.close()

    @classmethod
    def written(cls, write):
        with tempfile.TemporaryDirectory() as folder:
            write(f"{folder}/report.html")
            return cls(Path(f"{folder}/report.html").read_bytes())

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    @property
    def data(self):
        return json.loads(self.scripts[0])

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open != "style":
            self.texts.append(data)
