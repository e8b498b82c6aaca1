"""The documentation is complete and leads somewhere: public names, tables of contents, links, pictures, examples."""

import ast
import builtins
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

import pyod_quadric

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.relative_to(DOCS).parts[0] != "_build"]
READERS_OWN = {"table", "rows", "embeddings", "detector"}  # that code on a page may use without making them
GUIDES = [page for page in PAGES if page.parent.name != "proposals"]  # which has parts of code of others
FENCED = re.compile(r"^(`{3,}).*?^\1$", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page):
    return page.relative_to(ROOT).with_suffix("").as_posix()


def headings(page):
    """Return the anchors that a page's headings have."""
    titles = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def documented():
    """Return how often each object is described in the reference, by its full name."""
    text = "\n".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    return Counter(re.findall(r"^\.\. auto(?:class|function):: (\S+)$", text, flags=re.MULTILINE))


def test_each_public_name_is_in_the_reference_once():
    found = documented()
    assert {name: found[f"pyod_quadric.{name}"] for name in pyod_quadric.__all__} == dict.fromkeys(pyod_quadric.__all__, 1)


def test_each_plot_is_in_the_reference_once():
    plotting = pytest.importorskip("pyod_quadric.plotting")
    plots = [name for name, _ in inspect.getmembers(plotting, inspect.isfunction) if name.startswith("plot_")]
    found = documented()
    assert {name: found[f"pyod_quadric.plotting.{name}"] for name in plots} == dict.fromkeys(plots, 1)


def test_each_page_is_in_one_table_of_contents():
    entries = Counter()
    for page in PAGES:
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE):
            names = [line.strip() for line in tree.splitlines() if line.strip() and not line.startswith(":")]
            entries.update((page.parent / f"{name}.md").resolve() for name in names)
    assert entries == Counter(page.resolve() for page in PAGES if page != DOCS / "index.md")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_links_and_pictures_lead_somewhere(page):
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in headings(target), link


def names_in(code):
    """Return the names that code makes, and those that it uses."""
    made, used = set(dir(builtins)), set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.alias):
            made.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
    return made, used


@pytest.mark.parametrize("page", [*GUIDES, ROOT / "README.md"], ids=name_of)
def test_code_that_is_not_run_uses_what_the_page_has_made(page):
    made_before = set(READERS_OWN)
    for kind, code in re.findall(r"^```(py|python)\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE):
        made, used = names_in(code)
        made_before |= made
        assert kind == "python" or used <= made_before, (code, used - made_before)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_included_code_is_there(page):
    for script, name in re.findall(
        r"^```\{literalinclude\} (\S+)\n.*?^:pyobject: (\w+)$", page.read_text(), flags=re.DOTALL | re.MULTILINE
    ):
        assert re.search(rf"^(def|class) {name}\b", (page.parent / script).read_text(), flags=re.MULTILINE), (script, name)


def test_the_gallery_has_every_example():
    gallery = (DOCS / "gallery.md").read_text()
    for script in (ROOT / "examples").glob("*.py"):
        if not script.name.startswith(("_", "test_", "conftest")):
            assert f"(../examples/{script.name})" in gallery, script.name
            assert f"python -m examples.{script.stem}" in gallery, script.name
