"""More than two clusters: ARI, NMI and time of every family's default against the usual peers.

All methods get the same rows and the number of classes, no labels, and default settings. Tables of
measurements are standardised, grey values are in units of their range. Means over seeds and, for
sets of more than 5,000 rows, over random samples of 5,000; the spread is the standard deviation
over them. The last column is the minimum number of clusters found, minus that of the classes.
"""

import time
import warnings

import numpy as np
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.preprocessing import StandardScaler

import volmar
from benchmarks.rivals import bisecting_kmeans, gaussian_mixture, kmeans
from benchmarks.table import Table
from reproduction.datasets import data_folder, load
from volmar.graphs.graph import build_graph

MOST_ROWS = 5000
SPECTRAL = "SpectralClustering (same graph)"
PEERS = (kmeans.NAME, SPECTRAL, gaussian_mixture.NAME, bisecting_kmeans.NAME)
OURS = {
    "volume: SoftLabelMVC": volmar.SoftLabelMVC,
    "margin: CPMMC": volmar.CPMMC,
    "margin: KernelCPMMC (Nyström)": lambda k, **rest: volmar.KernelCPMMC(
        k, method="nystroem", n_landmarks=300, **rest
    ),
    "separation: MSPC": volmar.MSPC,
}
RECURSIVE = {
    "IterSVR (linear)": lambda k, **rest: volmar.IterSVR(k, kernel="linear", **rest),
    "LGMMC (linear)": lambda k, **rest: volmar.LGMMC(k, kernel="linear", **rest),
    "SKMMC": volmar.SKMMC,
    "CPMMC (recursive)": lambda k, **rest: volmar.CPMMC(k, multiway="recursive", **rest),
    "SoftLabelMVC (recursive)": lambda k, **rest: volmar.SoftLabelMVC(
        k, multiway="recursive", **rest
    ),
}
BUILT_IN = {
    "iris": load_iris,
    "wine": load_wine,
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
}
FROM_FOLDER = {"letter A-J": "letter", "satellite": "satellite", "USPS": "usps", "MNIST": "mnist"}
GREY = {"digits", "USPS", "MNIST"}
TIMED = "MNIST"


def run(*, full: bool) -> Table:
    methods = {**dict.fromkeys(PEERS), **OURS, **(RECURSIVE if full else {})}
    n_seeds = 3
    sets = [*BUILT_IN, *(FROM_FOLDER if data_folder() is not None else ())]
    table = Table(("method", *sets, "mean ARI", "mean NMI", "min. clusters - k"))
    seconds = {}
    scores = {name: {} for name in methods}
    for dataset in sets:
        for seed in range(n_seeds):
            X, y = rows_and_classes(dataset, seed)
            for name, make in methods.items():
                one = _measure(name, make, X, y, seed)
                scores[name].setdefault(dataset, []).append(one[:3])
                if dataset == TIMED:
                    seconds.setdefault(name, []).append(one[3])
    means = {}
    for name, by_set in scores.items():
        ari = {d: [one[0] for one in runs] for d, runs in by_set.items()}
        nmi = [np.mean([one[1] for one in runs]) for runs in by_set.values()]
        fewest = min(one[2] for runs in by_set.values() for one in runs)
        means[name] = float(np.mean([np.mean(values) for values in ari.values()]))
        cells = (f"{np.mean(values):.3f} ± {np.std(values):.3f}" for values in ari.values())
        table.add(name, *cells, f"{means[name]:.3f}", f"{np.mean(nmi):.3f}", fewest)
    digits = {name: np.mean([one[1] for one in runs["digits"]]) for name, runs in scores.items()}
    table.notes += [
        f"ARI, mean ± standard deviation over {n_seeds} seeds.",
        _comparison(means),
        "NMI on digits: " + ", ".join(f"{name} {value:.3f}" for name, value in digits.items()),
    ]
    if seconds:
        table.notes.append(_times(seconds))
    else:
        names = ", ".join(FROM_FOLDER)
        table.notes.append(
            f"Left out because the folder of data files (VOLMAR_DATA) is missing: {names}"
        )
    return table


def rows_and_classes(name, seed):
    """Return the rows that all methods get, and the classes."""
    if name in BUILT_IN:
        X, y = BUILT_IN[name](return_X_y=True)
        if name in GREY:
            X = X / 16.0
    else:
        data = load(FROM_FOLDER[name], scale="unit" if name in GREY else None)
        X, y = data.X, data.y
        if name == "letter A-J":
            X, y = X[y < 10], y[y < 10]
    if len(y) > MOST_ROWS:
        rows = np.random.default_rng(seed).choice(len(y), MOST_ROWS, replace=False)
        X, y = X[rows], y[rows]
    X = np.asarray(X, dtype=np.float64)
    return (X if name in GREY else StandardScaler().fit_transform(X)), y


def _measure(name, make, X, y, seed):
    """Return ARI, NMI, number of clusters minus number of classes, and seconds."""
    k = len(np.unique(y))
    peers = {one.NAME: one.fit_predict for one in (kmeans, gaussian_mixture, bisecting_kmeans)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        if name == SPECTRAL:
            W = build_graph(X, "density_scaling").W
            labels = SpectralClustering(k, affinity="precomputed", random_state=seed).fit_predict(
                W
            )
        elif name in peers:
            labels = peers[name](X, k, seed)
        else:
            labels = make(k, random_state=seed).fit_predict(X)
        seconds = time.perf_counter() - start
    return (
        adjusted_rand_score(y, labels),
        normalized_mutual_info_score(y, labels),
        len(np.unique(labels)) - k,
        seconds,
    )


def _comparison(means):
    peer = max(PEERS, key=means.get)
    best = max(OURS, key=means.get)
    return (
        f"Best family: {best}, mean ARI {means[best]:.3f}; best peer: {peer}, {means[peer]:.3f} "
        f"(target: at least that)."
    )


def _times(seconds):
    base, spectral = np.median(seconds[kmeans.NAME]), np.median(seconds[SPECTRAL])
    parts = [f"{name} {np.median(times) / base:.2f}" for name, times in seconds.items()]
    volume = np.median(seconds["volume: SoftLabelMVC"]) / spectral
    return (
        f"Time over {kmeans.NAME} on {TIMED}, {MOST_ROWS} rows (target 3): {', '.join(parts)}. "
        f"SoftLabelMVC over {SPECTRAL}: {volume:.2f} (target 1)."
    )
