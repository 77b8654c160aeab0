"""Methods that find the number of clusters, and their results on draws of the cases."""

import warnings
from typing import NamedTuple
from zlib import crc32

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score

from benchmarks import number_data as data
from benchmarks.number_data import CASES
from benchmarks.rivals import FINDING_THE_NUMBER
from benchmarks.timing import in_turns, time_limit
from volmar import MSPC, AutoClusterer

LIMIT_SECONDS = 60.0
LINEAR, CURVED = (f'AutoClusterer(shapes="{shapes}")' for shapes in ("linear", "curved"))
OURS = {
    LINEAR: lambda X, seed: AutoClusterer(shapes="linear", random_state=seed).fit(X).labels_,
    CURVED: lambda X, seed: AutoClusterer(shapes="curved", random_state=seed).fit(X).labels_,
}
RIVALS = {rival.NAME: rival.find_clusters for rival in FINDING_THE_NUMBER if rival.available()}
ABSENT = tuple(rival.NAME for rival in FINDING_THE_NUMBER if not rival.available())
METHODS = {**OURS, **RIVALS}
FIT = "MSPC with k given"
LARGE = (100_000, 50)
N_CENTRES = 4


class Draws(NamedTuple):
    """Number of draws per case for the linear method, the curved one, and each rival."""

    linear: int
    curved: int
    rivals: int

    def of(self, method, factor):
        """Return the number of draws of a method, `factor` times as many for those of volmar."""
        ours = {LINEAR: factor * self.linear, CURVED: factor * self.curved}
        return ours.get(method, self.rivals)


class Found(NamedTuple):
    """Result of a method on one draw; `k` is 0 if it failed."""

    k: int
    n_groups: int
    ari: float

    @property
    def failed(self):
        """Whether there are no labels."""
        return self.k == 0


def measured(draws, seed, cases=CASES, methods=METHODS):
    """Return the results: {topic: {case: {method: [Found of each draw]}}}."""
    calls = [
        (case, i, [name for name in methods if i < draws[case.topic].of(name, case.factor)])
        for case in cases
        for i in range(max(draws[case.topic].of(name, case.factor) for name in methods))
    ]
    every = Parallel(n_jobs=-1)(delayed(_one_draw)(*call, seed) for call in calls)
    results = {}
    for (case, _, _), by_method in zip(calls, every, strict=True):
        here = results.setdefault(case.topic, {}).setdefault(case.name, {})
        for method, one in by_method.items():
            here.setdefault(method, []).append(one)
    return results


def draw_rows(case, draw, seed):
    """Return rows and groups of a case in random order, the same for every method."""
    rng = np.random.default_rng(crc32(repr((seed, case.topic, case.name, draw)).encode()))
    X, y = case.draw(rng)
    order = rng.permutation(len(y))
    return X[order], y[order]


def _one_draw(case, draw, methods, seed):
    X, y = draw_rows(case, draw, seed)
    return {name: found(METHODS[name], X, y, draw) for name in methods}


def found(method, X, y, seed):
    """Return the result of a method on the rows, within the time limit."""
    n_groups = len(np.unique(y))
    try:
        with warnings.catch_warnings(), time_limit(LIMIT_SECONDS):
            warnings.simplefilter("ignore")
            labels = method(X.copy(), seed)
    except Exception:  # every exception of a rival counts as a failure
        return Found(0, n_groups, 0.0)
    k = max(1, len(np.unique(labels[labels >= 0])))
    return Found(k, n_groups, adjusted_rand_score(y, labels))


class Times(NamedTuple):
    """Times of all methods on 1,000 rows, of volmar and of a fit with given k on many rows."""

    small: dict
    large: dict


def timed(seed, repeats=3):
    """Return the times of the methods on blobs and on noise, in one process."""
    blobs = next(case for case in CASES if case.name == data.blobs_name(N_CENTRES, 10, "equal"))
    X, y = draw_rows(blobs, 0, seed)
    rng = np.random.default_rng(crc32(repr((seed, "time")).encode()))
    small = {"blobs": X, "noise": rng.normal(size=X.shape)}
    noise = rng.normal(size=LARGE)
    centres = data.centres(N_CENTRES, LARGE[1], rng)
    large = {
        "blobs": (noise + centres[np.arange(len(noise)) % N_CENTRES], N_CENTRES),
        "noise": (noise, 2),
    }
    return Times(
        {
            name: in_turns(
                {m: lambda m=m: found(METHODS[m], X, y, 0) for m in METHODS}, repeats, budget=30.0
            )
            for name, X in small.items()
        },
        {
            name: in_turns(
                {
                    LINEAR: lambda: found(OURS[LINEAR], X, noise[:, 0] > 0, 0),
                    FIT: lambda: MSPC(k, random_state=0).fit(X),
                },
                repeats,
            )
            for name, (X, k) in large.items()
        },
    )
