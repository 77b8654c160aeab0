"""The conclusions of the report in words: verdict, caveats and certificate.

The badge shows the weakest of several criteria: the test of more than one group, the tests of the
borders between clusters, stability, and whether the clusters only restate a categorical column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import shortened
from volmar._text import as_count, as_number, listed
from volmar.base.recursion import RecursiveResult
from volmar.evidence import LabelTestResult, SplitTestResult
from volmar.evidence.label_test import LabelJoin, named_pair
from volmar.evidence.split_test import UNSETTLED
from volmar.evidence.splits import MIN_EFFECT
from volmar.evidence.wording import HINT, p_value_text
from volmar.report.drivers import Drivers
from volmar.report.outcome import LEVEL, Evidence, Outcome
from volmar.solvers import Status

# Clusters are called stable from this mean adjusted Rand index of resamples on.
STABLE = 0.6
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# Maximum number of groups of clusters that the lede names, and of clusters or borders in a list.
MAX_GROUPS, MAX_LISTED = 3, 8
# Word and tone of each level of the gauge.
GRADES = (
    ("not tested", "neutral"),
    ("weak", "weak"),
    ("fair", "fair"),
    ("strong", "good"),
    ("very strong", "good"),
)
MORE_ROWS = "A single group could show this by chance. More rows are needed to decide."
CONVENIENT = (
    "Rows without any groups would often be divided like this. Treat the clusters as a convenient "
    "division, not as a discovery."
)
NOT_TESTED = "It is not known whether the clusters are more than a convenient division."
REMEDY = "Try another number of clusters, or another method."


class Verdict(NamedTuple):
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
            Evidence(
                "p-value",
                float(node.p_value),
                "",
                float(node.level),
                effect=None if np.isnan(node.effect) else float(node.effect),
            )
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
        lede = f"The {n} rows stay in one cluster: no border is confirmed. "
        lede += (
            "They hint at a gap, but more rows are needed to decide."
            if is_hint
            else "There may still be groups that overlap, or that this method cannot find."
        )
    detail = "no test was made" if deciding is None else deciding.p_text
    return Verdict(headline, lede, (), word, "neutral", 0, detail, title, text)


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
    remarks.append("" if led is None else led.sentence)
    return Verdict(
        headline, lede, tuple(filter(None, remarks)), word, tone, grade, detail, title, text
    )


def _grade(weakest: Evidence | None) -> int:
    if weakest is None or weakest.value is None:
        return 0
    p = weakest.value
    if not weakest.is_supported:
        return 1
    if p <= 0.001:
        return 4
    return 3 if p <= 0.01 else 2


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
    """Return a caveat if few halves of the rows find the border again, else an empty string.

    Three groups can be split in two in several ways. The choice does not matter if the borders
    between the three are confirmed.
    """
    share = None if deciding is None else deciding.repeats
    if share is None or share >= UNSETTLED or (joins and outcome.k > 2):
        return ""
    return (
        f"Only {100 * share:.0f} % of the halves of the rows find the border again: there are "
        f"groups, but this border is uncertain. {REMEDY}"
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
        return f"{what} was confirmed: the density at its border is clearly below its sides'."
    return "A test finds more than one group."


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
        word, tone, level = *GRADES[1], 1
        title = f"No evidence for the {asked} clusters"
    again = "On other rows it would likely be in another place."
    if (agreement_of(outcome) or 0.0) >= 0.9:
        again = "It is found again when rows are left out, but this does not make it a gap."
    count = f"{n_open} of {len(joins)} borders" if len(joins) > 1 else "the border"
    at_least = clearest.p_text
    # Larger p-values are printed as 1.
    if n_open > 1 and (clearest.value or 0.0) < 0.995:
        at_least = clearest.p_text.replace("=", "≥")
    text = f"Held-out rows show {what} at {count} between the clusters ({at_least}). "
    text += MORE_ROWS if are_hints else f"Such a border runs through a group. {again}"
    detail, caveats = f"{what} at {count}: {at_least}", tuple(filter(None, remarks))
    return Verdict(headline, lede, caveats, word, tone, level, detail, title, text, n_open)


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
    if len(names) > MAX_LISTED:
        return f"{', '.join(names[:MAX_LISTED])} and {len(names) - MAX_LISTED} more"
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
    text += ". "
    limit = "the usual limit is 5 %" if level == LEVEL else f"the limit is {100 * level:.2g} %"
    if not test.is_supported:
        return text + f"That is too often to call it a discovery ({limit})."
    if p <= 0.01:
        return text + f"That is rare enough to rely on ({limit})."
    return text + f"That is below the limit, but not far below it ({limit})."


def _chance(test: Evidence) -> str:
    p = test.value or 0.0
    if p < 1e-4:
        return "fewer than 1 of 10,000 cases"
    return "nearly all cases" if p > 0.99 else f"about {as_number(100 * p, 2)} % of cases"


# ------------------------------------------------------------------------- sentences on evidence


def sentences_of(evidence: list[Evidence]) -> list[str]:
    """Return the sentences of `evidence_of` to print; of the borders, only those without a gap."""
    joins = [one for one in evidence if one.kind == "join"]
    missing = [one for one in joins if not one.is_supported]
    # A single join has no summary, and is listed itself.
    listed = missing[:MAX_LISTED] if len(joins) > 1 else joins
    lines = [one.sentence for one in evidence if one.kind != "join" or one in listed]
    if len(missing) > MAX_LISTED:
        lines.append(f"... and {len(missing) - MAX_LISTED} more borders without a gap.")
    return lines


def tree_sentence(worst: Any, n_splits: int) -> str:
    """Return a sentence on splits that were confirmed when they were made."""
    what = "The split" if n_splits == 1 else f"Each of {n_splits} splits"
    largest = "" if n_splits == 1 or "=" not in worst.p_text else "largest "
    return (
        f"{what} has a border with a density clearly below that of both sides "
        f"({largest}{worst.p_text}, level {worst.level:.2g})."
    )


def unsplit_sentence(model: Any) -> str:
    """Return a sentence on a tree without a split."""
    root = model.tree_.root
    p, level = float(root.p_value), float(root.level)
    p_text = p_value_text(p, level)
    start = f"No evidence for more than one group ({p_text}):"
    rest = "there is no border with a density clearly below that of both sides."
    if p <= level and not root.effect < MIN_EFFECT:
        start = f"There may be more than one group ({p_text}), but {type(model).__name__}"
        rest = f"makes no split: {root.reason}."
    elif p <= HINT and not root.effect <= 0:
        start = f"Not enough evidence for more than one group ({p_text}): the rows hint"
        rest = "at a gap that one group could have by chance. More rows are needed to decide."
    return f"{start} {rest}"


def split_sentence(found: SplitTestResult, k: int) -> str:
    """Return a sentence on the test of more than one group.

    `k` is the number of clusters if all of them are separated, else 0.
    """
    if not (found.is_real and k > 2 and found.repeats < UNSETTLED):
        return str(found)
    p_text = p_value_text(found.p_value, level=found.alpha)
    return (
        f"There is more than one group ({p_text}): the density at the border between them is at "
        f"least {100 * found.effect:.0f} % below that of both sides. Only "
        f"{100 * found.repeats:.0f} % of the halves of the rows find this border again, but the "
        f"{k} clusters do not depend on it."
    )


def untested_sentence(clusters: Sequence[Any]) -> str:
    """Return a sentence on clusters that are too small to test."""
    names = ", ".join(str(label) for label in clusters[:MAX_LISTED])
    names += ", ..." if len(clusters) > MAX_LISTED else ""
    which = f"Cluster {names} is" if len(clusters) == 1 else f"Clusters {names} are"
    return f"{which} too small to test: fewer than 20 rows."


def groups_sentence(tested: LabelTestResult, *, is_asked: bool) -> str:
    """Return a sentence on the number of groups among the clusters."""
    k, n_real = len(tested.clusters), tested.n_real
    n_given = k + len(tested.untested)
    where = "that were requested" if is_asked else "that were found"
    together = "both borders" if k == 3 else f"all {k - 1} borders"
    level = f"level {tested.alpha:g} for {together} together"
    if n_real == k:
        worst = max(tested.tree, key=lambda join: join.p_value)
        p_text = p_value_text(worst.p_value)
        largest = "largest " if "=" in p_text else ""
        return (
            f"All {k} {'' if k == n_given else 'tested '}clusters are separated from each other "
            f"by a gap ({largest}{p_text}, {level})."
        )
    if n_real == 1 and all(join.p_value <= HINT and join.effect > 0 for join in tested.tree):
        return (
            f"Not enough evidence for the {n_given} clusters {where}: the rows hint at gaps "
            f"between them, but a single group could show such gaps by chance ({level})."
        )
    if n_real == 1:
        return (
            f"No evidence for the {n_given} clusters {where}: there is no gap at any border "
            f"between them ({level})."
        )
    return (
        f"Evidence for {n_real} of the {n_given} clusters {where}: several of them are parts "
        f"of one group ({level})."
    )


def join_sentence(join: LabelJoin) -> str:
    """Return a sentence on the border between two sets of clusters."""
    names = named_pair(*join.tested)
    if join.is_real:
        return f"{names} are separated by a gap ({join.p_text})."
    parts = "halves" if all(len(side) == 1 for side in join.tested) else "parts"
    if join.p_value <= HINT and join.effect > 0:
        return (
            f"{names} may be {parts} of one group: not enough evidence for a gap between them "
            f"({join.p_text})."
        )
    return f"{names} are {parts} of one group: no gap between them ({join.p_text})."


# -------------------------------- check whether categorical columns dominate the clusters of a run

# Categorical columns dominate if they have at least this share of the weight of all columns.
LEADING = 0.5


class Led(NamedTuple):
    """Caveat about dominating categories; `is_one_column` if one column dominates them all."""

    is_one_column: bool
    sentence: str


def led_by_categories(outcome: Outcome, driving: Drivers | None) -> Led | None:
    """Return a caveat if categorical columns dominate the clusters, else None.

    Categorical columns are those of `Outcome.categorical` and `Outcome.category_features`. If
    neither is given, they are taken from features named "column=value".
    """
    of_feature = [_categories(str(name), outcome) for name in outcome.feature_names]
    if outcome.k < 2 or not any(of_feature):
        return None
    if driving is not None and driving.values.size:
        columns, share = _weights(of_feature, driving.features, np.abs(driving.values))
        if share >= LEADING:
            return _led(columns, "the clusters")
    tree = getattr(outcome.estimator, "tree_", None)
    if tree is None or outcome.model is not outcome.estimator:
        return None
    for node in tree.splits():
        features = np.array([j for j, _ in node.leading], dtype=np.int64)
        values = np.array([abs(value) for _, value in node.leading])
        columns, share = _weights(of_feature, features, values)
        if share >= LEADING:
            return _led(columns, f"split {node.rank}", everything=False)
    return None


def _categories(name: str, outcome: Outcome) -> tuple[str, ...]:
    """Return the categorical columns that a feature was made from."""
    if name in outcome.category_features:
        return tuple(outcome.category_features[name])
    if outcome.categorical is None:
        return (name.split("=", 1)[0],) if "=" in name else ()
    return tuple(c for c in outcome.categorical if name == c or name.startswith(f"{c}="))[:1]


def _weights(
    of_feature: list[tuple[str, ...]], features: NDArray, values: NDArray
) -> tuple[list[str], float]:
    """Return the categorical columns by weight, and their share of the total weight."""
    weight: dict[str, float] = {}
    for j, value in zip(features.tolist(), values.tolist(), strict=True):
        columns = of_feature[j] if j < len(of_feature) else ()
        for column in columns:
            weight[column] = weight.get(column, 0.0) + value / len(columns)
    total = float(values.sum())
    share = sum(weight.values()) / total if total > 0 else 0.0
    return sorted(weight, key=lambda column: -weight[column]), share


def _led(columns: list[str], what: str, *, everything: bool = True) -> Led:
    names = [f"'{shortened(column, 40)}'" for column in columns[:3]]
    if len(columns) > 3:
        names.append(f"{len(columns) - 3} more")
    sentence = f"The categories of {listed(names)} dominate {what}"
    sentence += (
        ", which may only restate that column. Leave it out to see what the other columns show."
        if len(columns) == 1
        else ". These columns agree with each other. Leave them out to see what the others show."
    )
    return Led(len(columns) == 1 and everything, sentence)


# -------------------------------------------------------- the solver's certificate of its solution


def certificate_of(outcome: Outcome) -> dict[str, Any]:
    """Return title, tone and text: what was checked, then what is not proved."""
    result = getattr(outcome.estimator, "result_", None)
    if outcome.k == 1 or result is None:
        title = "No certificate"
        text = f"{outcome.method} does not report how close its solution is to the optimum."
        if outcome.k == 1:
            title, text = "Nothing to solve", "All rows are in one cluster, so there is no border."
        return {"title": title, "tone": "neutral", "text": text, "residuals": {}}
    status = getattr(result, "status", None)
    is_early, ended = False, "The solver finished normally."
    if isinstance(status, Status) and not status.ok:
        is_early, ended = True, f"The solver did not finish normally: {status.value}."
    gap, objective = float(getattr(result, "gap", np.nan)), float(result.objective)
    residuals = {name: float(value) for name, value in getattr(result, "residuals", {}).items()}
    if np.isfinite(gap):
        for_labels = " for these labels" if hasattr(result, "rho") else ""
        within = _gap_text(gap, objective)
        title = f"Within {within} of the best possible{for_labels}"
        text = f"The solution is proved to be within {within} of the best possible{for_labels}. "
        text += (
            "Another division of the rows could still be better; no method can rule that out."
            if for_labels
            else "This is about the method's optimisation problem, not about true groups."
        )
        tone = "fair" if is_early else "good"
    else:
        is_satisfied = bool(residuals) and all(r <= 0.01 for r in residuals.values())
        checked = _checked(residuals, is_satisfied=is_satisfied)
        # Without a bound there is no proof, even if all residuals are small.
        title = "Conditions satisfied, optimum not proved" if is_satisfied else "Not proved"
        tone = "neutral"
        if is_early:
            title, tone = "The solver did not finish normally", "weak"
        text = f"{checked}{_without_bound(outcome, result)}"
    return {
        "title": title,
        "tone": tone,
        "text": text,
        "status": ended,
        "steps": getattr(result, "n_iter", 0),
        "residuals": {name: as_number(value) for name, value in residuals.items()},
    }


def _checked(residuals: dict[str, float], *, is_satisfied: bool) -> str:
    """Return a sentence on the checked conditions; empty if a residual is undefined."""
    if not residuals or np.isnan(list(residuals.values())).any():
        return ""
    if set(residuals) <= {"moves", "switched"} and is_satisfied:
        return "Checked: no row would change its cluster in a further step. "
    value = as_number(max(residuals.values()), 2)
    return f"Checked: the optimality conditions hold up to a residual of {value}. "


def _without_bound(outcome: Outcome, result: Any) -> str:
    if isinstance(result, RecursiveResult) and outcome.k > 2:
        return (
            "Splits are made one after the other, and no bound covers the whole sequence. Another "
            "division of the rows could be better."
        )
    return (
        "No bound on the best possible solution is available for this method. Another division "
        "of the rows could be better."
    )


def _gap_text(gap: float, objective: float) -> str:
    if objective == 0:
        return as_number(gap)
    share = 100 * gap / abs(objective)
    return "0.01 %" if share < 0.01 else f"{as_number(share, 2)} %"
