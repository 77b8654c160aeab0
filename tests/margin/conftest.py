"""Rows and start labels that tests of several margin methods share."""

import pytest


@pytest.fixture
def groups(rng):
    """Two groups of 20 and 40 rows in 5 features, 6 spreads apart."""
    X = rng.standard_normal((60, 5))
    X[:20] += [4.0, 4.0, 2.0, 0.0, 0.0]
    return X


@pytest.fixture
def start(groups):
    """Start labels that are wrong for some rows."""
    return (groups[:, 0] > 1.0).astype(int)


@pytest.fixture
def near_halves(rng):
    """Two groups of 25 and 35 rows in 5 features, 6 spreads apart."""
    X = rng.standard_normal((60, 5))
    X[:25] += [4.0, 4.0, 2.0, 0.0, 0.0]
    return X
