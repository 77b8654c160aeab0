"""Scores in which several categorical columns agree, by multiple correspondence analysis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volmar._checks import fix_signs

__all__ = ["CategoryScores", "category_scores"]

# Values of a smaller share are merged into one: their weights would depend on only a few rows.
RARE = 0.02
# Maximum number of rows from which associations are learnt, and number of permutations with which
# they are compared: the maximum of 20 is exceeded by chance in 1 of 21 tables.
N_ROWS, N_PERMUTED = 5_000, 20
# With many values, fewer rows are used: the moments of L indicators on n rows take n L^2 products.
MIN_ROWS, MAX_PRODUCTS = 500, 300_000_000
# Maximum share of two columns in a score. A larger share, as of city and state, means that only
# these two columns agree.
TWO_COLUMNS = 0.8
MAX_SCORES = 10


@dataclass(frozen=True)
class CategoryScores:
    r"""Scores of rows from their categories, each a sum of one weight per column.

    They are the components of multiple correspondence analysis: with the indicators
    :math:`z_l` of all values l, of share :math:`p_l`, the eigenvectors of the matrix of
    :math:`(\overline{z_l z_m} - p_l p_m) / \sqrt{p_l p_m}`. Independent columns have the
    eigenvalue 1, and columns that agree have a larger one. Scores have mean 0 and variance 1.

    Each column has `weights` of its values, of shape (L + 1, K). The last row is 0, for missing
    and new values. `widths` are the ranges of the sum of the two leading columns in each score:
    noise of this width hides any gap that these two columns create alone.
    """

    columns: list[str]
    weights: list[NDArray[np.float64]]
    widths: NDArray[np.float64]
    leading: list[list[str]]  # columns with the largest weights in each score

    @property
    def n_scores(self) -> int:
        """Number of scores."""
        return int(self.widths.size)

    def transform(self, codes: list[NDArray[np.intp]]) -> NDArray[np.float64]:
        """Return the scores of rows. Codes of missing or new values are outside of the range."""
        out = np.zeros((len(codes[0]), self.n_scores))
        for code, weights in zip(codes, self.weights, strict=True):
            unknown = len(weights) - 1
            out += weights[np.where((code < 0) | (code > unknown), unknown, code)]
        return out


def category_scores(
    names: list[str], codes: list[NDArray[np.intp]], sizes: list[int], *, at_least: int = 0
) -> CategoryScores | None:
    """Return the scores in which categorical columns agree, or None if they do not.

    The eigenvalue of a score must exceed those of columns that are permuted independently, and at
    least three columns must contribute to it. `codes` are indices of the `sizes` values of each
    column, -1 for missing. At least `at_least` scores are returned, for a table without numbers.
    """
    if not names or (len(names) < 3 and not at_least):
        return None
    rng = np.random.default_rng(0)
    n = len(codes[0])
    n_used = int(min(N_ROWS, max(MIN_ROWS, MAX_PRODUCTS // max(sum(sizes), 1) ** 2)))
    rows = np.arange(n) if n <= n_used else np.sort(rng.choice(n, n_used, replace=False))
    blocks = [
        _Block.of(name, code[rows], size)
        for name, code, size in zip(names, codes, sizes, strict=True)
    ]
    values, vectors = _eigen([block.indicators for block in blocks])
    limit = 1.0
    for _ in range(N_PERMUTED if len(blocks) > 1 else 0):
        shuffled = [rng.permutation(block.indicators) for block in blocks]
        limit = max(limit, float(_eigen(shuffled)[0][0]))
    starts = np.cumsum([0, *(block.n_values for block in blocks)])
    parts = np.add.reduceat(vectors**2, starts[:-1], axis=0)
    two = -np.sort(-parts, axis=0)[:2].sum(axis=0)
    # The tolerance allows for rounding: columns that are independent by design have 1 exactly.
    chosen = np.flatnonzero((values > limit + 1e-9) & (two <= TWO_COLUMNS))[:MAX_SCORES]
    if chosen.size < at_least:
        chosen = np.arange(min(at_least, values.size))
    if chosen.size == 0:
        return None
    return _scores(blocks, starts, vectors[:, chosen], parts[:, chosen])


@dataclass(frozen=True)
class _Block:
    """A categorical column with its rare values merged, and indicators (z - p) / sqrt(p)."""

    name: str
    places: NDArray[np.intp]
    shares: NDArray[np.float64]
    indicators: NDArray[np.float64]

    @property
    def n_values(self) -> int:
        return int(self.shares.size)

    @classmethod
    def of(cls, name: str, code: NDArray[np.intp], size: int) -> _Block:
        counts = np.bincount(code[code >= 0], minlength=size)
        n_known = max(int(counts.sum()), 1)
        common = np.flatnonzero(counts >= max(RARE * n_known, 1))
        # Rare values share the index after the common ones. The last entry is for missing values.
        places = np.full(size + 1, common.size, dtype=np.intp)
        places[common] = np.arange(common.size)
        n_values = common.size + int(counts.sum() > counts[common].sum())
        places[-1] = -1
        new = places[code]
        shares = np.bincount(new[new >= 0], minlength=n_values)[:n_values] / n_known
        indicators = (np.eye(n_values) - shares) / np.sqrt(np.maximum(shares, 1e-12))
        # A missing value has the mean of the others, 0.
        indicators = np.vstack([indicators, np.zeros(n_values)])
        return cls(name, places, shares, indicators[new])


def _eigen(blocks: list[NDArray]) -> tuple[NDArray, NDArray]:
    """Return the eigenvalues, in descending order, and eigenvectors of A.T @ A / n."""
    A = np.hstack(blocks)
    n, width = A.shape
    if width <= n:
        values, vectors = np.linalg.eigh(A.T @ A / n)
        return values[::-1], vectors[:, ::-1]
    # At most n eigenvalues are positive.
    values, scores = np.linalg.eigh(A @ A.T / n)
    known = values > 1e-10 * max(values[-1], 1.0)
    values, scores = values[known][::-1], scores[:, known][:, ::-1]
    return values, A.T @ scores / np.sqrt(n * values)


def _scores(
    blocks: list[_Block], starts: NDArray, vectors: NDArray, parts: NDArray
) -> CategoryScores:
    A = np.hstack([block.indicators for block in blocks])
    deviations = np.maximum((A @ vectors).std(axis=0), 1e-12)
    vectors = fix_signs(vectors) / deviations
    weights, ranges = [], []
    for block, start in zip(blocks, starts[:-1], strict=True):
        own = vectors[start : start + block.n_values]
        root = np.sqrt(np.maximum(block.shares, 1e-12))
        # (z - p) / sqrt(p) for the value l is 1 / sqrt(p_l) at index l, minus sqrt(p) everywhere.
        moved = own / root[:, None] - root @ own
        ranges.append(np.ptp(moved, axis=0))
        known = np.vstack([moved, np.zeros(own.shape[1])])
        weights.append(known[np.where(block.places < len(moved), block.places, len(moved))])
    widths = -np.sort(-np.array(ranges), axis=0)[:2].sum(axis=0)
    order = np.argsort(-parts, axis=0, kind="stable")
    leading = [
        [blocks[j].name for j in order[:, k] if parts[j, k] >= 0.5 * parts[order[0, k], k]]
        for k in range(vectors.shape[1])
    ]
    return CategoryScores([block.name for block in blocks], weights, widths, leading)
