"""Artificial data with known labels: the three sets of the JMLR paper, and blobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np
from sklearn import datasets

from volmar._checks import check_count, check_number, check_random_state
from volmar._memory import require_memory
from volmar._vectors import check_vector

__all__ = ["make_blobs", "make_two_circles", "make_two_gaussians", "make_two_moons"]

# Maximum noise and distance, for which squares of coordinates do not overflow.
FARTHEST = 1e100


def make_two_gaussians(
    n_samples: int = 200, *, random_state: int | np.random.RandomState | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two crossed Gaussians in parallel planes, the 2gaussians set of JMLR section 8.2.

    Half of the rows have the covariance diag(100, 4) and third coordinate +3 (label 0), the others
    diag(4, 100) and -3 (label 1). Both have mean zero in the first two coordinates. If `n_samples`
    is odd, label 0 has one row more.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows, at least 2.
    random_state : int, RandomState or None, default=None
        Random seed of the draw and of the shuffle.

    Returns
    -------
    X : ndarray of shape (n_samples, 3)
        The rows.
    y : ndarray of shape (n_samples,)
        Labels, 0 or 1.

    Examples
    --------
    >>> from volmar.datasets import make_two_gaussians
    >>> X, y = make_two_gaussians(100, random_state=0)
    >>> X.shape, sorted(set(X[y == 0, 2].tolist()))
    ((100, 3), [3.0])
    """
    n_samples = _checked_size(n_samples, 3)
    rng = check_random_state(random_state)
    y = rng.permutation(np.arange(n_samples) % 2)
    X = rng.standard_normal((n_samples, 3))
    X[:, :2] *= np.array([[10.0, 2.0], [2.0, 10.0]])[y]
    X[:, 2] = np.array([3.0, -3.0])[y]
    return X, y


