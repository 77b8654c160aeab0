"""The page of reproduced tables and figures: its contents, as Markdown and in a browser."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("jinja2")

from paper_pages import (
    COMMAND,
    HOSTILE,
    cells,
    curves,
    data,
    everything,
    hostile,
    markdown,
    png,
    points,
    reproduced,
    side,
    table,
    times,
    unprinted,
    written,
)

from reproduction import Line, Side, Summary
from reproduction.page import write_reproduction

# ------------------------------------------------------------------------------ what it says


def test_a_line_with_its_distance_from_the_print():
    text = markdown(table())
    assert cells(text, "moons", "MVC-SL") == [
        *("moons", "MVC-SL", "30.0 ± 0.5", "**30.8 ± 0.4**", "+0.8 (1.3 s.e.)"),
        *("**28.5 ± 0.4**", "−1.5 (2.4 s.e.)", "1.2 / 0.4", "reproduced", "as good as printed"),
    ]
    assert cells(text, "data", "method")[3:] == [
        *("paper's protocol", "difference", "label-free", "difference", "time over KMeans"),
        *("verdict", "label-free verdict"),
    ]
    assert cells(text, "moons", "NSC")[3:7] == ["36.0", "+6.0", "40.0", "+10.0"]
    assert "paired t-test at 5 % does not separate from it" in text
    assert "the tolerance is 2 points, for 75 % of the judged values" in text
    assert r"Splits are h\* of our own." in text
    assert "clustering error in per cent (lower is better)" in text


def test_bold_needs_a_test():
    r = table()
    text = markdown(replace(r, experiment=replace(r.experiment, test="")))
    assert cells(text, "moons", "MVC-SL")[3] == "30.8 ± 0.4"
    assert "t-test" not in text


def test_no_cell_is_empty_and_what_is_missing_has_a_reason(tmp_path):
    text = markdown(*everything())
    rows = [line for line in text.split("\n") if line[:1] == "|"]
    assert len(rows) > 25
    assert not [row for row in rows if re.search(r"\|\s*\||(\bnan\b)|\| - \||\| – \|", row)]
    verdicts = ["not run (1)", "not run"]
    assert cells(text, "moons", "SVM")[2:] == ["30.0 ± 0.5", *["not run"] * 5, *verdicts]
    assert cells(text, "rings", "SVM")[-2:] == verdicts
    assert cells(text, "rings", "GMMC")[3:] == [*["failed"] * 5, "failed (2)", "not run"]
    assert cells(text, "rings", "NSC")[2:] == [
        *("not printed", "20.0 ± 0.4", "not printed", "21.0 ± 0.4", "not printed"),
        *("1.2 / not timed", "not printed", "not printed"),
    ]
    assert "- \\(1) a supervised reference\n- \\(2) MemoryError: data.csv\n" in text
    html = written(everything(), tmp_path).html
    assert not re.search(r"<(td|th)[^>]*>\s*</\1>", html)


def test_statements_in_words(tmp_path):
    text = markdown(unprinted())
    for line in (
        "- MVC-SL is better than NSC: **holds under the paper's protocol and without labels** (21",
        "- It is fast: **holds under the paper's protocol, but not without labels**.",
        "- It is faster still: **holds without labels, but not under the paper's protocol**.",
        "- It never fails: **does not hold** (1 of 4 data sets).",
        "- It is short: **holds under the paper's protocol; not run without labels**.",
        "- It is long: **does not hold without labels; not run under the paper's protocol**.",
        "- Nobody knows: **could not be checked**.",
    ):
        assert line in text
    assert "75 % of the statements have to hold" in text
    page = written([unprinted()], tmp_path)
    assert "does not hold It never fails. 1 of 4 data sets" in page.words


def test_the_verdict_stands_first_and_in_the_overview():
    text = markdown(unprinted(), table())
    assert (
        "### Table 1: what it is about\n\n**Not reproduced under the paper's protocol; worse than "
        "printed without labels.** Because it is so.\n" in text
    )
    assert (
        "\nUnder the papers' own protocol, 1 of 2 tables and figures is reproduced. Without "
        "labels, 0 of 2 are as good as printed or better, 2 worse.\n" in text
    )
    link = "[Table 1: what it is about](#mvc-aistats-2011-table-1)"
    assert cells(text, link) == [
        link,
        "Niu et al., AISTATS 2011",
        "12 / 12 (2 failed)",
        "not reproduced",
        "worse than printed",
    ]
    paper = "Niu, Dai, Shang and Sugiyama, AISTATS 2011 (maximum volume clustering)"
    assert f"\n## {paper}\n" in text
    alone = markdown(table())
    assert "1 of 1 table or figure is reproduced. Without labels, 0 of 1 are" in alone
    # What was not run without labels is not counted there.
    both = markdown(times(), reproduced(label_free="not run"), curves())
    assert (
        "Under the papers' own protocol, 2 of 3 tables and figures are reproduced, 1 incomplete. "
        "Without labels, 1 of 1 is as good as printed or better, 0 worse." in both
    )
    unlabelled = markdown(reproduced(label_free="not run"))
    assert "Without labels" not in unlabelled.split("- **")[0]
    assert "There is nothing to compare" in markdown(data())


def test_times_over_the_print_over_kmeans_and_over_the_papers_own_km():
    text = markdown(times())
    assert cells(text, "data")[2:] == [
        *("paper, s", "paper's protocol, s", "label-free, s", "printed over ours"),
        "time over KMeans",
        *("paper's time over its KM", "verdict"),
    ]
    assert cells(text, "moons", "KM")[2:] == [
        "2",
        "0.5",
        "0.2",
        "4 / 10",
        "1.2 / 1.2",
        "1",
        "faster",
    ]
    assert cells(text, "moons", "CPMMC")[2:] == [
        *("9", "36", "not run", "0.25 / not run", "1.2 / not run", "4.5", "slower")
    ]
    assert cells(text, "moons", "SKMMC")[5] == "printed as 0"
    without = replace(times(), lines=times().lines[1:])
    assert "paper's time over its KM" not in markdown(without)


def test_curves_are_their_ends():
    text = markdown(curves())
    assert cells(text, "data") == [
        *("data", "series", "along", "paper's protocol, first", "paper's protocol, last"),
        *("label-free, first", "label-free, last"),
    ]
    # Places come in any order.
    assert cells(text, "set 0", "NSC")[2:] == ["50 to 500", *["5.0 ± 0.5", "50.0 ± 0.5"] * 2]
    assert "of each curve, along number of rows, mean" in text
    both = markdown(curves(quantities=("value", "seconds")))
    assert cells(both, "set 0", "NSC", "value, %")
    assert cells(both, "set 0", "NSC", "seconds")
    alone = markdown(curves(points=points(columns=("hindsight",))))
    assert "label-free, first" not in alone
    measures = curves(
        view="measures", measures={"loss": "loss_"}, points=points(quantities=("loss",))
    )
    assert cells(markdown(measures), "set 0", "NSC")[3] == "5 ± 0.5"


def test_many_curves_are_ranges_over_data_sets():
    text = markdown(curves(40))
    assert cells(text, "40 data sets", "NSC")[2:4] == ["50 to 500", "5.0 to 44.0"]
    assert "Minimum to maximum over the data sets" in text
    assert text.count("\n|") < 12
    lines = tuple(replace(times().lines[0], dataset=f"set {i}") for i in range(70))
    bars = reproduced("mvc-jmlr-2013-figure-9", view="times", lines=lines)
    assert cells(markdown(bars), "70 data sets", "KM")[2:] == ["0.5 to 0.5", "0.2 to 0.2"]


def test_a_correlation_has_its_groups_and_its_data_sets():
    line = Line(
        "UCI",
        "correlation",
        Summary(72.0, None, 0),
        side(70.0, None, -2.0),
        Side(),
        "reproduced",
        label_free_verdict="not run",
    )
    found = tuple(replace(p, x=None) for p in points(2, quantities=("value",))[::3])
    r = reproduced("mspc-aaai-2015-figure-2", view="correlation", lines=(line,), points=found)
    text = markdown(r)
    assert cells(text, "UCI")[2:] == [
        "72.0",
        "70.0",
        "−2.0",
        "not run",
        "not run",
        "reproduced",
        "not run",
    ]
    assert cells(text, "set 1", "NSC")[2:] == ["51.0 ± 0.5"] * 2


def test_papers_and_tables_are_in_their_order():
    names = ["skmmc-nnw-table-v", "mvc-jmlr-2013-figure-10", "skmmc-nnw-table-ii"]
    names += ["mvc-jmlr-2013-figure-2", "new-table-1", "mvc-jmlr-2013-table-3"]
    text = markdown(*[reproduced(name) for name in names])
    assert re.findall(r"^\((.*)\)=$", text, re.M) == [
        *("mvc-jmlr-2013-table-3", "mvc-jmlr-2013-figure-2", "mvc-jmlr-2013-figure-10"),
        *("skmmc-nnw-table-ii", "skmmc-nnw-table-v", "new-table-1"),
    ]


def test_a_quick_run_says_so(tmp_path):
    given = [replace(table(), quick=True), times()]
    assert "1 of 2 are quick runs" in markdown(*given)
    assert "1 of 2 are quick runs" in written(given, tmp_path).words
    assert "quick run" not in markdown(times())


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="each of them once"):
        markdown(table(), table())
    with pytest.raises(ValueError, match="give one experiment or more"):
        markdown()
    name = table().experiment.name
    with pytest.raises(ValueError, match=r"is absolute\. Give it relative to the page"):
        markdown(table(), pictures={name: tmp_path / "a.png"})
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    with pytest.raises(ValueError, match="is not a PNG file"):
        written([table()], tmp_path, pictures={name: tmp_path / "a.png"})


# ------------------------------------------------------------------------------ the two files


def test_the_same_reproductions_give_the_same_files_without_this_machine(tmp_path):
    one = written(everything(), tmp_path)
    two = written(everything()[::-1], tmp_path)
    assert (one.html, one.markdown) == (two.html, two.markdown)
    for text in (one.html, one.markdown):
        assert str(tmp_path) not in text
        assert "/home/" not in text
        assert "https://example.org/a/b" in text
        assert "—" not in text
        assert COMMAND in text
        assert "numpy 2.1.0, volmar 0.1.0" in text
    assert one.markdown == markdown(*everything())


def test_every_reproduction_has_its_section(tmp_path):
    page = written(everything(), tmp_path)
    ids = [value for _, name, value in page.attributes if name == "id"]
    links = {value for _, name, value in page.attributes if name == "href"}
    assert len(set(ids)) == len(ids)
    assert {link[1:] for link in links} <= set(ids)
    for r in everything():
        assert f"#{r.experiment.name}" in links
        assert f"({r.experiment.name})=\n### " in page.markdown
        assert f"](#{r.experiment.name})" in page.markdown
    folded = replace(table(), lines=20 * table().lines)
    assert "<details open><summary>Table of 6 rows" in page.html
    assert "<details><summary>Table of 120 rows" in written([folded], tmp_path).html


def test_pictures_are_inside_the_page_and_beside_the_markdown(tmp_path):
    name = table().experiment.name
    picture = png(tmp_path / "out" / "a folder" / "p.png")
    page = written(everything(), tmp_path, pictures={name: picture})
    assert "![Table 2: what it is about](a%20folder/p.png)" in page.markdown
    image = {n: value for tag, n, value in page.attributes if tag == "img"}
    assert image["src"].startswith("data:image/png;base64,iVBOR")
    assert (image["width"], image["height"]) == ("40", "20")
    assert image["alt"] == "Table 2: what it is about"


def test_what_comes_from_files_is_escaped(tmp_path):
    page = written([hostile()], tmp_path, command=f"volmar '{HOSTILE}' ```")
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not [a for a in page.attributes if a[1].startswith("on")]
    assert page.words.count("<script>alert(1)</script>") >= 8
    escaped = r"""\<script>alert(1)\</script> \| a & b \&amp; "x" 'y' \$z\$ \*e\* \[l\](u) \`c\`"""
    assert page.markdown.count(escaped) >= 8
    assert "````text\n" in page.markdown
    assert len(cells(page.markdown, escaped, escaped)) == 10


def test_nothing_in_the_page_points_outside(tmp_path):
    picture = png(tmp_path / "p.png")
    shown = [curves(), table(), times()]
    page = written(shown, tmp_path, pictures={shown[0].experiment.name: picture})
    links = [value for _, name, value in page.attributes if name in ("href", "src", "action")]
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert "http:" not in page.html
    assert "https:" not in page.html
    assert not re.search(r"url\(|@import", page.html)
    policy = next(value for _, name, value in page.attributes if value and "default-src" in value)
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "script-src 'sha256-" in policy


def test_files_appear_whole_and_replace_older_ones(tmp_path, monkeypatch):
    before = written([table()], tmp_path).html

    def broken(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", broken)
        with pytest.raises(OSError, match="disk full"):
            written([times()], tmp_path)
    folder = tmp_path / "out"
    assert (folder / "reproduction.html").read_text(encoding="utf-8") == before
    assert sorted(p.name for p in folder.iterdir()) == ["reproduction.html", "reproduction.md"]
    assert written([times()], tmp_path).html != before
    assert written([times()], tmp_path, stem="times-quick").path.name == "times-quick.html"


def test_sphinx_takes_the_markdown_without_a_warning(tmp_path):
    pytest.importorskip("myst_parser")
    name = table().experiment.name
    folder = tmp_path / "docs"
    picture = png(folder / "p.png")
    given = [*everything(), reproduced("mvc-jmlr-2013-table-9", note="1. % (a)= +++ |x| {r}`y`")]
    page, _ = write_reproduction(given, folder, command=COMMAND, pictures={name: picture})
    page.rename(folder / "index.md")
    (folder / "conf.py").write_text(
        "extensions = ['myst_parser']\nmyst_heading_anchors = 3\n"
        "myst_enable_extensions = ['dollarmath', 'colon_fence']\n"
    )
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", folder, tmp_path / "html"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt; | a &amp; b &amp;amp;") >= 8
    assert f'href="#{name}"' in html
    assert "1. % (a)= +++ |x| {r}`y`" in html


# ------------------------------------------------------------------------------ in a browser


@pytest.fixture
def path(tmp_path):
    picture = png(tmp_path / "p.png", 1600, 300)
    pictures = {"mvc-jmlr-2013-figure-7": picture, "mvc-jmlr-2013-table-2": picture}
    return written(everything(), tmp_path, pictures=pictures).path


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_opens_it_without_a_complaint(browser, path, width, theme):
    browser.open(path, width, theme)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelector('main').scrollWidth") <= width
    loaded = "[...document.images].map(i => [i.naturalWidth, i.width <= innerWidth])"
    assert browser.run(loaded) == [[1600, True]] * 2
    dark = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(13, 17, 23)") == (theme == "dark")
    assert browser.complaints() == []
    sent = [url for url in browser.requests() if not url.startswith("data:image/png")]
    assert sent == [path.resolve().as_uri()]


def test_verdicts_are_filtered(browser, path):
    browser.open(path)
    shown = (
        "[...document.querySelectorAll('section[data-status]')]"
        ".filter(s => s.offsetHeight).map(s => s.id)"
    )
    assert len(browser.run(shown)) == 6
    browser.click('[data-filter="reproduced"]')
    assert browser.run(shown) == ["mvc-jmlr-2013-table-2", "skmmc-nnw-table-iii"]
    assert browser.run("document.getElementById('shown').textContent") == "2 of 6 shown"
    assert (
        browser.run("[...document.querySelectorAll('.paper')].filter(p => p.offsetHeight).length")
        == 2
    )
    pressed = "document.querySelector('[aria-pressed=\"true\"]').textContent"
    assert browser.run(pressed) == "reproduced"
    browser.run("document.querySelector('[data-filter=\"not reproduced\"]').focus()")
    browser.press("Enter")
    assert browser.run(shown) == ["mvc-aistats-2011-table-1", "odd-paper-table-1"]
    browser.click('[data-filter="as good as printed"]')
    assert browser.run(shown) == ["skmmc-nnw-table-iii"]
    browser.click('[data-filter=""]')
    assert len(browser.run(shown)) == 6
    assert browser.complaints() == []
