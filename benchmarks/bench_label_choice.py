"""Choice among labellings without labels: correlation with ARI, and ARI of the chosen one.

Many methods and seeds label the rows as they are and rows of unit length, with the number of
classes given. Rules without labels score all labellings: `volmar.diagnostics.probe_accuracy`
with both probes, and two usual scores. A cell has Spearman's correlation of score and ARI over
the labellings, and the ARI of the labelling with the highest score. The rows
below are for comparison: a random labelling, always the same method (mean over its seeds), and
the best labelling. The second table has the mean ARI over the sets of choices among the labellings
of one method.
"""

import warnings

import numpy as np
from scipy.stats import spearmanr
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.preprocessing import StandardScaler, normalize

import volmar
from benchmarks.embedding_data import digits, drawn, isolet, mnist, news
from benchmarks.rivals import diagonal_mixture, kmeans, mini_batch_k_means
from benchmarks.table import Table
from volmar.datasets import data_folder, load
from volmar.diagnostics import choose_labels
from volmar.metrics import calinski_harabasz

SEEDS, QUICK_SEEDS = 3, 1
MOST_SILHOUETTES = 2000


def _ours(method):
    return lambda X, k, seed: method(k, random_state=seed).fit_predict(X)


METHODS = {
    "KMeans": kmeans.fit_predict,
    "MiniBatchKMeans": mini_batch_k_means.fit_predict,
    "GaussianMixture": diagonal_mixture.fit_predict,
    "Ward": lambda X, k, seed: AgglomerativeClustering(k).fit_predict(X),  # noqa: ARG005
    "CPMMC": _ours(volmar.CPMMC),
    "MSPC": _ours(volmar.MSPC),
    "SoftLabelMVC": _ours(volmar.SoftLabelMVC),
    "NormalizedSpectralClustering": _ours(volmar.NormalizedSpectralClustering),
}
ALWAYS = ("KMeans", "CPMMC", "MSPC", "SoftLabelMVC")
FORMS = {"as they are": lambda X: X, "unit rows": normalize}


def _standardized(name):
    def load_rows():
        data = load(name)
        return StandardScaler().fit_transform(data.X).astype(np.float32), data.y

    return load_rows


def _usps():
    data = load("usps", scale="unit")
    return data.X.astype(np.float32), data.y


FULL = {
    "digits": digits,
    "MNIST 5,000": drawn(mnist, 5000),
    "news SVD 100, 6,000 rows": drawn(news(100), 6000),
    "isolet": isolet,
    "letter 5,000": drawn(_standardized("letter"), 5000),
    "USPS 5,000": drawn(_usps, 5000),
    "satellite 5,000": drawn(_standardized("satellite"), 5000),
}
QUICK = {
    "digits": digits,
    "news SVD 100, 2,000 rows": drawn(news(100), 2000),
    "satellite 2,000": drawn(_standardized("satellite"), 2000),
}


def run(*, full: bool) -> Table:
    found = FULL if full else QUICK
    if data_folder() is None:
        found = {"digits": digits}
    table = compare(found, METHODS, range(SEEDS if full else QUICK_SEEDS))
    if data_folder() is None:
        table.notes.append("All sets but digits need the folder of data files (VOLMAR_DATA).")
    return table


def compare(found, methods, seeds) -> Table:
    """Return the table of rules by sets."""
    correlations, chosen, within = {}, {}, {method: [] for method in methods}
    for name, load_rows in found.items():
        X, y = load_rows()
        labels = labellings(X, len(np.unique(y)), methods, seeds)
        ari = {key: adjusted_rand_score(y, one) for key, one in labels.items()}
        by_rule = rules(X, labels)
        for method, rows in within.items():
            rows.append(_choices_within(method, ari, by_rule))
        for rule, scores in by_rule.items():
            rho = spearmanr([scores[key] for key in labels], list(ari.values())).statistic
            correlations.setdefault(rule, {})[name] = float(rho)
            chosen.setdefault(rule, {})[name] = ari[max(scores, key=scores.get)]
        for rule, value in _without_choice(ari).items():
            chosen.setdefault(rule, {})[name] = value
    table = Table(("rule", *found, "mean correlation", "mean ARI"))
    for rule, by_set in chosen.items():
        rho = correlations.get(rule)
        cells = [f"{by_set[name]:.3f}" for name in found]
        if rho:
            cells = [f"{rho[name]:+.2f} / {cell}" for name, cell in zip(found, cells, strict=True)]
        mean_rho = f"{np.mean(list(rho.values())):+.2f}" if rho else "-"
        table.add(rule, *cells, mean_rho, f"{np.mean(list(by_set.values())):.3f}")
    below = Table(("choice within", "random", *correlations, "best"))
    for method, rows in within.items():
        below.add(method, *(f"{value:.3f}" for value in np.mean(rows, axis=0)))
    table.notes += [
        f"Methods, on both forms of the rows, {len(seeds)} seed(s): {', '.join(methods)}.",
        "",
        below.render(),
    ]
    return table


def labellings(X, k, methods, seeds):
    """Return labels by method, form of the rows and seed."""
    labels = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for form, prepare in FORMS.items():
            rows = prepare(X)
            for method, labels_of in methods.items():
                for seed in seeds:
                    labels[f"{method}, {form}, {seed}"] = labels_of(rows, k, seed)
    return labels


def rules(X, labels):
    """Return scores of the labellings by rule."""
    some = np.random.default_rng(0).permutation(len(X))[:MOST_SILHOUETTES]
    scores = {}
    for probe in ("neighbors", "linear"):
        choice = choose_labels(X, labels, probe=probe, random_state=0)
        scores[f'probe_accuracy ("{probe}")'] = {
            name: one.score for name, one in choice.scores.items()
        }
    scores["silhouette"] = {
        name: silhouette_score(X[some], one[some]) for name, one in labels.items()
    }
    scores["Calinski-Harabasz"] = {name: calinski_harabasz(X, one) for name, one in labels.items()}
    return scores


def _choices_within(method, ari, by_rule):
    """Return ARI of one method's labellings: their mean, those chosen by the rules, the best."""
    keys = [key for key in ari if key.startswith(f"{method}, ")]
    values = [ari[key] for key in keys]
    chosen = [ari[max(keys, key=scores.get)] for scores in by_rule.values()]
    return [np.mean(values), *chosen, max(values)]


def _without_choice(ari):
    found = {"a random labelling": np.mean(list(ari.values()))}
    for method in ALWAYS:
        for form in FORMS:
            values = [value for key, value in ari.items() if key.startswith(f"{method}, {form}")]
            if values:
                found[f"always {method}, {form}"] = np.mean(values)
    return found | {"the best labelling": max(ari.values())}
