"""Rows that belong to no cluster: false alarms on new rows, and power on a left-out class.

Some classes of a set are clustered. Their rows are split into two halves: one is used to fit and
calibrate, the other to count false alarms (new rows of the same source that are rejected at
alpha). Power is the share of rejected rows of a left-out class. All methods get the same
standardised rows; the detectors of scikit-learn reject as with alpha as their `contamination`, and
have no clusters. Means over random halves. The error is the standard error of the share, where
both the calibration rows and the counted rows are random: sqrt(a (1 - a) (1/n + 1/m)) for one
half, divided by the square root of the number of halves. Times are those of the fit and of both
predictions (for volmar without the clustering itself), relative to `fit_novelty` and
`novelty_score` of MSPC.
"""

import time
import warnings

import numpy as np
from sklearn.covariance import EllipticEnvelope
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

import volmar
from benchmarks.table import Table
from reproduction.datasets import data_folder, load

ALPHAS = (0.01, 0.05, 0.1)
# Indices of the classes that are clustered, and of the left-out class.
SETS = {
    "digits 0-4, not 6": ("digits", range(5), 6),
    "digits all but 8": ("digits", [0, 1, 2, 3, 4, 5, 6, 7, 9], 8),
    "letter A-E, not X": ("letter", range(5), 23),
    "satellite, not cotton": ("satellite", [0, 2, 3, 4, 5], 1),
    "usps 0-4, not 7": ("usps", range(5), 7),
}
OURS = {"MSPC": volmar.MSPC, "CPMMC": volmar.CPMMC, "KernelKMeans": volmar.KernelKMeans}
MOST_ROWS = 2000


RIVALS = {
    "IsolationForest": lambda: IsolationForest(random_state=0),
    "LocalOutlierFactor": lambda: LocalOutlierFactor(novelty=True),
    "EllipticEnvelope": lambda: EllipticEnvelope(random_state=0),
}
# EllipticEnvelope takes minutes on more columns.
MOST_COLUMNS = {"EllipticEnvelope": 70}


def run(*, full: bool) -> Table:
    n_halves = 10 if full else 3
    header = ("set", "method", *(f"false at {a:g}" for a in ALPHAS))
    table = Table((*header, *(f"power at {a:g}" for a in ALPHAS), "within 2 errors", "time"))
    for name, (source, inside, outside) in SETS.items():
        if source != "digits" and data_folder() is None:
            continue
        _set_lines(table, name, _classes(source, inside, outside), n_halves, full)
    table.notes.append(
        "within 2 errors: no share of false alarms is above alpha by more than two standard "
        "errors; 'low' where it is below by more."
    )
    return table


def _set_lines(table, name, classes, n_halves, full):
    rows, strangers, k = classes
    d = rows.shape[1]
    methods = list(OURS) if full else list(OURS)[:2]
    methods += [one for one in RIVALS if d <= MOST_COLUMNS.get(one, d)]
    shares = {method: [] for method in methods}
    powers = {method: [] for method in methods}
    seconds = dict.fromkeys(methods, 0.0)
    for seed in range(n_halves):
        order = np.random.default_rng(seed).permutation(len(rows))
        fit, fresh = rows[order[: len(order) // 2]], rows[order[len(order) // 2 :]]
        mean, scale = fit.mean(axis=0), fit.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        three = [(one - mean) / scale for one in (fit, fresh, strangers)]
        for method in methods:
            ours = method in OURS
            false, power, spent = (_ours if ours else _rival)(method, k, *three)
            shares[method].append(false)
            powers[method].append(power)
            seconds[method] += spent
    n = len(rows) / 2
    alphas = np.array(ALPHAS)
    error = np.sqrt(alphas * (1 - alphas) * 2 / n / n_halves)
    for method in methods:
        false, power = np.mean(shares[method], axis=0), np.mean(powers[method], axis=0)
        verdict = "yes" if (np.abs(false - alphas) <= 2 * error).all() else "low"
        verdict = verdict if (false <= alphas + 2 * error).all() else "no"
        table.add(
            name,
            method,
            *(f"{f:.3f} ± {e:.3f}" for f, e in zip(false, error, strict=True)),
            *(f"{one:.2f}" for one in power),
            verdict,
            f"{seconds[method] / seconds['MSPC']:.1f}",
        )


def _classes(source, inside, outside):
    """Return rows of the classes, rows of the left-out class, and the number of classes."""
    if source == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        loaded = load(source)
        X, y = loaded["X"], loaded["y"]
        X = X.toarray() if hasattr(X, "toarray") else np.asarray(X, dtype=float)
    names = np.unique(y)
    of_inside = np.flatnonzero(np.isin(y, names[list(inside)]))
    rng = np.random.default_rng(0)
    chosen = rng.permutation(of_inside)[:MOST_ROWS]
    return X[chosen], X[y == names[outside]], len(list(inside))


def _ours(method, k, fit, fresh, strangers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = OURS[method](k, random_state=0).fit(fit)
    start = time.perf_counter()
    model.fit_novelty(fit)
    p, q = model.novelty_score(fresh), model.novelty_score(strangers)
    seconds = time.perf_counter() - start
    return [(p <= a).mean() for a in ALPHAS], [(q <= a).mean() for a in ALPHAS], seconds


def _rival(method, _, fit, fresh, strangers):
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detector = RIVALS[method]().fit(fit)
    own = getattr(detector, "negative_outlier_factor_", None)
    own = detector.score_samples(fit) if own is None else own
    # Equivalent to `contamination`, with one fit for all levels.
    limits = np.quantile(own, ALPHAS)
    scores = detector.score_samples(fresh), detector.score_samples(strangers)
    seconds = time.perf_counter() - start
    return *([(one < limit).mean() for limit in limits] for one in scores), seconds
