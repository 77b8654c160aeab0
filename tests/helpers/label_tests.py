"""Shared by the tests of `label_test` and of its picture."""

import numpy as np

from volmar.evidence import LabelTestResult
from volmar.evidence.label_test import LabelJoin

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.866]])


def three(distance=5.0, n=600, seed=0):
    """Three round groups at equal distances in the plane."""
    y = np.arange(n) % 3
    return distance * CORNERS[y] + np.random.default_rng(seed).normal(size=(n, 2)), y


def chain(k):
    """Return a constructed result: clusters joined in a chain, every second one merged."""
    joins = [
        LabelJoin(
            tuple(range(i)),
            (i,),
            10 * i,
            10,
            ((i - 1,), (i,)),
            (10, 10),
            0.9 if i % 2 else 0.001,
            0.01,
            -0.5 if i % 2 else 0.5,
        )
        for i in range(1, k)
    ]
    ordered = sorted(joins, key=lambda join: join.is_real)
    side = {i: (i,) for i in range(k)}
    tree = []
    for join in ordered:
        left, right = side[join.tested[0][0]], side[join.tested[1][0]]
        sizes = (10 * len(left), 10 * len(right), join.tested, join.n_tested)
        rest = (join.p_value, join.level, join.effect)
        tree.append(LabelJoin(left, right, *sizes, *rest))
        together = left + right
        side.update(dict.fromkeys(together, together))
    labels = np.repeat(np.arange(k), 10)
    return LabelTestResult(
        tuple(tree), tuple(range(k)), (10,) * k, (), (), 0, 0.05, labels - labels % 2
    )
