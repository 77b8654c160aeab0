"""The language of the project: words that the style guide replaces are not used."""

import importlib

import pytest
from helpers import ROOT


@pytest.fixture
def words(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.words")


def test_words_that_the_style_guide_replaces_are_not_used(words):
    assert len(words.files_of(ROOT)) > 500
    found = {word: sorted(set(used)) for word, used in words.places(ROOT, words.NEVER).items()}
    assert {word: used for word, used in found.items() if used} == {}


def test_only_prose_is_counted(words, tmp_path):
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "code.py").write_text('prices = 1  # a price\nraise ValueError("told")\n')
    (folder / "page.html").write_text("<p>A price.</p>")
    (tmp_path / "docs" / "tables").mkdir(parents=True)
    (tmp_path / "docs" / "tables" / "made.md").write_text("price")
    found = words.places(tmp_path, words.NEVER)
    assert found["price (for C or an offset)"] == ["src/code.py", "src/page.html"]
    assert found["told"] == ["src/code.py"]
