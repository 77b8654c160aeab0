"""Columns as features: long tails, missing values, scales, and categories that agree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import fix_signs
from volmar.tables.errors import TableError, quoted_names, shown

Array = NDArray[np.float64]

BLOCK_ROWS = 4096  # rows that are scaled at once

# ---------------------------------------------------------------------- long tails


@dataclass(frozen=True)
class Tails:
    """Shorten long tails of columns, by a log and by limits for outliers."""

    shifts: Array  # x becomes log(x + shift); NaN for a column without a log
    steps: Array  # distance between values before a log: 1 for counts, 0 if continuous
    leasts: Array  # minima before a log; lower values are set to these
    lows: Array  # limits for outliers, after the log; infinite for no limit
    highs: Array

    def dithered(self, X: Array, rng: np.random.Generator) -> Array:
        """Add uniform noise to shortened columns, as wide as the steps before the log.

        Equal steps between counts become unequal after a log, and the steps between small counts
        look like gaps.
        """
        places = np.flatnonzero(self.steps)
        if not places.size:
            return X
        X = X.copy()
        noise = rng.uniform(-0.5, 0.5, (len(X), places.size)) * self.steps[places]
        X[:, places] = np.log(np.exp(X[:, places]) + noise)
        return X

    def shorten(self, X: Array, *, fills: bool) -> tuple[Array, int, NDArray[np.bool_]]:
        """Return columns with shortened tails, the number of outliers, and the outlying rows.

        With `fills`, outliers become missing. Otherwise they are set to the limits, where many of
        them would look like a group. X is not changed.
        """
        logs = np.flatnonzero(np.isfinite(self.shifts))
        has_limits = np.isfinite(self.lows).any() or np.isfinite(self.highs).any()
        if not logs.size and not has_limits:
            return X, 0, np.zeros(len(X), dtype=bool)
        below = (X[:, logs] + self.shifts[logs] <= np.exp(self.lows[logs])).any(axis=1)
        X = X.copy()
        # A new value may be below the fitted minimum, where the log may not exist.
        X[:, logs] = np.log(np.maximum(X[:, logs], self.leasts[logs]) + self.shifts[logs])
        near = np.clip(X, self.lows, self.highs)  # NaN stays NaN
        is_far = (near != X) & ~np.isnan(X)
        found = np.where(is_far, np.nan, X) if fills else near
        return found, int(np.count_nonzero(is_far)), is_far.any(axis=1) | below


def find_tails(X: Array) -> Tails:
    """Find the columns with a long tail. NaN is missing.

    The log of a column without negative values is taken if the column is skewed and its log is
    not. Skewness is (q95 + q5 - 2 q50) / (q95 - q5) of the percentiles, which does not depend on
    a few outliers. Two groups of different size are skewed before and after the log, and are left
    unchanged. For columns with zeros or small counts the log is log(m + x), where m is the median
    of the positive values.
    """
    d = X.shape[1]
    shifts, steps, leasts = np.full(d, np.nan), np.zeros(d), np.zeros(d)
    lows, highs = np.full(d, -np.inf), np.full(d, np.inf)
    few = X
    if len(X) > 10_000:  # enough for percentiles
        few = X[np.sort(np.random.default_rng(0).choice(len(X), 10_000, replace=False))]
    for j in range(d):
        column = few[:, j]
        column = column[np.isfinite(column)]
        if not column.size:
            continue
        step, least = _step(column), float(np.nanmin(X[:, j]))
        shift = _log_shift(column, least, step)
        if shift is not None:
            shifts[j], steps[j], leasts[j] = shift, step, least
            column = np.log(column + shift)
        with np.errstate(over="ignore"):
            low, middle, high = np.percentile(column, (5, 50, 95))
            # Outliers are ten times as far out, at 16 standard deviations of a normal column.
            limits = middle - 10.0 * (middle - low), middle + 10.0 * (high - middle)
            n_far = np.count_nonzero((column < limits[0]) | (column > limits[1]))
            # More than 1 % are a group, which gets no limit.
            if low < middle < high and n_far <= 0.01 * column.size:
                lows[j], highs[j] = limits
    return Tails(shifts, steps, leasts, lows, highs)


def _step(column: Array) -> float:
    """Return the median distance between neighbouring values, 0 for a column without ties."""
    different = np.unique(column)
    return float(np.median(np.diff(different))) if 1 < different.size < column.size else 0.0


def _log_shift(column: Array, least: float, step: float) -> float | None:
    """Return the shift that is added before the log, or None for a column without a log."""
    if not np.isfinite(least) or least < 0 or np.unique(column).size < 10:
        return None
    before = _skewness(column)
    low, high = np.percentile(column, (5, 95))
    # Over a range of less than 1 to 4, a log changes little. A skewness of two standard errors
    # above 0.25 is not that of a symmetric column.
    if high < 4.0 * low or not before >= 0.25 + 2.0 / np.sqrt(column.size):
        return None
    shift = 0.0
    # Small counts are far apart on a log scale: log(x) needs a minimum of at least ten steps
    # between values, log(x + m) a median m of at least three.
    if least < 10 * step or least == 0:
        shift = float(np.median(column[column > 0]))
        if shift < 3 * step:
            return None
    after = _skewness(np.log(column + shift))
    return shift if abs(after) <= 0.67 * before else None  # at least a third must disappear


def _skewness(column: Array) -> float:
    low, middle, high = np.percentile(column, (5, 50, 95))
    with np.errstate(over="ignore", invalid="ignore"):
        return float((high + low - 2 * middle) / (high - low)) if high > low else 0.0


# ---------------------------------------------------------------------- missing values

N_NEAREST = 5  # number of similar rows from which a value is filled in


@dataclass(frozen=True)
class Filled:
    """Filled-in values: their positions, and the values of similar rows."""

    rows: NDArray[np.intp]  # rows and columns of the filled-in values
    columns: NDArray[np.intp]
    choices: Array  # values of the most similar rows, (m, 5)
    is_drawn: NDArray[np.bool_]  # True in a discrete column, for which one of the choices is drawn

    def draw(self, rng: np.random.Generator) -> Array:
        """Draw one of the choices, or a normal value with their mean and standard deviation.

        Medians would vary less than observed values do, and many of them would look like a group.
        """
        m, k = self.choices.shape
        one = self.choices[np.arange(m), rng.integers(k, size=m)]
        # Not with n - 1: the mean of the choices varies, too, and adds the rest of the variance.
        spread = self.choices.std(axis=1)
        between = self.choices.mean(axis=1) + spread * rng.standard_normal(m)
        return np.where(self.is_drawn, one, between)


@dataclass(frozen=True)
class Fills:
    """Fill in missing values from similar rows.

    A missing value becomes the median of the five most similar rows with a value in that column.
    The median of the whole column, which is used for rows without any values, would add a group.
    """

    donors: Array  # rows from which values are taken; empty if no values were missing
    medians: Array
    scales: Array  # standard deviations, the units of distances between rows

    def fill(self, X: Array) -> tuple[Array, Filled | None]:
        """Return rows without missing values (X itself if none is), and the filled-in values."""
        unknown = np.isnan(X)
        rows = np.flatnonzero(unknown.any(axis=1))
        if not rows.size:
            return X, None
        X = X.copy()
        found: list[tuple[NDArray, NDArray, Array]] = []
        known_there = ~np.isnan(self.donors)
        there = np.where(known_there, (self.donors - self.medians) / self.scales, 0.0)
        for start in range(0, rows.size, 2048):
            some = rows[start : start + 2048]
            known = ~unknown[some]
            here = np.where(known, (X[some] - self.medians) / self.scales, 0.0)
            apart = _distances(here, known, there, known_there)
            apart[~known.any(axis=1)] = np.nan
            absent = np.asarray(~known)
            for j in np.flatnonzero(absent.any(axis=0)):
                which = np.flatnonzero(absent[:, j])
                choices = self._choices(int(j), apart[which], known_there[:, j])
                X[some[which], j] = np.median(choices, axis=1)
                found.append((some[which], np.full(which.size, j), choices))
        # Many values are repeated in a discrete column.
        known_values = (column[~np.isnan(column)] for column in self.donors.T)
        few = np.array([np.unique(known).size < 0.9 * known.size for known in known_values])
        at, columns, values = (np.concatenate(part) for part in zip(*found, strict=True))
        return X, Filled(at, columns, values, few[columns])

    def _choices(self, j: int, apart: Array, known_there: NDArray) -> Array:
        """Return the values in column j of the rows most similar to each row, (m, 5)."""
        out = np.full((len(apart), N_NEAREST), self.medians[j])
        able = np.flatnonzero(known_there)
        if not able.size:
            return out
        # Rows without any values have no distances.
        lonely: NDArray = np.asarray(np.isnan(apart).any(axis=1))
        distance = np.where(lonely[:, None], 0.0, apart[:, able])
        if able.size > N_NEAREST:
            nearest = np.argpartition(distance, N_NEAREST - 1, axis=1)[:, :N_NEAREST]
        else:
            nearest = np.tile(np.arange(N_NEAREST) % able.size, (len(apart), 1))
        out[:] = self.donors[able[nearest], j]
        out[lonely] = self.medians[j]
        return out


def _distances(here: Array, known: NDArray, there: Array, known_there: NDArray) -> Array:
    """Return squared distances. A term with a missing value is replaced by its expectation, 2."""
    mask, mask_there = known.astype(np.float64), known_there.astype(np.float64)
    return (
        (here**2) @ mask_there.T
        - 2.0 * here @ there.T
        + mask @ (there**2).T
        + 2.0 * mask @ (1.0 - mask_there).T
    )


def learn_fills(X: Array) -> Fills:
    """Choose donor rows: a random choice among those with the lowest numbers of missing values."""
    n, d = X.shape
    n_missing = np.isnan(X).sum(axis=1)
    # At most 500 rows and two million entries, for the time and for the size of the model.
    n_donors = int(np.clip(2_000_000 // max(d, 1), 1, 500))
    order = np.random.default_rng(0).permutation(n)
    chosen = np.sort(order[np.argsort(n_missing[order], kind="stable")[:n_donors]])
    if not n_missing.any():
        # New rows may have missing values. They get medians, so that the model stores no rows.
        return Fills(np.empty((0, d)), np.median(X, axis=0), np.ones(d))
    scales = np.nanstd(X, axis=0)
    return Fills(X[chosen], np.nanmedian(X, axis=0), np.where(scales > 0, scales, 1.0))


# ---------------------------------------------------------------------- numbers


class ColumnMoments(NamedTuple):
    """Number of rows, and the range, mean and sum of squared deviations of each column."""

    n_rows: int
    low: Array
    high: Array
    mean: Array
    squares: Array

    def merged(self, other: ColumnMoments) -> ColumnMoments:
        """Return the moments of the rows of both, by the update of Chan, Golub and LeVeque."""
        n_rows = self.n_rows + other.n_rows
        part = other.n_rows / max(n_rows, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            step = other.mean - self.mean
            return ColumnMoments(
                n_rows,
                np.minimum(self.low, other.low),
                np.maximum(self.high, other.high),
                self.mean + step * part,
                self.squares + other.squares + step * step * self.n_rows * part,
            )

    def offsets_and_scales(self, source: str, names: list[str], scale: str) -> tuple[Array, Array]:
        """Return the offset and the scale of each column (standard deviations with n)."""
        d = len(names)
        if scale == "none":
            return np.zeros(d), np.ones(d)
        with np.errstate(over="ignore", invalid="ignore"):
            if scale == "minmax":
                offsets, scales = self.low, self.high - self.low
            else:
                offsets, scales = self.mean, np.sqrt(self.squares / self.n_rows)
        wrong = np.flatnonzero(~(np.isfinite(offsets) & np.isfinite(scales) & (scales > 1e-150)))
        if wrong.size:
            j = wrong[0]
            raise TableError(
                f"{source}: column {shown(names[j])} ranges from {self.low[j]:.3g} to "
                f"{self.high[j]:.3g}, too near the limits of float64 to be scaled. Change its "
                "unit, or name it in drop=."
            )
        return offsets, scales


def column_moments(X: Array) -> ColumnMoments:
    """Return the moments of columns. They must not have missing values."""
    n, d = X.shape
    squares = np.zeros(d)
    if n == 0:
        return ColumnMoments(0, np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d), squares)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = X.mean(axis=0)
        for start in range(0, n, BLOCK_ROWS):
            centred = X[start : start + BLOCK_ROWS] - mean
            squares += np.einsum("ij,ij->j", centred, centred)
    return ColumnMoments(n, X.min(axis=0), X.max(axis=0), mean, squares)


@dataclass(frozen=True)
class NumberFeatures:
    """Transform numeric columns: shorten tails, fill in, and compute (x - offset) / scale."""

    tails: Tails | None
    fills: Fills | None  # None if missing values are dropped or raise an error
    offsets: Array
    scales: Array

    def complete(
        self, X: Array, notes: list[str]
    ) -> tuple[Array, Filled | None, NDArray[np.bool_]]:
        """Return columns with shortened tails, filled-in values, and the mask of outlying rows."""
        outlying = np.zeros(len(X), dtype=bool)
        if self.tails is not None:
            X, outlying = _shortened(self.tails, X, notes, fills=self.fills is not None)
        X, filled = (X, None) if self.fills is None else self.fills.fill(X)
        return X, filled, outlying

    def is_log(self, k: int) -> bool:
        """Return whether the log of column k is taken."""
        return self.tails is not None and bool(np.isfinite(self.tails.shifts[k]))

    @property
    def has_steps(self) -> bool:
        """Whether the log of counts is taken, so that `dither_into` adds noise to them."""
        return self.tails is not None and bool(self.tails.steps.any())

    def scale_into(self, out: Any, X: Array) -> None:
        """Write (X - offsets) / scales to `out`, in blocks for speed with either memory order."""
        for start in range(0, len(X), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            np.subtract(X[rows], self.offsets, out=out[rows])
            out[rows] /= self.scales

    def dither_into(self, out: Any, rng: np.random.Generator, filled: Filled | None) -> None:
        """Add noise to the logs of counts and to filled-in values."""
        own = out * self.scales + self.offsets
        if filled is not None:
            own[filled.rows, filled.columns] = filled.draw(rng)
        if self.tails is not None:
            own = self.tails.dithered(own, rng)
        self.scale_into(out, own)

    def rescaled(self, offsets: Array, scales: Array) -> NumberFeatures:
        """Return the composition: with z = (x - a) / s, (z - b) / t is (x - (a + b s)) / (s t)."""
        offsets = self.offsets + offsets * self.scales
        return replace(self, offsets=offsets, scales=self.scales * scales)


def learn_features(
    source: str, names: list[str], X: Array, *, scale: str, fills: bool, notes: list[str]
) -> tuple[NumberFeatures, Array, Filled | None, NDArray[np.bool_]]:
    """Return the fitted transformation, and the columns as completed by it."""
    outlying = np.zeros(len(X), dtype=bool)
    tails = find_tails(X) if scale == "auto" else None
    if tails is not None:
        if logs := [name for k, name in enumerate(names) if np.isfinite(tails.shifts[k])]:
            notes.append(
                f"columns with a long tail were put on a log scale: {quoted_names(logs)} "
                "(scale='standard' keeps their scale)"
            )
        X, outlying = _shortened(tails, X, notes, fills=fills)
    learnt, filled = None, None
    if fills:
        learnt = learn_fills(X)
        X, filled = learnt.fill(X)
    offsets, scales = column_moments(X).offsets_and_scales(source, names, scale)
    return NumberFeatures(tails, learnt, offsets, scales), X, filled, outlying


def _shortened(
    tails: Tails, X: Array, notes: list[str], *, fills: bool
) -> tuple[Array, NDArray[np.bool_]]:
    """Return columns with shortened tails, and the mask of the rows with an outlier."""
    X, n_far, outlying = tails.shorten(X, fills=fills)
    if n_far:
        notes.append(
            f"{n_far:,} outlier{'s were' if n_far > 1 else ' was'} "
            + ("treated as missing" if fills else "set to the limit")
            + " (ten times as far from the median as the 5th or 95th percentile)"
        )
    return X, outlying


# ---------------------------------------------------------------------- categories


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
    # With many values, fewer rows are used: the moments of L indicators take n L^2 products.
    n_used = int(min(5_000, max(500, 300_000_000 // max(sum(sizes), 1) ** 2)))
    rows = np.arange(n) if n <= n_used else np.sort(rng.choice(n, n_used, replace=False))
    blocks = [
        _Block.of(name, code[rows], size)
        for name, code, size in zip(names, codes, sizes, strict=True)
    ]
    values, vectors = _eigen([block.indicators for block in blocks])
    limit = 1.0
    # The maximum of 20 permutations is exceeded by chance in 1 of 21 tables.
    for _ in range(20 if len(blocks) > 1 else 0):
        shuffled = [rng.permutation(block.indicators) for block in blocks]
        limit = max(limit, float(_eigen(shuffled)[0][0]))
    starts = np.cumsum([0, *(block.n_values for block in blocks)])
    parts = np.add.reduceat(vectors**2, starts[:-1], axis=0)
    two = -np.sort(-parts, axis=0)[:2].sum(axis=0)
    # The tolerance allows for rounding: columns that are independent by design have 1 exactly. If
    # two columns make up more than 80 % of a score, as city and state, only these two agree.
    chosen = np.flatnonzero((values > limit + 1e-9) & (two <= 0.8))[:10]
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
        # Weights of values below 2 % would depend on only a few rows.
        common = np.flatnonzero(counts >= max(0.02 * n_known, 1))
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
