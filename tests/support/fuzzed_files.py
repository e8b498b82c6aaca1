"""Files of rows as nobody writes them: sound ones of odd values, and what damage makes of them."""

import io
import json
import warnings
import zipfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from pyod_quadric.storage.container import with_checksum


@dataclass
class File:
    """The content of a file, what its name ends with, and what is chosen from it."""

    suffix: str
    content: bytes
    choice: dict[str, Any] = field(default_factory=dict)


@st.composite
def damaged(draw, contents, sums=False):
    """Change some bytes of a content, cut it off, take some out or put some in; with a checksum of models, if asked for."""
    content = bytearray(draw(contents))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(content)))
        kind = draw(st.sampled_from(["byte", "bit", "cut", "out", "in", "twice", "zeros"]))
        length = draw(st.sampled_from([1, 2, 3, 8, 100]))
        if kind == "byte":
            content[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
        elif kind == "bit" and place < len(content):
            content[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del content[place:]
        elif kind == "out":
            del content[place : place + length]
        elif kind == "in":
            content[place:place] = draw(st.binary(max_size=length))
        elif kind == "twice":
            content[place:place] = content[place : place + length]
        else:
            content[place : place + length] = bytes(len(content[place : place + length]))
    if not sums:
        return bytes(content)
    try:
        return with_checksum(bytes(content))
    except ValueError:
        return bytes(content)


NAMES = st.sampled_from(["a", "b", "c", "d", "", " ", "é", "a b", "\u202e", "x" * 300, "1", "index", "__index_level_0__", "\0"])
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "columns": st.none() | st.lists(NAMES, max_size=2),
        "drop": st.lists(NAMES, max_size=1).map(tuple),
        "label_column": st.none() | NAMES,
        "id_column": st.none() | NAMES,
        "list_column": st.none() | NAMES,
        "header": st.booleans(),
    },
)
PLAIN = st.sampled_from([{}, {}, {"label_column": "b"}, {"id_column": "c"}, {"drop": ("a",)}]) | CHOICES

# Text

NUMBERS = st.one_of(st.integers(-5, 5).map(str), st.floats(allow_nan=False, width=32).map(repr))
ODD = st.sampled_from(
    [
        *("", "nan", "NaN", "NA", "null", "inf", "-inf", "Infinity", "1e999", "-1e999", "1e-999", "0x10", "1_000", "1.000,5"),
        *("+1", ".5", "5.", "1e5", "\u0663", "\xbd", "\u22121", "1 ", "\t1", "true", "False", "2026-01-01", "12:30"),
        *("2026-01-01T00:00:00Z", "9223372036854775808", "18446744073709551616", "1e400", "'1'", '"1"', '"1', '""', 'a"b'),
        *("#", "\\", "\\n", "\x00", "\r", "\ufeff", "\x1b[2J", "-", "--", "=1+1", "{}", "[]", "1;2", "1\t2"),
    ]
)
ENDS = st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n", " \n", ",\n", "\0\n"])


@st.composite
def delimited(draw):
    """Draw the text of a table: mostly as wide as its first line, mostly of numbers."""
    sign = draw(st.sampled_from([",", ",", ",", "\t", ";", " ", "|"]))
    width = draw(st.integers(0, 4))
    names = list("abcd")[:width] if draw(st.booleans()) else draw(st.lists(NAMES | NUMBERS | ODD, max_size=4))
    cells = draw(st.sampled_from([NUMBERS, NUMBERS, st.one_of(NUMBERS, ODD)]))
    rows = draw(st.lists(st.lists(cells, min_size=len(names), max_size=len(names)), max_size=6))
    if draw(st.integers(0, 4)) == 0:
        rows.insert(draw(st.integers(0, len(rows))), draw(st.lists(NUMBERS | ODD, max_size=6)))
    end = draw(ENDS)
    text = "".join(sign.join(line) + end for line in [names, *rows])
    encoding = draw(st.sampled_from(["utf-8"] * 5 + ["utf-8-sig", "utf-16", "latin-1"]))
    return text.encode(encoding, "replace")


