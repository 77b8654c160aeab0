"""How many clusters ``volmar cluster`` looks for, and the evidence for them."""

from __future__ import annotations

import shlex
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from volmar.cli.console import Stages
from volmar.cli.methods import DEFAULT, make_method

if TYPE_CHECKING:
    from volmar.cli.cluster import Asked, Found

__all__ = ["best_split", "command_for_two", "decide"]

# A split that no evidence supports is fitted where the search took less than these seconds, and
# there are no more rows.
QUICK_SEARCH, MOST_ROWS = 5.0, 20_000


def decide(asked: Asked, X: Any, found: Found, tell: Any) -> None:
    """Find the number of clusters, by the evidence or as given, and what supports it."""
    wanted = asked.wanted()
    if wanted is None:
        model = make_method(asked.method, "auto", asked.seed, asked.settings).fit(X)
        found.n_found = int(model.tree_.n_leaves)
        found.evidence += _from_tree(model, X.shape[0])
        if found.n_found > 1:
            found.model = model
    else:
        found.n_found = wanted
        if wanted > 1:
            found.evidence.append(_tested(asked, X, tell))
    if found.n_found == 1 and wanted is None and asked.split_anyway:
        found.n_found = 2
        found.warnings.append("The split was asked for (--split-anyway); no evidence supports it.")


def _from_tree(model: Any, n: int) -> list[Any]:
    from volmar.report import Evidence
    from volmar.splits.held_out import FEWEST_ROWS

    tree = model.tree_
    if n < FEWEST_ROWS:
        return [_too_few(n)]
    root = tree.root
    splits = tree.splits()
    if not splits:
        if not root.p_value <= root.level:
            why = "where one half of the rows would be split, the other half has no gap."
            if root.has_way_around:
                why = "held-out rows have a gap, but other rows connect its two sides around it."
            sentence = f"No evidence for more than one group ({root.p_text}): {why}"
        else:
            sentence = (
                f"There may be more than one group ({root.p_text}), but "
                f"{type(model).__name__} makes no split of them: {root.reason}."
            )
        return [Evidence("p-value", float(root.p_value), sentence, root.p_minimum)]
    worst = max(splits, key=lambda node: node.p_value)
    what = "The split" if len(splits) == 1 else f"Each of {len(splits)} splits"
    most = "" if len(splits) == 1 or "=" not in worst.p_text else " at most"
    sentence = (
        f"{what} was found on one half of the rows and seen again on the other, which was held "
        f"out ({worst.p_text}{most})."
    )
    evidence = [Evidence("p-value", float(worst.p_value), sentence, worst.p_minimum)]
    merged = tree.merged()
    if merged:
        n_parts = sum(len(leaves) for leaves in merged.values())
        which = "one cluster" if len(merged) == 1 else f"{len(merged)} clusters"
        evidence.append(
            Evidence(
                "merged",
                None,
                f"{n_parts} parts of the tree were merged into {which}: there is no valley "
                "between them.",
            )
        )
    return evidence


def _tested(asked: Asked, X: Any, tell: Any) -> Any:
    from volmar.diagnostics import split_test
    from volmar.diagnostics.split_test import FEWEST_ROWS
    from volmar.report import Evidence

    if X.shape[0] < FEWEST_ROWS:
        return _too_few(X.shape[0])
    model = make_method(asked.method, 2, asked.seed, asked.settings)
    if model._splits_by_hyperplanes():
        result = split_test(X, progress=tell, random_state=asked.seed)
    else:
        try:  # the curved split of the method itself, as with n_clusters="auto"
            result = split_test(X, model, progress=tell, random_state=asked.seed)
        except (ValueError, TypeError) as error:
            reason = " ".join(str(error).split())
            return Evidence("p-value", None, f"The split was not tested: {reason}")
    return Evidence("p-value", float(result.p_value), str(result), result.p_minimum)


def _too_few(n: int) -> Any:
    from volmar.report import Evidence

    return Evidence("p-value", None, f"{n} rows are too few to test a split of them.")


def command_for_two(asked: Asked) -> str:
    """Return the command that splits the same rows in two."""
    words = ["volmar", "cluster", asked.source]
    if asked.method.lower() != DEFAULT.lower():
        words += ["--method", asked.method]
    words += ["--n-clusters", "2"]
    for option, names in (("--columns", asked.columns), ("--drop", asked.drop)):
        for name in names:
            words += [option, name]
    if asked.id_column is not None:
        words += ["--id", asked.id_column]
    for option, value, usual in (
        ("--scale", asked.scale, "standard"),
        ("--missing", asked.missing, "error"),
        ("--seed", str(asked.seed), "0"),
    ):
        if value != usual:
            words += [option, value]
    for name, value in asked.settings.items():
        words += ["--set", f"{name}={_as_setting(value)}"]
    return shlex.join(words)


def _as_setting(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


def best_split(asked: Asked, X: Any, found: Found, stages: Stages) -> Any:
    """Return the split in two that no evidence supports, where it takes little time."""
    from volmar.report import BestSplit

    searched = stages.seconds.get("looking for groups", np.inf)
    if found.n_found > 1 or asked.wanted() is not None or not found.evidence:
        return None
    if searched > QUICK_SEARCH or X.shape[0] > MOST_ROWS:
        return None
    with stages.stage("splitting in two"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = make_method(asked.method, 2, asked.seed, asked.settings).fit(X)
            scores = model.decision_function(X)
        except (ValueError, MemoryError):
            return None
    if np.unique(model.labels_).size < 2:
        return None
    return BestSplit(model, model.labels_, scores, command_for_two(asked))
