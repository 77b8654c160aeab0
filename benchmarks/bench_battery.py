"""A foreign battery: ARI with the number of clusters found and given, beside single pieces.

The sets are those in ``battery/`` of the data folder (see its README): rows are centred and
divided by one common scale, a set counts by the best of its reference labellings, and rows
labelled as noise are left out. Published partitions are of the same sets, with the number of
clusters given. No method uses labels; settings are defaults, except that HDBSCAN has a minimum
cluster size of 2 % of the rows. The battery has no set of a single cluster, so that the single
pieces count as much: the share of draws in which a method splits them. Grids and scattered groups
count by the exact number.
"""

import warnings
from statistics import mean

import numpy as np
from joblib import Parallel, delayed
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import volmar
from benchmarks import battery_data as data
from benchmarks.rivals import hdbscan, kmeans_silhouette, mixture_bic
from benchmarks.table import Table

FINDING = {
    "AutoClusterer": lambda X, seed: volmar.AutoClusterer(random_state=seed).fit(X).labels_,
    **{rival.NAME: rival.find_clusters for rival in (hdbscan, mixture_bic, kmeans_silhouette)},
}
GIVEN = {
    "AutoClusterer": lambda X, k, seed: volmar.AutoClusterer(k, random_state=seed).fit(X).labels_,
    "MSPC": lambda X, k, seed: volmar.MSPC(k, random_state=seed).fit(X).labels_,
    "SoftLabelMVC": lambda X, k, seed: volmar.SoftLabelMVC(k, random_state=seed).fit(X).labels_,
    "KernelCPMMC": lambda X, k, seed: volmar.KernelCPMMC(k, random_state=seed).fit(X).labels_,
    "NormalizedSpectralClustering": lambda X, k, seed: (
        volmar.NormalizedSpectralClustering(k, random_state=seed).fit(X).labels_
    ),
    "KMeans": lambda X, k, seed: KMeans(k, n_init=10, random_state=seed).fit_predict(X),
    "GaussianMixture": lambda X, k, seed: GaussianMixture(
        k, n_init=5, random_state=seed
    ).fit_predict(X),
}
# While developing, sets of at most this number of rows and few draws of a third of the pieces.
FEW_ROWS = 1000
MANY_DRAWS, FEW_DRAWS = 20, 3


def run(*, full: bool) -> Table:
    sets = [one for one in data.battery() if full or len(one.X) <= FEW_ROWS]
    table = Table(
        (
            *("method", "k", "sets: mean ARI", "k exact", "one cluster", "ARI >= .9"),
            *("pieces split, %", "worst piece, %", "columns split, %", "groups: exact, %"),
        )
    )
    draws = MANY_DRAWS if full else FEW_DRAWS
    sizes = data.SIZES if full else (300,)
    for name, method in FINDING.items():
        found = _over_sets(method, sets)
        pieces = _shares_split(method, data.PIECES, sizes, draws)
        columns = _shares_split(method, data.COLUMNS, sizes, draws)
        exact = _share_exact(method, data.GROUPS, max(draws // 4, 1))
        percent = [100 * mean(pieces.values()), 100 * max(pieces.values())]
        percent += [100 * mean(columns.values()), 100 * exact]
        table.add(name, "found", *_summary(found), *map(round, percent))
        worst = sorted(pieces, key=pieces.get, reverse=True)[:3]
        table.notes.append(
            f"{name}: most often split {', '.join(f'{k} {100 * pieces[k]:.0f} %' for k in worst)}"
        )
    for name, method in GIVEN.items():
        table.add(name, "given", *_summary(_over_sets(method, sets, is_given=True)), *[None] * 4)
    if sets:
        scores = data.published().loc[[one.name for one in sets]]
        for name in scores.mean().sort_values(ascending=False).index:
            good = int((scores[name] >= 0.9).sum())
            cells = scores[name].mean(), None, None, good, *[None] * 4
            table.add(f"{name} (published)", "given", *cells)
    table.notes.append(f"{len(sets)} sets; pieces of {sizes} rows, {draws} draws of each")
    return table


def _over_sets(method, sets, *, is_given=False):
    """Return, for each set, the best ARI, the number of clusters, and whether it is right."""

    def one(each):
        best, k = 0.0, 1
        for y, wanted in zip(each.references, each.numbers(), strict=True):
            labels = _labels(method, each.X, wanted) if is_given else _labels(method, each.X)
            known = y > 0
            best = max(best, adjusted_rand_score(y[known], labels[known]))
            k = np.unique(labels[labels >= 0]).size
        return best, max(k, 1), k in each.numbers()

    return Parallel(n_jobs=-1)(delayed(one)(each) for each in sets)


def _labels(method, X, *k):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(method(X, *k, 0))


def _summary(found):
    if not found:
        return [None] * 4
    scores, numbers, exact = map(list, zip(*found, strict=True))
    good = sum(score >= 0.9 for score in scores)
    return mean(scores), sum(exact), sum(k == 1 for k in numbers), good


def _shares_split(method, pieces, sizes, draws):
    """Return the share of draws in which each piece is split, the largest over the sizes."""

    def is_split(draw, n, seed):
        X = draw(np.random.default_rng([seed, n]), n)
        labels = _labels(method, X)
        return np.unique(labels[labels >= 0]).size > 1

    calls = [(name, n, seed) for name in pieces for n in sizes for seed in range(draws)]
    done = Parallel(n_jobs=-1)(delayed(is_split)(pieces[name], n, seed) for name, n, seed in calls)
    found = {}
    for (name, n, _), split in zip(calls, done, strict=True):
        found.setdefault((name, n), []).append(split)
    return {name: max(mean(found[name, n]) for n in sizes) for name in pieces}


def _share_exact(method, groups, draws):
    """Return the share of draws with the right number of clusters and an ARI of at least .9."""

    def is_exact(draw, seed):
        X, y = draw(np.random.default_rng(seed))
        labels = _labels(method, X)
        k = np.unique(labels[labels >= 0]).size
        return k == np.unique(y).size and adjusted_rand_score(y, labels) >= 0.9

    calls = [(draw, seed) for draw in groups.values() for seed in range(draws)]
    return mean(Parallel(n_jobs=-1)(delayed(is_exact)(*call) for call in calls))
