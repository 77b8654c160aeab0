"""Level, power and time of `split_test`.

No method uses labels or the number of groups. Draws are independent and spread over the
processors, with one thread each (LOKY_MAX_CPU_COUNT=1 for one process); times are taken
afterwards, in one process. Noise has 10 features if no other number is given. The limit of the
level is 0.05 plus two binomial standard errors.
"""

import warnings
from zlib import crc32

import numpy as np
from joblib import Parallel, delayed
from sklearn.cluster import KMeans

from benchmarks.table import Table
from benchmarks.timing import in_turns
from volmar import CPMMC, MSPC, KernelCPMMC, SoftLabelMVC
from volmar.evidence import split_test

ALPHA = 0.05
NOISES = {
    "Gaussian, d = 2": lambda rng, n: rng.normal(size=(n, 2)),
    "Gaussian, d = 10": lambda rng, n: rng.normal(size=(n, 10)),
    "Gaussian, d = 100": lambda rng, n: rng.normal(size=(n, 100)),
    "Gaussian, correlated": lambda rng, n: rng.normal(size=(n, 10)) @ _correlating(10),
    "uniform": lambda rng, n: rng.random((n, 10)),
    "Student t(3)": lambda rng, n: rng.standard_t(3, size=(n, 10)),
    "exponential": lambda rng, n: rng.exponential(size=(n, 10)),
    "log-normal": lambda rng, n: rng.lognormal(size=(n, 10)),
}
FLAT = "uniform, d = 2"
LINEAR = {
    "MSPC": MSPC,
    "CPMMC": CPMMC,
    "KMeans": lambda random_state: KMeans(2, n_init=5, random_state=random_state),
}
CURVED = {"KernelCPMMC (a kernel)": KernelCPMMC, "SoftLabelMVC (a graph)": SoftLabelMVC}
N_POWER = 600
# Standard deviations between the groups, share of the second one, target.
PLANTED = ((3.0, 0.5, 0.40), (3.5, 0.5, 0.60), (4.0, 0.5, 0.90), (5.0, 0.1, 0.80))
TIMED = (100_000, 50)


def run(*, full: bool) -> Table:
    draws = 100 if full else 40
    table = _level((200, 600, 2000) if full else (200, 600), draws)
    table.notes += [_level_of_others(20), "", _power(draws // 2), "", _time()]
    return table


def _spread(calls):
    """Return the results of (function, arguments), computed on all processors."""
    return Parallel(n_jobs=-1)(delayed(_quietly)(call, *rest) for call, *rest in calls)


def _quietly(call, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments)


def _generator(*what):
    """Return a random generator seeded by these words and numbers."""
    return np.random.default_rng(crc32(repr(what).encode()))


# ------------------------------------------------------------------ level and power


def _level(sizes, draws):
    table = Table(("noise", "n", "rejected at 0.05", "limit"))
    limit = ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / draws)
    cases = [(name, n) for name in NOISES for n in sizes]
    over = 0
    for name, n in cases:
        rate = np.mean(_spread((_rejects_noise, name, n, i) for i in range(draws)))
        over += rate > limit
        table.add(name, n, f"{rate:.3f}", f"{limit:.3f}")
    counted = f"above its limit in {over} of {len(cases)} rows (target 0)."
    table.notes += [f"Draws per row: {draws}. The test is {counted}", ""]
    return table


def _rejects_noise(name, n, draw):
    X = NOISES[name](_generator(name, n, draw), n)
    return split_test(X, alpha=ALPHA, random_state=draw).is_real


def _level_of_others(draws):
    noises = ("Gaussian, d = 2", "Gaussian, d = 10", FLAT)
    table = Table(("estimator", "n", "draws", *noises))
    for name, n, m in ((name, N_POWER, draws) for name in (*LINEAR, *CURVED)):
        rates = [
            np.mean(_spread((_other_rejects, name, n, noise, i) for i in range(m)))
            for noise in noises
        ]
        table.add(name, n, m, *(f"{rate:.2f}" for rate in rates))
    table.notes.append(f"Other estimators on noise: rejected at {ALPHA}.")
    return table.render()


def _other_rejects(name, n, noise, draw):
    rng = _generator(noise, draw)
    X = rng.random((n, 2)) if noise == FLAT else NOISES[noise](rng, n)
    model = {**LINEAR, **CURVED}[name](random_state=draw)
    return split_test(X, model, alpha=ALPHA, random_state=draw).is_real


def _correlating(d):
    """Return L' for rows with the correlations 0.9^|i - j|."""
    steps = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    return np.linalg.cholesky(0.9**steps).T


def _power(draws):
    table = Table(("two groups", "share of the smaller", "found", "target"))
    for distance, share, target in PLANTED:
        found = np.mean(_spread((_finds_planted, distance, share, i) for i in range(draws)))
        wanted = "" if target is None else f"{target:.2f}"
        table.add(f"{distance:g} sd apart", f"{share:.0%}", f"{found:.2f}", wanted)
    table.notes.append(
        f"Power at n = {N_POWER}: share of {draws} draws with p at most {ALPHA}. The groups "
        "differ in one of ten Gaussian features, whose scales go from 0.01 to 100."
    )
    return table.render()


def _finds_planted(distance, share, draw):
    rng = _generator(distance, share, draw)
    X = rng.normal(size=(N_POWER, 10))
    feature = rng.integers(10)
    X[: round(share * N_POWER), feature] += distance
    X *= 10.0 ** rng.permutation(np.linspace(-2, 2, 10))
    return split_test(X, alpha=ALPHA, random_state=draw).is_real


# ------------------------------------------------------------------ time


def _time():
    n, d = TIMED
    noise = np.random.default_rng(0).normal(size=(n, d))
    groups = noise.copy()
    groups[: n // 2, 0] += 5.0
    parts = []
    for name, X in (("noise", noise), ("two groups", groups)):
        timings = in_turns(
            {
                "fit": lambda: MSPC(random_state=0).fit(X),
                "test": lambda: split_test(X, random_state=0),
            },
            repeats=5,
            budget=20.0,
        )
        fit, test = timings["fit"], timings["test"]
        parts.append(
            f"{name}: {test.median:.2f} s ({test.spread}), one MSPC fit {fit.median:.2f} s "
            f"({fit.spread}), {test.median / fit.median:.2f} times"
        )
    return f"Time of split_test at n = {n:,}, d = {d} (target 3 times a fit): {'; '.join(parts)}."
