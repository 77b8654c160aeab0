"""The outcome of `label_test`: a tree over given clusters, and the clusters to merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from volmar._notebook import html_card
from volmar.evidence.wording import p_value_text

__all__ = ["LabelJoin", "LabelTestResult", "named_pair"]

# Maximum number of labels of a side that are named in a sentence.
MAX_NAMED = 6


@dataclass(frozen=True)
class LabelJoin:
    """Two sides of the tree over given clusters, and the test of the border between them.

    Attributes
    ----------
    left, right : tuple
        Labels of the given clusters on the two sides.
    n_left, n_right : int
        Number of rows on each side.
    tested : (tuple, tuple)
        Labels of the two groups whose border was tested: the closest two groups, one from each
        side. A group is a cluster, or several clusters that had been merged before.
    n_tested : (int, int)
        Number of rows in each of these groups.
    p_value : float
        P-value of the null hypothesis of one mode across the border, on held-out rows.
    level : float
        Level of the test. The border is a gap if `p_value` is at most `level`.
    distance : float
        Distance between the means of the tested groups, in standard deviations within groups.
    depth : float
        Depth of the valley at the border on held-out rows, averaged over the splits, from 0 (no
        valley) to 1 (an empty gap).
    is_curved : bool
        Whether the rows were scored by their signed distance to a curved border, because no
        hyperplane separates the two groups. Otherwise they were scored by a linear discriminant.
    p_minimum : float
        Smallest p-value that the number of draws allows. A `p_value` equal to it is an upper
        bound.
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
        """Whether one mode is rejected, so that there is a gap between the sides."""
        return self.p_value <= self.level

    @property
    def p_text(self) -> str:
        """The formatted p-value and its level."""
        return p_value_text(self.p_value, self.p_minimum, self.level)

    def __str__(self) -> str:
        """Return the outcome of the test as a sentence."""
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
        The joins of a binary tree over the tested clusters, from the bottom up: first the joins of
        groups that are not separated, then those of separated groups, in the order of their
        distance. The last join contains all tested clusters.
    clusters : tuple
        Labels that were tested, in sorted order.
    sizes : tuple of int
        Number of rows of each tested cluster.
    untested : tuple
        Labels with fewer rows than `min_cluster_size`. They keep their label in `merged_labels`
        and count neither as real nor as merged.
    untested_sizes : tuple of int
        Number of rows of each untested cluster.
    n_noise : int
        Number of rows without a cluster.
    alpha : float
        Family-wise level of the test: the requested bound on the probability of any false
        separation.
    merged_labels : ndarray of shape (n,)
        The given labels, where clusters that are not separated share the label of the largest of
        them. Noise and untested clusters keep their labels.
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
        """Labels of the clusters in each group after merging, largest group first."""
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
        """Number of groups that are separated from each other; 1 without evidence of a gap."""
        return 1 + sum(join.is_real for join in self.tree)

    @property
    def is_real(self) -> dict[Any, bool]:
        """Whether each given cluster is separated from all others.

        False for clusters that should be merged, for untested clusters, and for all clusters if
        there is no evidence for more than one group.
        """
        alone = {group[0] for group in self.groups if len(group) == 1 and self.n_real > 1}
        return {label: label in alone for label in (*self.clusters, *self.untested)}

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each join, for each untested cluster, and for noise."""
        found = [str(join) for join in self.tree]
        for label, size in zip(self.untested, self.untested_sizes, strict=True):
            found.append(
                f"Cluster {label} ({_rows(size)}) is too small to test and is left unchanged."
            )
        if self.n_noise:
            rows = _rows(self.n_noise)
            found.append(f"The label of {rows} without a cluster (noise) is unchanged.")
        return tuple(found)

    @property
    def summary(self) -> str:
        """The outcome in one sentence."""
        given = len(self.clusters) + len(self.untested)
        if self.n_real == 1:
            return (
                f"No two of the {given} given clusters are separated (family-wise level "
                f"{self.alpha:g}): no gap was found at any border between them."
            )
        if self.n_real == len(self.clusters):
            every = "Both" if self.n_real == 2 else f"All {self.n_real}"
            return (
                f"{every} tested clusters are separated from each other "
                f"(family-wise level {self.alpha:g})."
            )
        return (
            f"{len(self.clusters)} tested clusters form {self.n_real} groups that are separated "
            f"from each other (family-wise level {self.alpha:g})."
        )

    def __str__(self) -> str:
        """Return the summary, then a sentence for each join."""
        return "\n".join([self.summary, *self.sentences])

    def __repr__(self) -> str:
        """Return the outcome in short form; ``print`` shows it in sentences."""
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
    named = " + ".join(str(label) for label in labels[:MAX_NAMED])
    return f"clusters {named}" + (" + ..." if len(labels) > MAX_NAMED else "")
