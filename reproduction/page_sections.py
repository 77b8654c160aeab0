"""Contents of a page of reproduced tables and figures, section by section."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reproduction.experiment import COLUMN_NAMES, PAPERS, Paper
from reproduction.page_tables import Cell, Grid, make_grids, one_line, without_folders
from reproduction.summary import AS_GOOD, WORSE
from volmar._text import as_count, as_number

if TYPE_CHECKING:
    from reproduction.claims import Claim
    from reproduction.verdict import Reproduction

METRICS = {
    "clustering_error": "clustering error",
    "balanced_clustering_error": "balanced error",
    "normalized_mutual_information": "normalised mutual information",
    "rand_index": "Rand index",
    "pair_f_measure": "F measure of pairs",
}
# In the order in which they are counted and filtered, with the colour of each: under the paper's
# protocol, and without labels.
TONES = {
    "reproduced": "good",
    "not reproduced": "weak",
    "incomplete": "neutral",
    "quick look": "neutral",
    "shown": "neutral",
}
LABEL_FREE_TONES = {
    AS_GOOD: "good",
    WORSE: "weak",
    "not run": "neutral",
}
ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x")


@dataclass(frozen=True)
class Part:
    """The section of an experiment; `title` has both judgements, `detail` their reasons."""

    name: str
    anchor: str
    paper: str
    heading: str
    status: str
    label_free: str
    title: str
    detail: str
    claims: tuple[dict[str, str], ...]
    about: str
    grids: tuple[Grid, ...]
    note: str
    failures: tuple[str, ...]
    cells: str

    @property
    def tone(self) -> str:
        """Colour of both judgements together; one good and one weak give fair."""
        tones = {
            TONES.get(self.status, "neutral"),
            LABEL_FREE_TONES.get(self.label_free, "neutral"),
        }
        tones -= {"neutral"}
        return "neutral" if not tones else "fair" if len(tones) > 1 else tones.pop()


def make_page(reproductions: Sequence[Reproduction]) -> dict[str, Any]:
    """Return the contents of the page, for Markdown and HTML."""
    names = [r.experiment.name for r in reproductions]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"reproductions={names}: give one experiment or more, each of them once.")
    known = list(PAPERS)
    ordered = sorted(reproductions, key=lambda r: _order(r.experiment))
    papers = list(dict.fromkeys(r.experiment.paper for r in ordered))
    papers.sort(key=lambda paper: known.index(paper) if paper in known else len(known))
    grouped = [
        (
            PAPERS.get(paper, Paper(paper, paper)).full,
            [_part(r) for r in ordered if r.experiment.paper == paper],
        )
        for paper in papers
    ]
    parts = [part for _, parts in grouped for part in parts]
    counts = {status: sum(part.status == status for part in parts) for status in TONES}
    label_free = {word: sum(p.label_free == word for p in parts) for word in LABEL_FREE_TONES}
    versions: dict[str, list[str]] = {}
    for r in ordered:
        for package, version in r.versions.items():
            versions.setdefault(package, []).extend(version.split(", "))
    quick = sum(r.quick for r in reproductions)
    # Several tables and figures may show the same cells.
    runs = {r.experiment.source or r.experiment.name: r for r in reproductions}.values()
    return {
        "papers": grouped,
        "overview": _overview(parts),
        "headline": _headline(counts, label_free, len(parts)),
        "counts": {s: n for s, n in counts.items() if n},
        "label_free": {s: n for s, n in label_free.items() if n},
        "tones": TONES,
        "label_free_tones": LABEL_FREE_TONES,
        "n_parts": len(parts),
        "n_done": sum(r.n_done for r in runs),
        "n_cells": sum(r.n_cells for r in runs),
        "n_failed": sum(r.n_failed for r in runs),
        "versions": {p: ", ".join(sorted(set(found))) for p, found in versions.items()},
        "quick": quick and f"{quick} of {len(parts)} are quick runs: a small part of the cells, "
        "which shows that everything works and little more.",
    }  # fmt: skip


def _order(experiment: Any) -> tuple[bool, float, str]:
    """Return the sort key: tables before figures, by their numbers."""
    number = (experiment.table or experiment.figure or "").lower()
    if number in ROMAN:
        number = str(1 + ROMAN.index(number))
    first = re.match(r"\d+", number)
    return not experiment.table, int(first[0]) if first else math.inf, experiment.name


def _headline(counts: Mapping[str, int], label_free: Mapping[str, int], n_parts: int) -> str:
    n_judged = counts["reproduced"] + counts["not reproduced"]
    n_compared = n_judged + counts["incomplete"]
    if not n_compared and counts["quick look"]:
        return f"A quick look at {n_parts} tables and figures."
    if not n_compared:
        return "There is nothing to compare the tables and figures with."
    noun = "table or figure" if n_compared == 1 else "tables and figures"
    verb = "is" if counts["reproduced"] == 1 else "are"
    text = (
        f"Under the papers' own protocol, {counts['reproduced']} of {n_compared} {noun} {verb} "
        "reproduced"
    )
    text += f", {counts['incomplete']} incomplete." if counts["incomplete"] else "."
    n_run = label_free[AS_GOOD] + label_free[WORSE]
    if n_run:
        verb = "is" if label_free[AS_GOOD] == 1 else "are"
        text += (
            f" Without labels, {label_free[AS_GOOD]} of {n_run} {verb} as good as printed or "
            f"better, {label_free[WORSE]} worse."
        )
    return text


def _overview(parts: Iterable[Part]) -> Grid:
    rows = [
        (
            Cell(part.heading, link=part.anchor),
            Cell(part.paper),
            Cell(part.cells),
            Cell(part.status, tone=TONES.get(part.status, "neutral")),
            Cell(part.label_free or "no verdict", tone=LABEL_FREE_TONES.get(part.label_free, "")),
        )
        for part in parts
    ]
    header = ("table or figure", "paper", "cells done / wanted", *COLUMN_NAMES.values())
    return Grid("Overview", header, tuple(rows), frozenset({0, 1, 3, 4}))


def _part(r: Reproduction) -> Part:
    experiment = r.experiment
    cells = f"{as_count(r.n_done)} / {as_count(r.n_cells)}"
    return Part(
        name=experiment.name,
        anchor=re.sub(r"[^a-z0-9]+", "-", experiment.name.lower()).strip("-"),
        paper=PAPERS.get(experiment.paper, Paper(experiment.paper, "")).short,
        heading=_heading(experiment),
        status=r.verdict.status,
        label_free=r.verdict.label_free,
        title=one_line(r.verdict.title),
        detail=one_line(r.verdict.detail),
        claims=tuple(_claim(claim) for claim in r.claims),
        about=_about(r),
        grids=tuple(make_grids(r)),
        note=one_line(experiment.note),
        failures=tuple(without_folders(text) for text in r.failures),
        cells=(cells if r.n_cells else "none needed")
        + (f" ({as_count(r.n_failed)} failed)" if r.n_failed else ""),
    )


def _heading(experiment: Any) -> str:
    kind = "Table" if experiment.table else "Figure"
    what = f"{kind} {experiment.table or experiment.figure}".strip()
    title = one_line(experiment.title)
    start = re.search(rf"\b{re.escape(what)}(?!\w)", title)
    return title[start.start() :] if start else f"{what}: {title}"


def _claim(claim: Claim) -> dict[str, str]:
    protocol, without = "under the paper's protocol", "without labels"
    held = {True: "holds", False: "does not hold", None: ""}
    both = claim.hindsight, claim.label_free
    if both == (None, None):
        word, tone = "could not be checked", "neutral"
    elif both == (True, True):
        word, tone = f"holds {protocol} and {without}", "good"
    elif both == (False, False):
        word, tone = "does not hold", "weak"
    elif None not in both:
        where, not_where = (protocol, without) if claim.hindsight else (without, protocol)
        word, tone = f"holds {where}, but not {not_where}", "fair"
    elif claim.label_free is None:
        word = f"{held[claim.hindsight]} {protocol}; not run {without}"
        tone = "good" if claim.hindsight else "weak"
    else:
        word = f"{held[claim.label_free]} {without}; not run {protocol}"
        tone = "good" if claim.label_free else "weak"
    says = one_line(claim.says).rstrip(".")
    return {
        # A single letter is a symbol.
        "says": says[:1].upper() + says[1:] if says[1:2].isalpha() else says,
        "word": word,
        "tone": tone,
        "detail": one_line(claim.detail),
    }


def _about(r: Reproduction) -> str:
    """Describe the values of a section, and the tolerance."""
    experiment = r.experiment
    metric = METRICS.get(experiment.metric, experiment.metric.replace("_", " "))
    better = "higher" if experiment.larger_is_better else "lower"
    has_printed = any(line.paper.mean is not None for line in r.lines)
    share = f"{100 * experiment.needed:.0f} % of the"
    stated = f"; {share} statements have to hold" if r.claims else ""
    tolerance = stated
    if has_printed:
        points = f"{as_number(experiment.tolerance)} points"
        tolerance = f"; the tolerance is {points}, for {share} judged values"
    if experiment.view == "data":
        return "The data sets, coloured by class."
    if experiment.view == "times":
        return (
            "Seconds of one fit. Printed over ours is the number of times a fit is faster here. "
            "The machines differ: the time over k-means on the same machine is the better guide"
            f"{stated}."
        )
    if experiment.view == "correlation":
        return f"Values are 100 times the correlation over data sets{tolerance}."
    if experiment.view in ("curves", "measures"):
        along = f", along {experiment.axis_label}" if experiment.axis_label else ""
        unit = f"; the {metric} is in per cent" if "value" in experiment.quantities else ""
        return (
            "The table has the first and the last point of each curve"
            f"{along}, mean ± standard error over samplings{unit}{stated}."
        )
    text = (
        f"Values are the {metric} in per cent ({better} is better), mean ± standard error over "
        f"samplings{tolerance}. Differences are in points, and in standard errors (s.e.)."
    )
    if experiment.test:
        text += (
            " Bold is the best method of a data set and each that the "
            f"{experiment.test} t-test at 5 % does not separate from it, column by column."
        )
    return text
