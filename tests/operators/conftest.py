"""Operators of every kind, with the equivalent dense matrices."""

import numpy as np
import pytest
from helpers.laplacians import moons, random_spd

from volmar.operators.dense import DenseOperator
from volmar.operators.sparse import SparseOperator


@pytest.fixture(params=["dense", "sparse"])
def backend(request, rng):
    """An operator and the same matrix as a dense array."""
    n = 60
    if request.param == "dense":
        Q = random_spd(rng, n)
        Q = (Q + Q.T) / 2
        return DenseOperator(Q, shift=0.25), Q + 0.25 * np.eye(n)
    L, _ = moons(n)
    return SparseOperator(L, shift=1 / n, bounds=(0, 2)), L.toarray() + np.eye(n) / n
