"""Evidence for a given number of clusters, from tests on held-out rows."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_random_state
from volmar._clones import refuse_pairwise, silent_clone
from volmar.evidence import LabelJoin, LabelTestResult, label_test, split_test
from volmar.evidence.label_test import named_pair
from volmar.evidence.split_test import FEWEST_ROWS, UNSETTLED
from volmar.evidence.wording import HINT, p_value_text
from volmar.report.evidence import Progress
from volmar.report.outcome import LEVEL, Evidence, too_few_rows
from volmar.rows import drawn_rows

__all__ = ["evidence_of_number"]

# Maximum number of tested rows; more take longer without a better answer.
MAX_ROWS = 100_000
# Maximum number of clusters whose borders are tested; more take longer than the fit.
MAX_CLUSTERS = 50
# Maximum number of clusters that a sentence lists.
MAX_LISTED = 8


def evidence_of_number(
    estimator: Any,
    X: Any,
    labels: NDArray,
    *,
    n_clusters: int | str | None,
    random_state: int | np.random.RandomState | None,
    progress: Progress | None,
) -> list[Evidence]:
    """Return the test of more than one group, and the tests of borders between clusters."""
    n = X.shape[0]
    if n < FEWEST_ROWS:
        return [too_few_rows(n)]
    try:
        if estimator is not None:
            refuse_pairwise(estimator)
    except ValueError as error:
        return [_not_tested("p-value", "The clusters were", error)]
    rng = check_random_state(random_state)
    if n > MAX_ROWS:
        chosen = drawn_rows(n, None, MAX_ROWS, np.random.default_rng(rng.randint(2**31 - 1)))
        X, labels = X[chosen], labels[chosen]
    seeds = rng.randint(2**31 - 1, size=2)
    try:
        tested = _borders(X, labels, int(seeds[0]), progress)
    except (ValueError, TypeError) as error:
        tested = None
        about = [_not_tested("untested", "The borders of the clusters were", error)]
    else:
        about = [] if tested is None else _about_clusters(tested, n_clusters)
    return [_more_than_one(estimator, X, tested, int(seeds[1]), progress), *about]


def _more_than_one(
    estimator: Any,
    X: Any,
    borders: LabelTestResult | None,
    seed: int,
    progress: Progress | None,
) -> Evidence:
    """Test whether there is more than one group, without the cluster labels."""
    done = 0 if borders is None else len(borders.tree)
    is_curved = hasattr(estimator, "_splits_by_hyperplanes") and not (
        estimator._splits_by_hyperplanes()
    )
    try:
        # Test the curved split of the method itself, as with n_clusters="auto".
        splitter = silent_clone(estimator).set_params(n_clusters=2) if is_curved else None
        tell = _after(progress, done, 0)
        found = split_test(X, splitter, alpha=LEVEL, progress=tell, random_state=seed)
    except (ValueError, TypeError) as error:
        return _not_tested("p-value", "The split was", error)
    sentence = str(found)
    k = 0 if borders is None or borders.n_real < len(borders.clusters) else borders.n_real
    if found.is_real and k > 2 and found.disagreement >= UNSETTLED:
        p_text = p_value_text(found.p_value, found.p_minimum, found.alpha)
        sentence = (
            f"There is more than one group ({p_text}): held-out rows have a gap where the other "
            "half of the rows was split. The best split in two is uncertain (fits to the halves "
            f"disagree about {100 * found.disagreement:.0f} % of the rows), but the {k} clusters "
            "do not depend on it."
        )
    return Evidence(
        "p-value",
        float(found.p_value),
        sentence,
        found.p_minimum,
        found.alpha,
        disagreement=float(found.disagreement),
    )


def _borders(
    X: Any, labels: NDArray, seed: int, progress: Progress | None
) -> LabelTestResult | None:
    """Test the borders between given clusters; return None for fewer than two."""
    clusters = {str(label) for label in np.unique(labels).tolist()} - {"-1"}
    if len(clusters) < 2:
        return None
    if len(clusters) > MAX_CLUSTERS:
        raise ValueError(
            f"there are {len(clusters)} clusters, and at most {MAX_CLUSTERS} are tested. Use "
            "volmar.evidence.label_test for more."
        )
    return label_test(X, labels, alpha=LEVEL, progress=_after(progress, 0, 1), random_state=seed)


def _about_clusters(tested: LabelTestResult, n_clusters: int | str | None) -> list[Evidence]:
    """Return the number of groups, each join, and the clusters too small to test."""
    joins = [
        Evidence(
            "join",
            float(join.p_value),
            _join_sentence(join),
            join.p_minimum,
            float(join.level),
            join.tested,
        )
        for join in sorted(tested.tree, key=lambda join: join.is_real)
    ]
    found = [_groups(tested, n_clusters), *joins] if len(joins) > 1 else joins
    if tested.untested:
        names = ", ".join(str(label) for label in tested.untested[:MAX_LISTED])
        names += ", ..." if len(tested.untested) > MAX_LISTED else ""
        which = f"Cluster {names} is" if len(tested.untested) == 1 else f"Clusters {names} are"
        found.append(Evidence("untested", None, f"{which} too small to test: fewer than 20 rows."))
    return found


def _groups(tested: LabelTestResult, n_clusters: int | str | None) -> Evidence:
    """Return the number of groups among the clusters, with a sentence."""
    k, n_real = len(tested.clusters), tested.n_real
    n_given = k + len(tested.untested)
    where = "that were requested" if isinstance(n_clusters, Integral) else "that were found"
    together = "both borders" if k == 3 else f"all {k - 1} borders"
    level = f"level {tested.alpha:g} for {together} together"
    if n_real == k:
        worst = max(tested.tree, key=lambda join: join.p_value)
        p_text = p_value_text(worst.p_value, worst.p_minimum)
        largest = "largest " if "=" in p_text else ""
        sentence = (
            f"All {k} {'' if k == n_given else 'tested '}clusters are separated from each other "
            f"by a gap ({largest}{p_text}, {level})."
        )
    elif n_real == 1 and all(join.p_value <= HINT for join in tested.tree):
        sentence = (
            f"Not enough evidence for the {n_given} clusters {where}: held-out rows hint at gaps "
            f"between them, but a single group could show such gaps by chance ({level})."
        )
    elif n_real == 1:
        sentence = (
            f"No evidence for the {n_given} clusters {where}: there is no gap at any border "
            f"between them ({level})."
        )
    else:
        sentence = (
            f"Evidence for {n_real} of the {n_given} clusters {where}: several of them are parts "
            f"of one group ({level})."
        )
    return Evidence("groups", float(n_real), sentence, level=tested.alpha, clusters=tested.groups)


def _join_sentence(join: LabelJoin) -> str:
    names = named_pair(*join.tested)
    if join.is_real:
        return f"{names} are separated by a gap ({join.p_text})."
    parts = "halves" if all(len(side) == 1 for side in join.tested) else "parts"
    if join.p_value <= HINT:
        return (
            f"{names} may be {parts} of one group: not enough evidence for a gap between them "
            f"({join.p_text})."
        )
    return f"{names} are {parts} of one group: no gap between them ({join.p_text})."


def _after(progress: Progress | None, before: int, after: int) -> Progress | None:
    """Return a callback for one of two tests that counts the steps of both."""
    if progress is None:
        return None
    return lambda done, wanted: progress(before + done, before + wanted + after)


def _not_tested(kind: str, what: str, error: Exception) -> Evidence:
    return Evidence(kind, None, f"{what} not tested: {' '.join(str(error).split())}")
