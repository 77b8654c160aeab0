"""Documentation: examples run as printed, and every public name is in the reference."""

import doctest
import importlib
import pkgutil
import re
import sys

import pytest
from helpers import ROOT

import volmar

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(volmar.__path__, "volmar.")
    if module.name != "volmar.__main__"
)
ROOMS = [name for name in MODULES if name.count(".") == 1 and name != "volmar.cli"]
ROOMS = [name for name in ROOMS if not name.split(".")[1].startswith("_")]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(autouse=True)
def without_a_screen(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run_as_printed(name):
    module = importlib.import_module(name)
    failures, _ = doctest.testmod(
        module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    )
    assert failures == 0


def python_snippets():
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        if blocks:
            yield pytest.param(page.name, "\n".join(blocks), id=page.name)


@pytest.mark.parametrize(("page", "code"), list(python_snippets()))
def test_snippets_run_as_printed(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {})


def test_the_readme_has_a_snippet_and_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "```python" in text
    assert "make demo" in text
    assert "make test" in text


@pytest.mark.parametrize("room", ["volmar", *ROOMS])
def test_every_public_name_is_in_the_api_reference(room):
    reference = (ROOT / "docs" / "api.rst").read_text(encoding="utf-8")
    module = importlib.import_module(room)
    section = re.search(
        rf"^\.\. currentmodule:: {re.escape(room)}$(.*?)(?=^\.\. currentmodule|\Z)",
        reference,
        re.DOTALL | re.MULTILINE,
    )
    listed = set(re.findall(r"^   (\w+)$", section.group(1), re.MULTILINE)) if section else set()
    public = {name for name in getattr(module, "__all__", ()) if not name.startswith("__")}
    if room != "volmar":
        public -= set(volmar.__all__)  # estimators are listed under volmar itself
    assert listed == public


@pytest.mark.parametrize("room", ["volmar", *ROOMS])
def test_every_public_name_has_a_docstring(room):
    module = importlib.import_module(room)
    names = [name for name in getattr(module, "__all__", ()) if not name.startswith("__")]
    undocumented = [
        name
        for name in names
        if callable(getattr(module, name)) and not (getattr(module, name).__doc__ or "").strip()
    ]
    assert not undocumented


def test_every_page_stands_in_one_section():
    """The header and the sidebars show sections; a page outside of them has an empty sidebar."""

    def entries(page):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        blocks = re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL)
        lines = "\n".join(blocks).splitlines()
        return [line for line in lines if line and not line.startswith(":")]

    sections = entries("index")
    assert sections == [
        *("quick_start", "guide", "methods", "papers"),
        *("auto_examples/index", "api", "contributing", "design"),
    ]
    pages = [name for name in sections if (ROOT / "docs" / f"{name}.md").exists()]
    listed = ["index", *pages]
    listed += [name for page in ("guide", "methods", "papers") for name in entries(page)]
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


def test_every_section_of_the_reference_has_a_caption_in_the_sidebar():
    reference = (ROOT / "docs" / "api.rst").read_text(encoding="utf-8")
    sections = re.split(r"^(.+)\n[-~]{3,}$", reference, flags=re.MULTILINE)[1:]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        if ":toctree:" in body:
            found = re.findall(r"^   :caption: (.+)$", body, re.MULTILINE)
            assert found == [title], f"the first autosummary of {title!r} needs a :caption:"
