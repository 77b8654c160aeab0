"""What the report concludes: headline, lede and badge, about the clusters that are shown.

The badge takes the weakest of several views: the test of more than one group, the borders between
the clusters shown, their stability, and whether they only restate one column of categories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.splits.split_test import UNSETTLED
from volmar.evidence.wording import HINT, is_minimum, rounded_up
from volmar.report.categories import Led
from volmar.report.outcome import LEVEL, Evidence, Outcome
from volmar.report.text import as_count, as_number, listed, shortened

__all__ = ["STABLE", "Verdict", "agreement_of", "in_words", "verdict_of"]

# Mean adjusted Rand index of resamples below which clusters are not called stable.
STABLE = 0.6
# And above which they hardly change.
HARDLY_CHANGED = 0.9
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# Groups of clusters that the lede names, and clusters of each.
MOST_NAMED, MOST_OF_GROUP = 3, 8
# Levels of the gauge, with the word and the tone of each.
GRADES = (
    ("not tested", "neutral"),
    ("weak", "weak"),
    ("fair", "fair"),
    ("strong", "good"),
    ("very strong", "good"),
)
# P-values above it are printed as 1.
ALL_BUT_ONE = 0.995
MORE_ROWS = "One group could show as much by chance; more rows would tell."
CONVENIENT = (
    "Rows without any groups would often be divided like this. Treat the clusters as a convenient "
    "division, not as a discovery."
)
REMEDY = "Try another number of clusters, or another method."


@dataclass(frozen=True)
class Verdict:
    """The conclusion, as the page shows it.

    `remarks` limit what headline and lede say. Word, tone, level (0 to 4) and detail are of the
    badge, `title` and `text` of the section below. `n_open` borders are not gaps.
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
    """Return the conclusion of a run; `led` are categories that lead the clusters."""
    deciding = _deciding(outcome)
    if outcome.k == 1:
        return _one_cluster(outcome, deciding)
    joins = [one for one in outcome.evidence if one.kind == "join" and one.value is not None]
    n_open = sum(not one.is_supported for one in joins)
    if n_open:
        return _unsupported(outcome, sizes, joins, n_open, led)
    return _supported(outcome, sizes, deciding, joins, led)


def _deciding(outcome: Outcome) -> Evidence | None:
    """Return the test with the largest p-value of those that the answer hangs on."""
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
    word, title, text = "not tested", "The evidence was not tested", NOT_TESTED
    headline = f"All {n} rows are in one cluster."
    lede = "One cluster was asked for, so that nothing was split."
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
        lede = f"The {n} rows stay one cluster: held-out rows do not confirm a split. "
        lede += (
            "They hint at a gap, and more rows would tell whether it is one."
            if is_hint
            else "There may still be groups that overlap, or that this method cannot see."
        )
    return Verdict(
        headline,
        lede,
        (),
        word,
        "neutral",
        0,
        "no test was run" if deciding is None else deciding.p_text,
        title,
        text,
    )


NOT_TESTED = "Nothing here says whether the clusters are more than a convenient division."


# ------------------------------------------------------------------------------ supported


def _supported(
    outcome: Outcome,
    sizes: NDArray,
    deciding: Evidence | None,
    joins: list[Evidence],
    led: Led | None,
) -> Verdict:
    """Return the verdict where no border is known to be open."""
    tests = [*joins, *([] if deciding is None else [deciding])]
    weakest = max(tests, key=lambda one: one.value or 0.0, default=None)
    grade = _grade(weakest)
    remarks = []
    if joins and deciding is not None and not deciding.is_supported:
        # The labels were made with the held-out rows in sight, the other test was not.
        weakest, grade = deciding, 2
        remarks.append(
            "A test that does not know the clusters finds no gap "
            f"({deciding.p_text}): take them with care."
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
            f"{outcome.method} found them. Whether they are more than a convenient division was "
            "not tested."
        )
        title, text, detail = "The evidence was not tested", NOT_TESTED, "no test was run"
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
            detail += ", the smallest that the test gives"
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
    # More draws could only strengthen what is at the minimum.
    return 3 if p <= 0.01 or is_minimum(p, weakest.minimum) else 2


def agreement_of(outcome: Outcome) -> float | None:
    """Return the agreement of clusters with those of resamples, None where it is not known."""
    values = [one.value for one in outcome.evidence if one.kind == "stability"]
    return min((value for value in values if value is not None), default=None)


def _unstable(outcome: Outcome) -> str:
    """Say that the clusters change where rows are left out, if they do."""
    agreement = agreement_of(outcome)
    if agreement is None or agreement >= STABLE:
        return ""
    return (
        "The clusters change a lot when some of the rows are left out (adjusted Rand index "
        f"{agreement:.2f}): their borders are not settled. {REMEDY}"
    )


def _unsettled(outcome: Outcome, deciding: Evidence | None, joins: list[Evidence]) -> str:
    """Say that two halves of the rows find different borders, if they do.

    A split in two of three groups is one choice of several, and no concern where the borders
    between the three are confirmed.
    """
    share = None if deciding is None else deciding.disagreement
    if share is None or share < UNSETTLED or (joins and outcome.k > 2):
        return ""
    return (
        f"Two halves of the rows disagree about {100 * share:.0f} % of them: there are groups, "
        f"but this border is not settled. {REMEDY}"
    )


