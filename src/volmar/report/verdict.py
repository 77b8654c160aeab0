"""The conclusion of the report: headline, lede and badge.

The badge shows the weakest of several criteria: the test of more than one group, the tests of the
borders between clusters, stability, and whether the clusters only restate a categorical column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.split_test import UNSETTLED
from volmar.evidence.wording import HINT, is_minimum, rounded_up
from volmar.report.categories import Led
from volmar.report.outcome import LEVEL, Evidence, Outcome
from volmar.report.text import as_count, as_number, listed, shortened

__all__ = ["STABLE", "Verdict", "agreement_of", "in_words", "verdict_of"]

# Clusters are called stable from this mean adjusted Rand index of resamples on.
STABLE = 0.6
# Clusters hardly change from this mean adjusted Rand index on.
HARDLY_CHANGED = 0.9
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# Maximum number of groups of clusters that the lede names, and of clusters named per group.
MAX_GROUPS, MAX_OF_GROUP = 3, 8
# Word and tone of each level of the gauge.
GRADES = (
    ("not tested", "neutral"),
    ("weak", "weak"),
    ("fair", "fair"),
    ("strong", "good"),
    ("very strong", "good"),
)
# P-values above this one are printed as 1.
ALL_BUT_ONE = 0.995
MORE_ROWS = "A single group could show this by chance. More rows are needed to decide."
CONVENIENT = (
    "Rows without any groups would often be divided like this. Treat the clusters as a convenient "
    "division, not as a discovery."
)
REMEDY = "Try another number of clusters, or another method."


@dataclass(frozen=True)
class Verdict:
    """The conclusion, as the page shows it.

    `remarks` are caveats to `headline` and `lede`. `word`, `tone`, `level` (0 to 4) and `detail`
    are the content of the badge, `title` and `text` that of the section on evidence. `n_open` is
    the number of borders without a gap.
    """

    headline: str
    lede: str
    remarks: tuple[str, ...]
    word: str
    tone: str
    level: int
    detail: str
    title: str
    text: str
    n_open: int = 0


def verdict_of(outcome: Outcome, sizes: NDArray, led: Led | None = None) -> Verdict:
    """Return the conclusion of a run; `led` describes categories that dominate the clusters."""
    deciding = _deciding(outcome)
    if outcome.k == 1:
        return _one_cluster(outcome, deciding)
    joins = [one for one in outcome.evidence if one.kind == "join" and one.value is not None]
    n_open = sum(not one.is_supported for one in joins)
    if n_open:
        return _unsupported(outcome, sizes, joins, n_open, led)
    return _supported(outcome, sizes, deciding, joins, led)


def _deciding(outcome: Outcome) -> Evidence | None:
    """Return the test with the largest p-value among those that decide the answer."""
    given = [one for one in outcome.evidence if one.kind == "p-value" and one.value is not None]
    if not given:
        tree = getattr(outcome.estimator, "tree_", None)
        nodes = [] if tree is None else tree.splits() or [tree.root]
        given = [
            Evidence("p-value", float(node.p_value), "", node.p_minimum, float(node.level))
            for node in nodes
        ]
    given = [one for one in given if np.isfinite(one.value or 0.0)]
    return max(given, key=lambda one: one.value or 0.0, default=None)


# ------------------------------------------------------------------------------ one cluster


def _one_cluster(outcome: Outcome, deciding: Evidence | None) -> Verdict:
    n = as_count(len(outcome.labels))
    word, title, text = "not tested", "No test was made", NOT_TESTED
    headline = f"All {n} rows are in one cluster."
    lede = "One cluster was requested, so no split was made."
    if outcome.evidence:
        lede = outcome.evidence[0].sentence
    if deciding is not None:
        text = _chance_text(deciding)
    if deciding is not None and deciding.is_supported:
        word, title = "a split was possible", f"A split was possible ({deciding.p_text})"
    elif deciding is not None:
        is_hint = (deciding.value or 0.0) <= HINT
        word = "not enough for a split" if is_hint else "none for a split"
        what = "Not enough evidence" if is_hint else "No evidence"
        title = f"{what} for more than one group ({deciding.p_text})"
        headline = f"{title}."
        lede = f"The {n} rows stay in one cluster: held-out rows do not confirm a split. "
        lede += (
            "They hint at a gap, but more rows are needed to decide."
            if is_hint
            else "There may still be groups that overlap, or that this method cannot find."
        )
    return Verdict(
        headline,
        lede,
        (),
        word,
        "neutral",
        0,
        "no test was made" if deciding is None else deciding.p_text,
        title,
        text,
    )


NOT_TESTED = "It is not known whether the clusters are more than a convenient division."


# ------------------------------------------------------------------------------ supported


def _supported(
    outcome: Outcome,
    sizes: NDArray,
    deciding: Evidence | None,
    joins: list[Evidence],
    led: Led | None,
) -> Verdict:
    """Return the verdict if all tested borders have a gap."""
    tests = [*joins, *([] if deciding is None else [deciding])]
    weakest = max(tests, key=lambda one: one.value or 0.0, default=None)
    grade = _grade(weakest)
    remarks = []
    if joins and deciding is not None and not deciding.is_supported:
        # The labels were fitted to all rows, the split of the other test to half of them.
        weakest, grade = deciding, 2
        remarks.append(
            "A test that does not use the cluster labels finds no gap "
            f"({deciding.p_text}). Treat the clusters with care."
        )
    doubt = _unstable(outcome) or _unsettled(outcome, deciding, joins)
    untested = _untested(outcome)
    if doubt or untested or (led is not None and led.is_one_column):
        grade = min(grade, 2)
    remarks += [doubt, untested]
    word, tone = GRADES[grade]
    k = outcome.k
    if weakest is None:
        headline = _fall_into(sizes)
        lede = (
            f"{outcome.method} found them. It was not tested whether they are more than a "
            "convenient division."
        )
        title, text, detail = "No test was made", NOT_TESTED, "no test was made"
    elif grade == 1:
        headline = f"{_divided(sizes)}; no evidence supports them."
        lede = CONVENIENT
        title, text = f"weak evidence ({weakest.p_text})", _chance_text(weakest)
        detail = weakest.p_text
    else:
        headline = _fall_into(sizes)
        if untested and not joins:
            headline = f"{_divided(sizes)}; there is more than one group."
        lede = f"{_what_was_confirmed(outcome, joins)} The evidence is {word}."
        title, text = f"{word} evidence ({weakest.p_text})", _chance_text(weakest, k, joins)
        detail = weakest.p_text
        if is_minimum(weakest.value or 0.0, weakest.minimum):
            detail += " (smallest possible p-value)"
    remarks.append("" if led is None else led.sentence)
    return Verdict(
        headline,
        lede,
        tuple(filter(None, remarks)),
        word,
        tone,
        grade,
        detail,
        title,
        text,
    )


def _grade(weakest: Evidence | None) -> int:
    if weakest is None or weakest.value is None:
        return 0
    p = weakest.value
    if not weakest.is_supported:
        return 1
    if p <= 0.001:
        return 4
    # At the minimum, more draws could only decrease the p-value.
    return 3 if p <= 0.01 or is_minimum(p, weakest.minimum) else 2


def agreement_of(outcome: Outcome) -> float | None:
    """Return the agreement of clusters with those of resamples, None if it is not known."""
    values = [one.value for one in outcome.evidence if one.kind == "stability"]
    return min((value for value in values if value is not None), default=None)


def _unstable(outcome: Outcome) -> str:
    """Return a caveat if the clusters change when rows are left out, else an empty string."""
    agreement = agreement_of(outcome)
    if agreement is None or agreement >= STABLE:
        return ""
    return (
        "The clusters change a lot when some of the rows are left out (adjusted Rand index "
        f"{agreement:.2f}): their borders are uncertain. {REMEDY}"
    )


def _unsettled(outcome: Outcome, deciding: Evidence | None, joins: list[Evidence]) -> str:
    """Return a caveat if two halves of the rows have different borders, else an empty string.

    Three groups can be split in two in several ways. The choice does not matter if the borders
    between the three are confirmed.
    """
    share = None if deciding is None else deciding.disagreement
    if share is None or share < UNSETTLED or (joins and outcome.k > 2):
        return ""
    return (
        f"Fits to two halves of the rows disagree about {100 * share:.0f} % of the rows: there "
        f"are groups, but this border is uncertain. {REMEDY}"
    )


def _untested(outcome: Outcome) -> str:
    """Return a caveat about clusters that were not tested, or an empty string."""
    found = [one.sentence for one in outcome.evidence if one.kind == "untested"]
    return " ".join([*found, "It is not known whether they are groups."]) if found else ""


def _what_was_confirmed(outcome: Outcome, joins: list[Evidence]) -> str:
    if joins:
        where = "the border between them" if len(joins) == 1 else "every border between them"
        return f"Held-out rows show a gap at {where}."
    tree = getattr(outcome.estimator, "tree_", None)
    if tree is not None and all(np.isfinite(node.p_value) for node in tree.splits()):
        what = "The split" if outcome.k == 2 else "Every split"
        return f"{what} was confirmed on held-out rows, which were not used to find it."
    return "A test on held-out rows finds more than one group."


# ------------------------------------------------------------------------------ unsupported


def _unsupported(
    outcome: Outcome, sizes: NDArray, joins: list[Evidence], n_open: int, led: Led | None
) -> Verdict:
    """Return the verdict if some borders between the clusters have no gap."""
    n_groups = 1 + len(joins) - n_open
    more = [one for one in outcome.evidence if one.kind == "p-value" and one.value is not None]
    is_more = any(one.is_supported for one in more)
    borders = "border is" if len(joins) == 1 else "borders are"
    remarks = (_unstable(outcome), _untested(outcome), "" if led is None else led.sentence)
    open_ones = [one for one in joins if not one.is_supported]
    clearest = min(open_ones, key=lambda one: one.value or 0.0)
    are_hints = all((one.value or 0.0) <= HINT for one in open_ones)
    asked, supported = in_words(outcome.k), in_words(n_groups)
    what = "no gap"
    if n_groups > 1:
        headline = f"{_divided(sizes)}; the evidence supports {supported} groups."
        lede = (
            f"{_groups_text(outcome, 'may be' if are_hints else 'are')} For clusters that "
            f"held-out rows confirm, request {supported} clusters, or let tests choose the number."
        )
        word, tone, level = f"for {supported} groups", "fair", 2
        title = f"Evidence for {supported} of the {asked} clusters"
    elif are_hints:
        headline = f"{_divided(sizes)}; the evidence for them is not enough."
        lede = "There is more than one group. " if is_more else ""
        lede += (
            "Held-out rows hint at gaps between these clusters, but a single group could show "
            "such gaps by chance. More rows are needed to decide."
        )
        word, tone, level = "not enough", "fair", 1
        title, what = f"Not enough evidence for the {asked} clusters", "no clear gap"
    else:
        headline = f"{_divided(sizes)}; no evidence supports them."
        lede = (
            f"There is more than one group, but the {borders} not where the groups are "
            f"separated. {REMEDY}"
            if is_more
            else CONVENIENT
        )
        word, tone, level = GRADES[1][0], GRADES[1][1], 1
        title = f"No evidence for the {asked} clusters"
    again = _found_again(outcome)
    count = f"{n_open} of {len(joins)} borders" if len(joins) > 1 else "the border"
    at_least = clearest.p_text
    if n_open > 1 and (clearest.value or 0.0) < ALL_BUT_ONE:
        at_least = clearest.p_text.replace("=", "≥")
    return Verdict(
        headline,
        lede,
        tuple(filter(None, remarks)),
        word,
        tone,
        level,
        f"{what} at {count}: {at_least}",
        title,
        f"Held-out rows show {what} at {count} between the clusters ({at_least}). "
        + (MORE_ROWS if are_hints else f"Such a border runs through a group. {again}"),
        n_open,
    )


def _found_again(outcome: Outcome) -> str:
    if (agreement_of(outcome) or 0.0) >= HARDLY_CHANGED:
        return "It is found again when rows are left out, but this does not make it a gap."
    return "On other rows it would likely be in another place."


def _groups_text(outcome: Outcome, are: str) -> str:
    """Return a sentence on the clusters that are, or may be, parts of one group."""
    summary = next((one for one in outcome.evidence if one.kind == "groups"), None)
    several = [] if summary is None else [group for group in summary.clusters if len(group) > 1]
    if not several:
        return f"Some clusters {are} parts of one group."
    texts = [f"clusters {_names(group)}" for group in several[:MAX_GROUPS]]
    first, *others = texts
    text = f"C{first[1:]} {are} parts of one group"
    text += "".join(f", and so {are} {other}" for other in others)
    if len(several) > MAX_GROUPS:
        text += f", and so on for {in_words(len(several) - MAX_GROUPS)} more groups"
    return text + "."


def _names(group: tuple[Any, ...]) -> str:
    names = [shortened(str(label), 30) for label in group]
    if len(names) > MAX_OF_GROUP:
        return f"{', '.join(names[:MAX_OF_GROUP])} and {len(names) - MAX_OF_GROUP} more"
    return listed(names)


# ------------------------------------------------------------------------------ sentences


def in_words(number: int) -> str:
    """Return a number in words up to ten, and in digits above."""
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def _fall_into(sizes: NDArray) -> str:
    n, k = sizes.sum(), sizes.size
    if k == 2 and sizes[0] != sizes[1]:
        return (
            f"The {as_count(n)} rows fall into two clusters, "
            f"of {as_count(sizes[0])} and {as_count(sizes[1])} rows."
        )
    low, high = as_count(sizes.min()), as_count(sizes.max())
    spread = f", each of {low} rows." if low == high else f", of {low} to {high} rows."
    return f"The {as_count(n)} rows fall into {in_words(k)} clusters{spread}"


def _divided(sizes: NDArray) -> str:
    return f"The {as_count(sizes.sum())} rows were divided into {in_words(sizes.size)} clusters"


def _chance_text(test: Evidence, k: int = 1, joins: list[Evidence] | None = None) -> str:
    """Return sentences that explain the p-value of a test."""
    p = test.value or 0.0
    level = LEVEL if test.level is None else test.level
    what = "the rows were a single group"
    if joins and test.kind == "join" and k > 2:
        what = "two neighbouring clusters were a single group"
    text = f"If {what}, a gap at least this clear would appear in {_chance(test)} by chance alone"
    text += ", the smallest share that this test can show. " if "≤" in test.p_text else ". "
    limit = "the usual limit is 5 %" if level == LEVEL else f"the limit is {100 * level:.2g} %"
    if not test.is_supported:
        return text + f"That is too often to call it a discovery ({limit})."
    if p <= 0.01 or is_minimum(p, test.minimum):
        return text + f"That is rare enough to rely on ({limit})."
    return text + f"That is below the limit, but not far below it ({limit})."


def _chance(test: Evidence) -> str:
    p = test.value or 0.0
    if p < 1e-4:
        return "fewer than 1 of 10,000 cases"
    if is_minimum(p, test.minimum):
        return f"at most {as_number(100 * rounded_up(p), 2)} % of cases"
    return "nearly all cases" if p > 0.99 else f"about {as_number(100 * p, 2)} % of cases"
