"""Categories that agree: the few numbers in which several columns of categories say the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volmar._checks import fix_signs

__all__ = ["CategoryScores", "category_scores"]

# Rarer values of a column count as one, "other": their weights would be those of a few rows.
RARE = 0.02
# Rows from which associations are learnt, and columns permuted so many times for comparison:
# the largest of 20 is exceeded by chance in 1 of 21 tables.
N_ROWS, N_PERMUTED = 5_000, 20
# Fewer rows where there are many values: the moments of the indicators take n L^2 products.
FEWEST_ROWS, MOST_PRODUCTS = 500, 300_000_000
# What two columns make of a score is no agreement of several: city and state, say.
TWO_COLUMNS = 0.8
MAX_SCORES = 10


@dataclass(frozen=True)
class CategoryScores:
    r"""Scores of rows by their categories, each a sum of one weight for each column.

    They are the components of multiple correspondence analysis: with the indicators
    :math:`z_l` of all values l, of share :math:`p_l`, the eigenvectors of the matrix of
    :math:`(\overline{z_l z_m} - p_l p_m) / \sqrt{p_l p_m}`. Columns that are independent
    have the eigenvalue 1; several that agree have a larger one. Scores have mean 0 and variance 1.

    Each column has `weights` of its values, (L + 1, K); the last row, 0, is for missing values and
    those never seen. `widths` are how far the two leading columns of a score can move a row
    together: noise of this width hides any gap that they alone make.
    """

    columns: list[str]
    weights: list[NDArray[np.float64]]
    widths: NDArray[np.float64]
    leading: list[list[str]]  # columns that make most of each score

    @property
    def n_scores(self) -> int:
        """Number of scores."""
        return int(self.widths.size)

    def transform(self, codes: list[NDArray[np.intp]]) -> NDArray[np.float64]:
        """Return the scores of rows; codes of missing or new values are -1 or beyond others."""
        out = np.zeros((len(codes[0]), self.n_scores))
        for code, weights in zip(codes, self.weights, strict=True):
            unknown = len(weights) - 1
            out += weights[np.where((code < 0) | (code > unknown), unknown, code)]
        return out


def category_scores(
    names: list[str], codes: list[NDArray[np.intp]], sizes: list[int], *, at_least: int = 0
) -> CategoryScores | None:
    """Find in what columns of categories agree; None where they do not.

    Scores have an eigenvalue above those of columns that are permuted one by one, and three
    columns contribute to each. `codes` are places among the `sizes` values of each column, -1 for
    missing. `at_least` scores are returned in any case, for a table that has nothing else.
    """
    if not names or (len(names) < 3 and not at_least):
        return None
    rng = np.random.default_rng(0)
    n = len(codes[0])
    n_used = int(min(N_ROWS, max(FEWEST_ROWS, MOST_PRODUCTS // max(sum(sizes), 1) ** 2)))
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
    # Twice the rounding of an eigenvalue: columns that are independent by design have 1.
    chosen = np.flatnonzero((values > limit + 1e-9) & (two <= TWO_COLUMNS))[:MAX_SCORES]
    if chosen.size < at_least:
        chosen = np.arange(min(at_least, values.size))
    if chosen.size == 0:
        return None
    return _scores(blocks, starts, vectors[:, chosen], parts[:, chosen])


@dataclass(frozen=True)
class _Block:
    """A column of categories: rare values together, and indicators (z - p) / sqrt(p)."""

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
        # Rare values share the place after the common ones; the last entry is of missing values.
        places = np.full(size + 1, common.size, dtype=np.intp)
        places[common] = np.arange(common.size)
        n_values = common.size + int(counts.sum() > counts[common].sum())
        places[-1] = -1
        new = places[code]
        shares = np.bincount(new[new >= 0], minlength=n_values)[:n_values] / n_known
        indicators = (np.eye(n_values) - shares) / np.sqrt(np.maximum(shares, 1e-12))
        # A missing value is as the mean of the others.
        indicators = np.vstack([indicators, np.zeros(n_values)])
        return cls(name, places, shares, indicators[new])


def _eigen(blocks: list[NDArray]) -> tuple[NDArray, NDArray]:
    """Return eigenvalues, from large to small, and eigenvectors of the indicators' moments."""
    A = np.hstack(blocks)
    n, width = A.shape
    if width <= n:
        values, vectors = np.linalg.eigh(A.T @ A / n)
        return values[::-1], vectors[:, ::-1]
    # As many values as there are rows have an eigenvalue above 0.
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
        # (z - p) / sqrt(p) of the value l: 1 / sqrt(p_l) in its place less sqrt(p) in all.
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
