"""Pictures as files, and the report's sections on numbers of clusters and silhouettes."""

import dataclasses
import re
import struct
import sys

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

import pandas as pd

from volmar import MSPC, AutoClusterer
from volmar.datasets import make_blobs
from volmar.diagnostics import compare_numbers
from volmar.evidence import label_test
from volmar.report import Outcome, save_pictures
from volmar.report.cluster_page import write_report
from volmar.report.sections import numbers_side_by_side, silhouette_blocks

EVERY = ["clusters", "scores", "tree", "silhouettes", "columns", "effects", "borders", "numbers"]


@pytest.fixture(scope="module")
def outcome():
    X, _ = make_blobs(240, centers=3, random_state=0)
    model = AutoClusterer(random_state=0).fit(X)
    frame = pd.DataFrame(X, columns=["width $", "<b>height</b>"]).assign(
        town=np.array(["Rome", "Oslo", "Lima"])[model.labels_]
    )
    return Outcome(
        title="Blobs",
        command="volmar cluster blobs.csv",
        asked={},
        source="blobs.csv",
        n_rows=240,
        n_columns=3,
        notes=[],
        method="MSPC",
        parameters={},
        seed=0,
        X=X,
        feature_names=["width $", "<b>height</b>"],
        ids=np.arange(240),
        id_name="row",
        labels=model.labels_,
        scores=model.decision_function(X),
        model=model,
        n_found=3,
        evidence=[],
        quality=[],
        warnings=[],
        seconds={},
        columns=frame,
        used=[True, True, False],
        numbers=compare_numbers(X, MSPC(), [2, 3, 4], random_state=0),
        joins=label_test(X, model.labels_, random_state=0),
    )


def one_cluster(outcome):
    return dataclasses.replace(
        outcome,
        labels=np.zeros(240, dtype=int),
        scores=np.zeros(240),
        model=None,
        n_found=1,
        joins=None,
        numbers=None,
    )


# ------------------------------------------------------------------------------ files


def test_every_picture_in_both_formats(outcome, tmp_path):
    folder = tmp_path / "new" / "pictures"
    written = save_pictures(folder, outcome)
    assert [path.name for path in written] == [
        f"{name}.{suffix}" for name in EVERY for suffix in ("png", "svg")
    ]
    assert sorted(folder.iterdir()) == sorted(written)
    for path in written:
        data = path.read_bytes()
        if path.suffix == ".png":
            assert data.startswith(b"\x89PNG\r\n")
            assert data.rstrip().endswith(b"IEND\xaeB`\x82")
        else:
            assert data.rstrip().endswith(b"</svg>")
        assert 2000 < len(data) < 1_000_000


def test_the_same_run_gives_the_same_bytes(outcome, tmp_path):
    one, two = (
        save_pictures(tmp_path / name, outcome, formats=["svg"]) for name in ("one", "two")
    )
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name


def test_existing_files_are_kept(outcome, tmp_path):
    kept = tmp_path / "numbers.png"
    kept.write_text("mine")
    with pytest.raises(FileExistsError, match=r"numbers\.png exists.*force"):
        save_pictures(tmp_path, outcome)
    assert [path.name for path in tmp_path.iterdir()] == ["numbers.png"]
    assert kept.read_text() == "mine"
    save_pictures(tmp_path, outcome, formats="png", force=True)
    assert kept.read_bytes().startswith(b"\x89PNG")


def test_one_cluster_has_two_pictures(outcome, tmp_path):
    written = save_pictures(tmp_path, one_cluster(outcome), formats=["png"])
    assert [path.stem for path in written] == ["clusters", "columns"]


def test_labels_that_are_words_and_scores_that_say_nothing(outcome, tmp_path):
    named = dataclasses.replace(
        outcome,
        labels=np.array(["a", "b", "c"])[outcome.labels],
        scores=np.zeros(240),
        model=None,
        columns=None,
        used=None,
        joins=None,
    )
    written = save_pictures(tmp_path, named, formats=["png"])
    assert [path.stem for path in written] == [
        "clusters",
        "silhouettes",
        "columns",
        "effects",
        "numbers",
    ]