def make_two_moons(
    n_samples: int = 200,
    *,
    noise: float = 0.05,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two half circles with `sklearn.datasets.make_moons`, as 2moons of the JMLR paper.

    The paper gives no formula. The default noise was estimated from its figure.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows, at least 2.
    noise : float, default=0.05
        Standard deviation of the Gaussian noise.
    random_state : int, RandomState or None, default=None
        Random seed of the draw and of the shuffle.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The rows.
    y : ndarray of shape (n_samples,)
        Labels, 0 or 1.

    Examples
    --------
    >>> from volmar.datasets import make_two_moons
    >>> X, y = make_two_moons(101, random_state=0)
    >>> X.shape, sorted([int((y == 0).sum()), int((y == 1).sum())])
    ((101, 2), [50, 51])
    """
    n_samples = _checked_size(n_samples, 2)
    noise = check_number("noise", noise, low=0.0, high=FARTHEST)
    rng = check_random_state(random_state)
    return datasets.make_moons(n_samples, noise=noise, random_state=rng)


def make_two_circles(
    n_samples: int = 200,
    *,
    noise: float = 0.05,
    factor: float = 0.5,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two circles with `sklearn.datasets.make_circles`, like 2circles of the JMLR paper.

    The paper gives no formula. The default noise and factor were estimated from its figure.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows, at least 2.
    noise : float, default=0.05
        Standard deviation of the Gaussian noise.
    factor : float, default=0.5
        Radius of the inner circle, in [0, 1). The outer circle has radius 1.
    random_state : int, RandomState or None, default=None
        Random seed of the draw and of the shuffle.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The rows.
    y : ndarray of shape (n_samples,)
        Labels, 0 for the outer and 1 for the inner circle.

    Examples
    --------
    >>> from volmar.datasets import make_two_circles
    >>> X, y = make_two_circles(100, noise=0.0, factor=0.25, random_state=0)
    >>> sorted(set((X**2).sum(axis=1).round(6).tolist()))
    [0.0625, 1.0]
    """
    n_samples = _checked_size(n_samples, 2)
    noise = check_number("noise", noise, low=0.0, high=FARTHEST)
    factor = check_number("factor", factor, low=0.0, high=1.0)
    if factor == 1.0:
        raise ValueError("factor must be below 1, got 1.0, for which the two circles are equal.")
    rng = check_random_state(random_state)
    return datasets.make_circles(n_samples, noise=noise, factor=factor, random_state=rng)


def make_blobs(
    n_samples: int = 200,
    *,
    n_features: int = 2,
    centers: int = 2,
    imbalance: float | Sequence[float] = 1.0,
    separation: float = 6.0,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Draw spherical Gaussian blobs with given sizes and distances.

    Each blob has standard deviation 1. The centres form a regular polygon in the first two
    features (a line if there is one feature), with distance `separation` between neighbours. For
    two balanced blobs, the lowest possible error is :math:`\Phi(-separation / 2)`.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows, at least one per centre.
    n_features : int, default=2
        Number of features.
    centers : int, default=2
        Number of blobs.
    imbalance : float or sequence of float, default=1.0
        If a number r >= 1, the first class is r times as large as the last, with a constant ratio
        between consecutive classes. If a sequence, the fraction of each class; they must sum to 1.
        Class sizes are the fractions of `n_samples` rounded to integers (largest remainder first,
        at least one row per class). They do not depend on the seed.
    separation : float, default=6.0
        Distance between neighbouring centres, in standard deviations.
    random_state : int, RandomState or None, default=None
        Random seed of the draw and of the shuffle.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        The rows.
    y : ndarray of shape (n_samples,)
        Labels, 0 to ``centers - 1``.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.datasets import make_blobs
    >>> X, y = make_blobs(100, imbalance=[0.9, 0.1], random_state=0)
    >>> np.bincount(y).tolist()
    [90, 10]
    """
    centers = check_count("centers", centers, low=1)
    n_features = check_count("n_features", n_features, low=1)
    n_samples = _checked_size(n_samples, n_features, low=centers)
    separation = check_number("separation", separation, low=0.0, high=FARTHEST)
    sizes = _class_sizes(n_samples, _fractions(imbalance, centers))
    return datasets.make_blobs(
        sizes,
        centers=_polygon(centers, n_features, separation),
        cluster_std=1.0,
        random_state=check_random_state(random_state),
    )


def _checked_size(n_samples: int, n_features: int, low: int = 2) -> int:
    n_samples = check_count("n_samples", n_samples, low=low)
    require_memory(
        4 * 8.0 * n_samples * n_features,  # copies while rows are drawn and shuffled
        f"data of n_samples={n_samples} and n_features={n_features}",
        "Use a smaller n_samples or n_features.",
    )
    return n_samples


def _fractions(imbalance: float | Sequence[float], centers: int) -> np.ndarray:
    if isinstance(imbalance, Real):
        ratio = check_number("imbalance", imbalance, low=1.0, high=FARTHEST)
        weights = ratio ** np.linspace(1.0, 0.0, centers)
        return weights / weights.sum()
    fractions = check_vector("imbalance", imbalance)
    if fractions.shape != (centers,):
        raise ValueError(
            f"imbalance must have one fraction for each of the {centers} centers, got "
            f"{imbalance!r}."
        )
    if not (fractions > 0).all() or not math.isclose(fractions.sum(), 1.0, rel_tol=1e-9):
        raise ValueError(f"imbalance must be positive fractions that sum to 1, got {imbalance!r}.")
    return fractions


def _class_sizes(n_samples: int, fractions: np.ndarray) -> list[int]:
    """Return positive integers that sum to `n_samples` and are nearest to the fractions."""
    exact = n_samples * fractions
    # 1e-9 allows for rounding: 100 * 0.29 is 28.999999999999996, which must become 29.
    sizes = np.maximum(np.floor(exact + 1e-9).astype(int), 1)
    while sizes.sum() != n_samples:
        step = 1 if sizes.sum() < n_samples else -1
        shortfall = step * (exact - sizes)
        # A class must keep at least one row.
        shortfall[(sizes == 1) & (step == -1)] = -np.inf
        sizes[np.argmax(shortfall)] += step
    return [int(size) for size in sizes]


def _polygon(centers: int, n_features: int, separation: float) -> np.ndarray:
    points = np.zeros((centers, n_features))
    if centers == 1:
        return points
    if n_features == 1:
        points[:, 0] = separation * (np.arange(centers) - (centers - 1) / 2)
        return points
    radius = separation / (2 * math.sin(math.pi / centers))
    angles = 2 * np.pi * np.arange(centers) / centers
    points[:, 0], points[:, 1] = radius * np.cos(angles), radius * np.sin(angles)
    return points