def texts(contents, suffixes):
    return st.builds(File, st.sampled_from(suffixes), contents | damaged(contents), PLAIN)


VALUES = st.recursive(
    st.one_of(
        st.integers(-5, 5),
        st.floats(allow_nan=True, allow_infinity=True),
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.sampled_from(["", "x", "2026-01-01", "2026-01-01T00:00:00Z", "1", "\ud800", "\0", "nan"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def json_lines(draw):
    """Draw lines of JSON objects: mostly with the same names and numbers, or one list of numbers each."""
    usual = draw(st.sampled_from([st.floats(-5, 5), st.lists(st.floats(-5, 5), min_size=2, max_size=2), VALUES]))
    width = draw(st.integers(0, 3))
    lines = []
    for _ in range(draw(st.integers(0, 6))):
        values = usual if draw(st.integers(0, 5)) else VALUES
        row = {name: draw(values) for name in "abc"[:width]}
        if draw(st.integers(0, 5)) == 0:
            row = draw(st.dictionaries(NAMES, VALUES, max_size=3) | VALUES)
        lines.append(json.dumps(row, ensure_ascii=draw(st.booleans())))
        if draw(st.integers(0, 9)) == 0:
            lines[-1] += lines[-1]
    text = "".join(line + draw(ENDS) for line in lines)
    return text.encode(draw(st.sampled_from(["utf-8"] * 5 + ["utf-8-sig", "utf-16"])), "replace")


# Tables

TYPES = [
    *(pa.float64(), pa.float32(), pa.float16(), pa.int64(), pa.int8(), pa.uint64(), pa.bool_(), pa.null(), pa.string()),
    *(
        pa.large_string(),
        pa.binary(),
        pa.binary(2),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("ns", "UTC"),
        pa.time64("us"),
    ),
    *(pa.duration("s"), pa.decimal128(9, 2), pa.decimal256(50, 3), pa.dictionary(pa.int8(), pa.string())),
    *(pa.dictionary(pa.int32(), pa.float64()), pa.list_(pa.float64()), pa.list_(pa.float32(), 2), pa.large_list(pa.int8())),
    *(pa.list_(pa.list_(pa.float64())), pa.list_(pa.string()), pa.struct([("x", pa.float64())]), pa.list_(pa.bool_())),
    *(pa.map_(pa.string(), pa.float64()), pa.list_(pa.null()), pa.list_(pa.float16()), pa.list_(pa.float64(), 0)),
]


def value_of(draw, kind):
    """Draw something for a column of a type; what does not fit there becomes missing."""
    if draw(st.integers(0, 8)) == 0:
        return None
    number = draw(st.integers(-3, 3) | st.floats(width=16))
    width = 2 if draw(st.integers(0, 6)) else draw(st.integers(0, 3))
    whole = int(number) if abs(number) < 9 else 0
    for value in (
        number,
        [number] * width,
        [[number]],
        {"x": number},
        [("k", number)],
        str(number),
        b"xy",
        whole,
        bool(number),
    ):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
        return value
    return None


@st.composite
def parquet(draw):
    """Draw a table of any types, stored in any way."""
    usual = draw(st.sampled_from([[pa.float64()], [pa.list_(pa.float32())], TYPES]))
    names = list("abcd")[: draw(st.integers(1, 3))] if draw(st.booleans()) else draw(st.lists(NAMES, max_size=3))
    n_rows = draw(st.integers(0, 6))
    columns = []
    for _ in names:
        kind = draw(st.sampled_from(usual if draw(st.integers(0, 3)) else TYPES))
        values = [value_of(draw, kind) for _ in range(n_rows)]
        try:
            columns.append(pa.array(values, kind))
        except (pa.ArrowException, ValueError):  # one by one they would do
            columns.append(pa.nulls(n_rows, kind))
    table = pa.Table.from_arrays(columns, names=names)
    if draw(st.integers(0, 3)) == 0:
        notes = draw(st.sampled_from(['{"index_columns": ["a"]}', "{", "[]"]))
        table = table.replace_schema_metadata({"pandas": notes})
    buffer = io.BytesIO()
    compression = draw(st.sampled_from(["NONE", "snappy", "zstd", "gzip"]))
    options = {"row_group_size": draw(st.integers(1, 4)), "use_dictionary": draw(st.booleans()), "compression": compression}
    try:
        pq.write_table(table, buffer, data_page_version=draw(st.sampled_from(["1.0", "2.0"])), **options)
    except (pa.ArrowException, ValueError):  # what has no place in this format
        return b"PAR1"
    return buffer.getvalue()


# Arrays

DTYPES = [
    "<f8",
    ">f8",
    "<f4",
    "<f2",
    "<f16",
    "<i4",
    ">i8",
    "<u8",
    "|b1",
    "<c16",
    "<U3",
    "|S2",
    "<M8[s]",
    "<m8[us]",
    "|V3",
    "|O",
]
SHAPES = st.sampled_from([(5, 2)] * 5 + [(0, 2), (5, 0), (5,), (), (2, 2, 2), (1, 2), (2, 5), (3, 1)])


@st.composite
def one_array(draw):
    """Draw an array of any type, shape and order."""
    shape, dtype = draw(SHAPES), np.dtype(draw(st.sampled_from(DTYPES + ["<f8"] * 8)))
    numbers = np.random.default_rng(draw(st.integers(0, 9))).normal(size=shape)
    with np.errstate(all="ignore"):
        numbers = np.asarray(numbers * draw(st.sampled_from([1, 100, 1e-300, 1e300])))
        found = np.zeros(shape, dtype) if dtype.kind in "OVMm" else numbers.astype(dtype)
    if found.dtype.kind in "fc" and found.size and draw(st.integers(0, 3)) == 0:
        found.flat[0] = draw(st.sampled_from([np.nan, np.inf, -0.0, 1e308]))
    if draw(st.integers(0, 9)) == 0 and found.size:
        found = np.zeros(found.shape, [("a", "<f8"), ("b", "<i4")])
    return np.asarray(found, order=draw(st.sampled_from("CF")))


WORDS = st.sampled_from([b"5", b"2", b"(", b"'", b"f8", b"True", b"False", b",", b"shape", b"9" * 20, b"-1"])
MEMBERS = st.sampled_from(["X.npy", "y.npy", "a.npy", "b.npy", "c.npy", "X", "../a.npy", "folder/"])


@st.composite
def npy(draw):
    """Draw a ``.npy`` file, of any version."""
    buffer = io.BytesIO()
    version = draw(st.sampled_from([None, (1, 0), (2, 0), (3, 0)]))
    np.lib.format.write_array(buffer, draw(one_array()), version, allow_pickle=True)
    content = buffer.getvalue()
    if draw(st.integers(0, 2)) == 0:  # what a header says, in its words
        for old, new in draw(st.lists(st.tuples(WORDS, WORDS), max_size=2)):
            content = content.replace(old, new, 1)
    return content


@st.composite
def npz(draw):
    """Draw an archive of some of them, with any names."""
    buffer = io.BytesIO()
    packed = draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(buffer, "w", packed) as archive:  # as of two of one name
        for name in draw(st.lists(MEMBERS, max_size=3)):
            archive.writestr(name, draw(npy() | st.binary(max_size=9)))
    return buffer.getvalue()


KINDS = {
    "csv": texts(delimited(), [".csv", ".csv", ".tsv"]),
    "jsonl": texts(json_lines(), [".jsonl", ".ndjson"]),
    "parquet": texts(parquet(), [".parquet"]),
    "npy": st.one_of(
        st.builds(File, st.just(".npy"), npy() | damaged(npy())),
        st.builds(File, st.just(".npz"), npz() | damaged(npz()), PLAIN | st.just({"array": "a"})),
    ),
}
