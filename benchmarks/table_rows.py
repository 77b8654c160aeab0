"""Rows of an artificial table: memberships, correlated scores, and columns derived from them."""

import numpy as np

ASSOCIATION = 0.3


class Rows:
    """Rows of a table, with methods that draw columns.

    Row i has a membership vector e_i, and every column that depends on the groups depends on them
    through e_i only. With groups, e_i is the unit vector of the group of row i. Without groups,
    e_i is Gaussian with the mean pi and the covariance diag(pi) - pi pi' of those unit vectors:
    scores have the same means, variances and correlations as before, but they are one Gaussian.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of the draw.
    n : int
        Number of rows.
    shares : tuple of float
        Shares pi of the groups.
    grouped : bool
        Whether there are groups.
    """

    def __init__(self, rng, n, shares, *, grouped):
        self.rng, self.n, self.k = rng, n, len(shares)
        shares = np.asarray(shares)
        if grouped:
            ends = np.round(n * np.cumsum(shares)).astype(int)
            sizes = np.diff(ends, prepend=0)
            self.groups = rng.permutation(np.repeat(np.arange(self.k), sizes))
            self.members = np.eye(self.k)[self.groups]
        else:
            self.groups = None
            # (D^1/2 - pi pi^1/2')(...)' = D - pi pi' with D = diag(pi), as pi sums to 1.
            root = np.sqrt(shares)
            noise = rng.normal(size=(n, self.k))
            self.members = shares + noise * root - np.outer(noise @ root, shares)

    # -------------------------------------------------------------- numbers

    def scores(self, pattern, distance, *, common=0.3, n_factors=2):
        """Return correlated scores of unit variance within groups, with means by a pattern.

        Every entry of the pattern is changed by about 10 %. The pattern is then scaled: on the
        line through their means, the two nearest groups are `distance` standard deviations apart.

        Parameters
        ----------
        pattern : array-like of shape (k, p)
            Means of the groups, up to a factor.
        distance : float
            Minimum distance between two groups.
        common : float
            Share of the variance within groups that columns have in common, by factors.
        n_factors : int
            Number of those factors.
        """
        pattern = np.array(pattern, dtype=float)
        pattern *= 1 + 0.1 * self.rng.normal(size=pattern.shape)
        p = pattern.shape[1]
        loadings = self.rng.normal(size=(n_factors, p))
        loadings *= np.sqrt(common / (loadings**2).sum(axis=0))
        between = [a - b for i, a in enumerate(pattern) for b in pattern[:i]]
        nearest = min(_separation(gap, loadings, 1 - common) for gap in between)
        noise = self.rng.normal(size=(self.n, n_factors)) @ loadings
        noise += np.sqrt(1 - common) * self.rng.normal(size=(self.n, p))
        return self.members @ pattern * (distance / nearest) + noise

    def noise(self, p=1, common=0.0):
        """Return columns of scores that are unrelated to the groups."""
        shared = self.rng.normal(size=(self.n, 1))
        own = self.rng.normal(size=(self.n, p))
        return (np.sqrt(common) * shared + np.sqrt(1 - common) * own).T

    def counts(self, rate, dispersion=0.0):
        """Return Poisson counts, or negative binomial ones of variance m + dispersion m^2."""
        rate = np.minimum(rate, 1e7)
        if dispersion > 0:
            rate = rate * self.rng.gamma(1 / dispersion, dispersion, size=np.shape(rate))
        return self.rng.poisson(rate)

    # -------------------------------------------------------------- categories, ids, dates

    def category(self, levels, *probabilities):
        """Return a level for each row.

        `probabilities` are those of the levels, for all rows or per group. Without groups, columns
        are slightly associated, like answers in surveys: memberships are moved towards their mean
        by a factor of `ASSOCIATION`, so that few probabilities have to be clipped.
        """
        chances = np.broadcast_to(np.array(probabilities, dtype=float), (self.k, len(levels)))
        members = self.members
        if self.groups is None:
            middle = members.mean(axis=0)
            members = middle + ASSOCIATION * (members - middle)
        chances = np.maximum(members @ chances, 1e-9)
        edges = np.cumsum(chances, axis=1) / chances.sum(axis=1, keepdims=True)
        chosen = (self.rng.random((self.n, 1)) > edges[:, :-1]).sum(axis=1)
        return np.asarray(levels)[chosen]

    def flag(self, *shares):
        """Return True or False for each row, given the share of True for all rows or per group."""
        return self.category([True, False], *([share, 1 - share] for share in shares))

    def yes_no(self, *shares):
        """Return "yes" or "no" for each row, given the share of "yes"."""
        return np.where(self.flag(*shares), "yes", "no")

    def ids(self, first, text="{}"):
        """Return a different number for each row, in no order, as a number or as text."""
        numbers = first + self.rng.permutation(3 * self.n)[: self.n]
        return numbers if text == "{}" else np.array([text.format(i) for i in numbers])

    def days(self, start, n_days):
        """Return dates, uniform over a number of days."""
        return np.datetime64(start) + self.rng.integers(n_days, size=self.n)

    # -------------------------------------------------------------- defects

    def with_missing(self, frame, columns, low, high, driver):
        """Return a table with missing values, in each column a share between low and high.

        They are missing at random: more often if `driver`, which is complete, is large.
        """
        frame = frame.copy()
        ranks = np.argsort(np.argsort(driver)) / max(self.n - 1, 1)
        for column in columns:
            share = self.rng.uniform(low, high)
            gone = self.rng.random(self.n) < share * (0.5 + ranks)
            frame[column] = frame[column].mask(gone)
        return frame


def _separation(gap, loadings, rest):
    """Return the distance of two means, in standard deviations along the line through them."""
    variance = ((loadings @ gap) ** 2).sum() + rest * (gap @ gap)
    return (gap @ gap) / np.sqrt(variance)


def measured(score, mean, spread, decimals):
    """Return a measurement, rounded as by an instrument."""
    return np.round(mean + spread * score, decimals)


def skewed(score, median, spread, decimals=2):
    """Return a positive value such as an amount of money: log-normal, `spread` of its log."""
    return np.round(median * np.exp(spread * score), decimals)