def test_many_clusters_of_sparse_rows(tmp_path):
    X, _ = make_blobs(600, centers=60, n_features=5, random_state=0)
    model = MSPC(60, random_state=0, min_cluster_size=2).fit(X)
    many = Outcome(
        X=sparse.csr_array(X), labels=model.labels_, scores=model.decision_function(X), model=model
    )
    for path in save_pictures(tmp_path, many, formats=["png"]):
        with path.open("rb") as file:
            width, height = struct.unpack(">II", file.read(24)[16:])
        assert max(width, height) <= 8001


@pytest.mark.parametrize(
    ("formats", "message"),
    [(["gif"], "formats must be .*'gif'"), ([], "formats is empty"), (["png", "exe"], "'exe'")],
)
def test_formats_are_checked(outcome, tmp_path, formats, message):
    with pytest.raises(ValueError, match=message):
        save_pictures(tmp_path, outcome, formats=formats)
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder_and_matplotlib_is_asked_for(outcome, tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        save_pictures(path, outcome)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'volmar\[plot\]'"):
        save_pictures(tmp_path / "new", outcome)
    assert not (tmp_path / "new").exists()


# ------------------------------------------------------------------------------ the page


def page_of(outcome, tmp_path):
    path = tmp_path / "page.html"
    write_report(outcome, path)
    return path.read_text(encoding="utf-8")


def section(page, name):
    match = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    return "" if match is None else match.group()


def test_the_page_has_columns_silhouettes_and_numbers(outcome, tmp_path):
    page = page_of(outcome, tmp_path)
    columns = section(page, "columns")
    assert "Used for clustering" in columns
    assert "Not used for clustering" in columns
    assert "&lt;b&gt;height&lt;/b&gt;" in columns
    assert "<b>height" not in page
    assert columns.count("<path class=") >= 2 * 3
    assert "Oslo" in columns
    silhouette = section(page, "silhouette")
    assert silhouette.count('class="block"') == 4
    numbers = section(page, "numbers")
    assert numbers.count("<tr") == 4
    assert "clusters, all of them are separated on held-out rows" in numbers
    assert "shown</span>" in numbers
    names = re.findall(r'aria-pressed="true" title="([^"]+)"', page)
    assert len(set(names)) == 3
    assert len(page) < 500_000
    for inside in (columns, silhouette, numbers):
        assert "nan" not in re.sub(r"<[^>]*>", " ", inside).lower().split()


def test_the_page_of_one_cluster_still_has_its_columns(outcome, tmp_path):
    page = page_of(one_cluster(outcome), tmp_path)
    assert "All rows" in section(page, "columns")
    assert not section(page, "silhouette")
    assert not section(page, "numbers")


def test_bands_leave_and_arrive_where_the_blocks_are(outcome):
    view = numbers_side_by_side(outcome)
    lefts = {block["x"] for block in view["blocks"]}
    assert len(lefts) == 3
    assert sum(row["is_shown"] for row in view["rows"]) == 1
    for flow in view["flows"]:
        start = float(flow["path"][1:].split()[0])
        assert any(abs(start - left - 14) < 0.2 for left in lefts)
    assert view["rows"][1]["sizes"] == "80, 80, 80"


def test_silhouettes_of_many_rows_are_few_bars(outcome):
    view = silhouette_blocks(outcome)
    assert [block["cluster"] for block in view["blocks"]] == [0, 1, 2]
    assert all(block["path"].count("H") <= 130 for block in view["blocks"])
    everyone = dataclasses.replace(
        outcome, labels=np.arange(240), n_found=240, joins=None, numbers=None
    )
    assert silhouette_blocks(everyone) is None
