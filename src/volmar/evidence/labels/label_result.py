"""The outcome of `label_test`: a tree over given clusters, and what to merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from volmar._notebook import html_card
from volmar.evidence.wording import p_value_text

__all__ = ["LabelJoin", "LabelTestResult", "named_pair"]

# Labels of a side that a sentence names.
MOST_NAMED = 6


@dataclass(frozen=True)
class LabelJoin:
    """Two sides of the tree over given clusters, and the test of the border between them.

    Attributes
    ----------
    left, right : tuple
        Labels of the given clusters on the two sides.
    n_left, n_right : int
        Rows on the two sides.
    tested : (tuple, tuple)
        Labels of the two groups, one of each side, whose border was tested: the closest two.
        Clusters in one group had been merged before.
    n_tested : (int, int)
        Rows of these groups.
    p_value : float
        Of one mode across the border, on held-out rows.
    level : float
        Level of the test; the border is a gap where `p_value` is not above it.
    distance : float
        Distance of the means of the tested groups in standard deviations within groups.
    depth : float
        Depth of the valley at the border on held-out rows, mean over splits: from 0 (none) to 1
        (an empty gap).
    is_curved : bool
        Whether the border was tested by walks across it, because no hyperplane separates the
        two groups; by scores along a linear discriminant otherwise.
    p_minimum : float
        Smallest p-value that the draws allow. A `p_value` equal to it is an upper bound.
    """

    left: tuple[Any, ...]
    right: tuple[Any, ...]
    n_left: int
    n_right: int
    tested: tuple[tuple[Any, ...], tuple[Any, ...]]
    n_tested: tuple[int, int]
    p_value: float
    level: float
    distance: float
    depth: float
    is_curved: bool
    p_minimum: float = 0.0

    @property
    def is_real(self) -> bool:
        """Whether one mode is rejected: there is a gap between the sides."""
        return self.p_value <= self.level

    @property
    def p_text(self) -> str:
        """The p-value and its level in words."""
        return p_value_text(self.p_value, self.p_minimum, self.level)

    def __str__(self) -> str:
        """Say it in a sentence."""
        names = named_pair(*self.tested)
        rows = f"{self.n_tested[0]} and {self.n_tested[1]} rows"
        if self.is_real:
            return f"{names} ({rows}) are separated ({self.p_text})."
        return f"{names} ({rows}) are not separated ({self.p_text}): merge them."


@dataclass(frozen=True, repr=False)
class LabelTestResult:
    """Which given clusters are separated from each other, and which should be merged.

    Attributes
    ----------
    tree : tuple of LabelJoin
        The joins of a binary tree over the tested clusters, from the bottom up: first those
        that are not separated, then those that are, the closest groups first. The last join has
        all tested clusters.
    clusters : tuple
        Labels that were tested, in sorted order.
    sizes : tuple of int
        Their numbers of rows.
    untested : tuple
        Labels with fewer rows than `min_cluster_size`. They keep their label in `merged_labels`
        and count neither as real nor as merged.
    untested_sizes : tuple of int
        Their numbers of rows.
    n_noise : int
        Rows without a cluster.
    alpha : float
        Probability of a false separation anywhere that was asked for.
    merged_labels : ndarray of shape (n,)
        The given labels, with one label for clusters that are not separated: that of the largest
        of them. Noise and untested clusters keep theirs.
    """

    tree: tuple[LabelJoin, ...]
    clusters: tuple[Any, ...]
    sizes: tuple[int, ...]
    untested: tuple[Any, ...]
    untested_sizes: tuple[int, ...]
    n_noise: int
    alpha: float
    merged_labels: NDArray = field(repr=False)

    @property
    def p_values(self) -> tuple[float, ...]:
        """P-value of each join of the tree."""
        return tuple(join.p_value for join in self.tree)

    @property
    def groups(self) -> tuple[tuple[Any, ...], ...]:
        """Labels of the clusters in each of the groups that are left, largest group first."""
        members = {label: [label] for label in self.clusters}
        for join in self.tree:
            if not join.is_real:
                left, right = members[join.left[0]], members[join.right[0]]
                left.extend(right)
                members.update(dict.fromkeys(right, left))
        size = dict(zip(self.clusters, self.sizes, strict=True))
        order = {label: i for i, label in enumerate(self.clusters)}
        distinct = {id(group): group for group in members.values()}.values()
        found = [tuple(sorted(group, key=order.__getitem__)) for group in distinct]
        return tuple(sorted(found, key=lambda group: -sum(size[label] for label in group)))

    @property
    def n_real(self) -> int:
        """Number of groups that are separated from each other, 1 where there is no evidence."""
        return 1 + sum(join.is_real for join in self.tree)

    @property
    def is_real(self) -> dict[Any, bool]:
        """Whether each given cluster is separated from all others as it is.

        False for clusters that should be merged, for untested ones, and for all where there is no
        evidence for more than one group.
        """
        alone = {group[0] for group in self.groups if len(group) == 1 and self.n_real > 1}
        return {label: label in alone for label in (*self.clusters, *self.untested)}

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each join, untested cluster, and for noise."""
        found = [str(join) for join in self.tree]
        for label, size in zip(self.untested, self.untested_sizes, strict=True):
            found.append(
                f"Cluster {label} ({_rows(size)}) is too small to test and stays as it is."
            )
        if self.n_noise:
            found.append(f"{_rows(self.n_noise)} without a cluster (noise) stay as they are.")
        return tuple(found)

    @property
    def summary(self) -> str:
        """The outcome in one sentence."""
        given = len(self.clusters) + len(self.untested)
        if self.n_real == 1:
            return (
                f"Of {given} given clusters no two are separated (family-wise level "
                f"{self.alpha:g}): no gap was found at any border between them."
            )
        if self.n_real == len(self.clusters):
            every = "Both" if self.n_real == 2 else f"All {self.n_real}"
            return (
                f"{every} tested clusters are separated from each other "
                f"(family-wise level {self.alpha:g})."
            )
        return (
            f"{len(self.clusters)} tested clusters make {self.n_real} groups that are separated "
            f"from each other (family-wise level {self.alpha:g})."
        )

    def __str__(self) -> str:
        """Say it in words: the summary, then a sentence for each join."""
        return "\n".join([self.summary, *self.sentences])

    def __repr__(self) -> str:
        """Name the outcome; ``print`` says it in words."""
        given = len(self.clusters) + len(self.untested)
        return f"LabelTestResult({self.n_real} groups of {given} clusters, alpha={self.alpha:g})"

    def _repr_html_(self) -> str:
        """Show the summary and a row for each border in a notebook."""
        rows = [
            [
                named_pair(*join.tested),
                " and ".join(f"{n:,}" for n in join.n_tested),
                f"{join.p_value:.2g}",
                f"{join.level:.2g}",
                "separated" if join.is_real else "not separated: merge them",
            ]
            for join in self.tree
        ]
        header = ["Border", "Rows", "p-value", "Level", ""]
        notes = self.sentences[len(self.tree) :]
        return html_card("Test of given clusters", [self.summary, *notes], header, rows)


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def named_pair(left: Sequence[Any], right: Sequence[Any]) -> str:
    """Return "Clusters 3 and 7", or "Clusters 3, 4 and cluster 7" for groups of several."""
    if len(left) == len(right) == 1:
        return f"Clusters {left[0]} and {right[0]}"
    first = _named(left)
    return f"{first[0].upper()}{first[1:]} and {_named(right)}"


def _named(labels: Sequence[Any]) -> str:
    if len(labels) == 1:
        return f"cluster {labels[0]}"
    named = " + ".join(str(label) for label in labels[:MOST_NAMED])
    return f"clusters {named}" + (" + ..." if len(labels) > MOST_NAMED else "")