def _untested(outcome: Outcome) -> str:
    """Say which clusters were not tested: what is known of the others is not known of them."""
    found = [one.sentence for one in outcome.evidence if one.kind == "untested"]
    return " ".join([*found, "Whether they are groups is open."]) if found else ""


def _what_was_confirmed(outcome: Outcome, joins: list[Evidence]) -> str:
    if joins:
        what = "The border between them is a gap" if len(joins) == 1 else "Every border is a gap"
        return f"{what} that held-out rows show as well."
    tree = getattr(outcome.estimator, "tree_", None)
    if tree is not None and all(np.isfinite(node.p_value) for node in tree.splits()):
        what = "The split" if outcome.k == 2 else "Every split"
        return f"{what} was confirmed on held-out rows, which were not used to find it."
    return "A test on held-out rows finds more than one group."


# ------------------------------------------------------------------------------ unsupported


def _unsupported(
    outcome: Outcome, sizes: NDArray, joins: list[Evidence], n_open: int, led: Led | None
) -> Verdict:
    """Return the verdict where some borders between the clusters are no gaps."""
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
        headline = f"{_divided(sizes)}; the rows support {supported} groups."
        lede = (
            f"{_groups_text(outcome, 'may be' if are_hints else 'are')} Ask for {supported} "
            "clusters, or leave the number to the evidence, for groups that held-out rows show."
        )
        word, tone, level = f"for {supported} groups", "fair", 2
        title = f"Evidence for {supported} of the {asked} clusters"
    elif are_hints:
        headline = f"{_divided(sizes)}; the evidence for them is not enough."
        lede = "There is more than one group. " if is_more else ""
        lede += (
            "Held-out rows hint at gaps between these clusters that one group could have by "
            "chance. More rows would tell."
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
        return "It is found again where rows are left out, which does not make it a gap."
    return "On other rows it would likely be somewhere else."


def _groups_text(outcome: Outcome, are: str) -> str:
    """Name the clusters that are, or may be, parts of one group."""
    summary = next((one for one in outcome.evidence if one.kind == "groups"), None)
    several = [] if summary is None else [group for group in summary.clusters if len(group) > 1]
    if not several:
        return f"Some clusters {are} parts of one group."
    texts = [f"clusters {_names(group)}" for group in several[:MOST_NAMED]]
    first, *others = texts
    text = f"C{first[1:]} {are} parts of one group"
    text += "".join(f", and so {are} {other}" for other in others)
    if len(several) > MOST_NAMED:
        text += f", and so on for {in_words(len(several) - MOST_NAMED)} more groups"
    return text + "."


def _names(group: tuple[Any, ...]) -> str:
    names = [shortened(str(label), 30) for label in group]
    if len(names) > MOST_OF_GROUP:
        return f"{', '.join(names[:MOST_OF_GROUP])} and {len(names) - MOST_OF_GROUP} more"
    return listed(names)


# ------------------------------------------------------------------------------ sentences


def in_words(number: int) -> str:
    """Return a small number in letters."""
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def _fall_into(sizes: NDArray) -> str:
    n, k = sizes.sum(), sizes.size
    if k == 2 and sizes[0] != sizes[1]:
        return (
            f"The {as_count(n)} rows fall into two clusters, "
            f"of {as_count(sizes[0])} and {as_count(sizes[1])} rows."
        )
    least, most = as_count(sizes.min()), as_count(sizes.max())
    spread = f", each of {least} rows." if least == most else f", of {least} to {most} rows."
    return f"The {as_count(n)} rows fall into {in_words(k)} clusters{spread}"


def _divided(sizes: NDArray) -> str:
    return f"The {as_count(sizes.sum())} rows were divided into {in_words(sizes.size)} clusters"


def _chance_text(test: Evidence, k: int = 1, joins: list[Evidence] | None = None) -> str:
    """Say how often a p-value like this one comes about by chance, and what that means."""
    p = test.value or 0.0
    level = LEVEL if test.level is None else test.level
    what = "the rows were a single group"
    if joins and test.kind == "join" and k > 2:
        what = "two neighbouring clusters were a single group"
    text = f"If {what}, a gap at least this clear would appear in {_chance(test)} by chance alone"
    text += ", as far as the draws of this test can tell. " if "≤" in test.p_text else ". "
    limit = "the usual limit is 5 %" if level == LEVEL else f"the limit is {100 * level:.2g} %"
    if not test.is_supported:
        return text + f"That is too often to call it a discovery ({limit})."
    if p <= 0.01 or is_minimum(p, test.minimum):
        return text + f"That is rare enough to rely on ({limit})."
    return text + f"That is below the limit, if not by far ({limit})."


def _chance(test: Evidence) -> str:
    p = test.value or 0.0
    if p < 1e-4:
        return "fewer than 1 of 10,000 cases"
    if is_minimum(p, test.minimum):
        return f"at most {as_number(100 * rounded_up(p), 2)} % of cases"
    return "nearly all cases" if p > 0.99 else f"about {as_number(100 * p, 2)} % of cases"
