"""The report of a clustering as a file: whole, escaped, small, and without links."""

import os
import re

import numpy as np
import pytest
from helpers.outcomes import ENDING, HOSTILE, QUOTES, simple, two_groups, written
from scipy import sparse

pytest.importorskip("jinja2")

from volmar.metrics.scores import LabelScore
from volmar.report.cluster_page import write_report
from volmar.report.outcome import Evidence


def test_a_file_is_replaced_only_when_asked_and_appears_whole(tmp_path, monkeypatch):
    path = tmp_path / "new folder" / "report.html"
    write_report(simple(), path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"report\.html exists"):
        write_report(simple(title="Other"), path)
    assert path.read_bytes() == before

    def broken(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", broken)
        with pytest.raises(OSError, match="disk full"):
            write_report(simple(title="Other"), path, force=True)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    write_report(simple(title="Other"), path, force=True)
    assert b"<title>Other</title>" in path.read_bytes()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_report(simple(), tmp_path, force=True)


def test_the_same_outcome_gives_the_same_file(tmp_path):
    one, two = written(simple(), tmp_path).html, written(simple(), tmp_path).html
    assert one == two


def test_what_comes_from_the_data_is_escaped(tmp_path):
    X = two_groups()
    ids = np.array([ENDING] * len(X), dtype=object)
    page = written(
        simple(
            X=X,
            feature_names=[HOSTILE, ENDING, "a & b", "'"],
            ids=ids,
            id_name=ENDING,
            title=QUOTES,
            source=HOSTILE,
            command=f"volmar cluster '{HOSTILE}'",
            notes=[HOSTILE],
            asked={HOSTILE: ENDING},
            parameters={HOSTILE: ENDING},
            method=HOSTILE,
            evidence=[Evidence(HOSTILE, 0.2, ENDING), Evidence("p-value", 0.001, ENDING)],
            quality=[LabelScore(HOSTILE, 1.0, "higher", ENDING)],
            warnings=[HOSTILE],
            seconds={HOSTILE: 1.0},
        ),
        tmp_path,
    )
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert "b" in page.tags  # the page's own: the title's is text
    assert not [a for a in page.attributes if a[1].startswith("on")]
    assert QUOTES in page.words
    assert page.words.count(HOSTILE) >= 6
    assert page.data["id"] == ENDING
    assert {point[4] for point in page.data["points"]} == {ENDING}
    assert "<" not in page.scripts[0]


def test_nothing_in_the_file_points_outside(tmp_path):
    page = written(simple(), tmp_path)
    links = [value for _, name, value in page.attributes if name in ("href", "src", "action")]
    assert links
    assert all(link.startswith("#") for link in links)
    assert "http:" not in page.html
    assert "https:" not in page.html
    assert not re.search(r"url\(|@import", page.html)
    policy = next(value for _, name, value in page.attributes if value and "default-src" in value)
    assert policy.startswith("default-src 'none'")
    assert "script-src 'unsafe-inline'" not in policy


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_million_rows_are_a_small_file(tmp_path, kind):
    n = 1_000_000 if kind == "dense" else 20_000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    X[:, 0] += np.where(X[:, 1] > 0, 4.0, -4.0)
    if kind == "sparse":
        X = sparse.csr_array(sparse.hstack([sparse.csr_array(X), sparse.csr_array((n, 5000))]))
    page = written(simple(X=X, ids=np.full(n, "x" * 500, dtype=object)), tmp_path)
    assert len(page.html) < 1_500_000
    assert len(page.data["points"]) == 3000
    assert f"A random sample of 3,000 of the {n:,} rows is drawn (seed 3)" in page.words
    assert f"The {n:,} rows fall into two clusters" in page.words
