"""Valid and invalid values of parameters, as expressions."""

import inspect

import volmar
from volmar import CLUSTERERS

CLASSIFIERS = ("MinimaxProbabilityMachine", "VolumeRegularizedClassifier")
ESTIMATORS = (*CLUSTERERS, *CLASSIFIERS)
#: The clusterer that finds the number of clusters; it solves no problem and has no `status_`.
FINDS_THE_NUMBER = "AutoClusterer"

#: Numbers in the usual range: {a:b} stands for ten to a power between a and b.
POSITIVE = ("1.0", "{-3:3}", "{-3:3}", "np.float32(0.5)", "2")
EXTREME = ("1e-300", "1e300", "1e308", "5e-324", "{-100:100}")
#: Counts that keep a case short.
FEW = ("1", "2", "3", "5", "20", "np.int64(4)")

#: Functions of two matrices that do not return a kernel matrix.
OF_TWO_MATRICES = (
    "lambda A, B: np.zeros((A.shape[0], B.shape[0]))",
    "lambda A, B: np.full((A.shape[0], B.shape[0]), np.nan)",
    "lambda A, B: np.arange(A.shape[0])[:, None] * np.ones(B.shape[0])",
    "lambda A, B: np.full((A.shape[0], B.shape[0]), 1e200)",
    "lambda A, B: np.full((A.shape[0], B.shape[0]), 'a')",
    "lambda A, B: None",
    "lambda A, B: A",
    "lambda A, B: 1.0",
)
#: Documented values of every parameter of the estimators, by name.
GOOD = {
    "C": (*POSITIVE, "'scale'", "None"),
    "Q": (
        *("'laplacian'", "'laplacian'", "'kernel'", "'kernel'", "np.eye(n)"),
        *("lambda W: np.eye(W.shape[0])", "lambda W: W", "lambda W: None", "-np.eye(n)"),
        *("np.full((n, n), np.nan)", "np.diag(10.0 ** np.linspace(-200, 200, n))"),
    ),
    "affinity": (
        *("None", "'gaussian'", "'local_scaling'", "'density_scaling'", "'cosine_knn'"),
        "'nearest_neighbors'",
        *("'precomputed'", "'precomputed'"),
        "lambda A, B: np.exp(-abs((A @ np.ones(A.shape[1]))[:, None] - B @ np.ones(B.shape[1])))",
        *OF_TWO_MATRICES,
        "volmar.graphs.similarities.GaussianSimilarity(sigma=1.0)",
        "volmar.graphs.similarities.GaussianSimilarity(sigma=-1.0)",
        "volmar.graphs.similarities.LocalScalingSimilarity(n_neighbors=3)",
        "volmar.graphs.density_scaling.DensityScalingSimilarity(n_neighbors=10**6)",
        "volmar.graphs.similarities.NearestNeighborsSimilarity",
    ),
    "alpha": ("0.05", "0.01", "0.5", "{-6:-1}"),
    "anneal": ("'auto'", "(1.1,)", "[1.2, 1.5]", "()"),
    "balance": ("None", "0", "0.1", "1.0", "'auto'", "{-6:6}"),
    "balance_unit": ("'margin'", "'score'"),
    "balance_weight": ("None", "1e4", "1e-6", "{-6:6}"),
    "basis": ("None", "'split'", "'single'"),
    "beta": ("1.0", "0.5", "{-3:3}"),
    "bias": ("'gap'", "'balance'"),
    "cccp_tol": ("None", "0.01"),
    "center": ("True", "False"),
    "coef0": ("1", "0.0", "-1.5"),
    "cut_tol": ("None", "0.01"),
    "degree": ("3", "2", "1.5", "7"),
    "eta0": ("None", "-0.001", "-1.0", "0.0"),
    "gamma": (
        *("None", "'scale'", "'auto'", "'rms'", "'4*scale'", "'rms/4'"),
        *("{-3:3}", "{-3:3}", "1e-160", "1e4"),
    ),
    "init": (
        *("'auto'", "'k-means'", "'k-means++'", "'random'", "'principal'"),
        *(
            "np.arange(n) % 2",
            "np.arange(n) % k",
            "np.array(list('ab') * n)[:n]",
        ),
    ),
    "kernel": (
        *("'linear'", "'rbf'", "'rbf'", "'poly'", "'polynomial'", "'sigmoid'", "'laplacian'"),
        *("'cosine'", "'chi2'", "'additive_chi2'", "'precomputed'", "'precomputed'"),
        *("lambda A, B: A @ B.T", *OF_TWO_MATRICES),
    ),
    "kernel_params": ("None", "None", "{}"),
    "loss": ("'nmi'", "'error'", "'rand'", "'fbeta'"),
    "max_basis": ("None", *FEW),
    "max_clusters": ("50", *FEW),
    "max_cluster_size": ("None", "n", "n // 2 + 1", "0.6", "1.0", "[n] * k"),
    "max_iter": FEW,
    "method": ("'auto'", "'exact'", "'nystroem'"),
    "min_cluster_size": ("None", "1", "2", "0.1", "0.5"),
    "mode": ("'default'", "'paper'", "'aistats'"),
    "multiway": ("'joint'", "'recursive'"),
    "n_basis": ("None", *FEW),
    "n_candidates": ("None", *FEW),
    "n_components": ("None", *FEW),
    "n_init": ("1", "2", "3"),
    "n_landmarks": FEW,
    "n_neighbors": ("None", *FEW),
    "random_state": ("0", "2**32 - 1", "np.random.RandomState(3)", "np.int64(7)"),
    "reg": ("None", "0", "1", *POSITIVE),
    "rounding": ("'centred'", "'random'", "'posterior'", "'difference'"),
    "row_balance": ("True", "False", "np.True_"),
    "scale": ("None", "1.0", "{-3:3}"),
    "scan": ("'auto'", "'exact'", "'histogram'"),
    "shapes": ("'any'", "'curved'", "'linear'"),
    "shift": ("None", "0.0", "{-3:3}"),
    "sigma": ("None", "1.0", "'mean'", "'2*rms'", "'0.3*range'", "{-3:3}", "1e-160"),
    "solver": ("'gep'", "'mpm'", "'eig'"),
    "threshold": ("None", "'adaptive'", "'fixed'"),
    "tol": ("1e-3", "1e-6", "0.5", "{-12:0}"),
}
#: For any parameter: wrong types, wrong ranges, near misses.
BAD = (
    *("None", "'bogus'", "''", "-1", "0", "-0.0", "0.5", "np.nan", "np.inf", "-np.inf", "True"),
    *("object()", "[]", "()", "{}", "[1, 2]", "np.array([1.0, 2.0])", "np.array(3)", "1j", "b'x'"),
    *("2**70", "-(2**70)", "10**400", "'2'", "(1,)", "[[1]]", "np.float64('nan')", "lambda: 0"),
    *("np.array(['a'])", "np.ones((n, n))", "np.zeros(n)", "type", "range(3)", "'\\x00'", "1e16"),
    *EXTREME,
)
#: Methods whose time grows with the cube of the number of rows, which get few rows.
SMALL = {
    "SDPMMC": 14,
    "HardLabelMVC": 14,
    "GMMC": 25,
    "MultivariateMMC": 30,
    "SoftLabelMVC": 40,
    "SKMMC": 30,
}
BOUNDS = {
    "SDPMMC": {"max_iter": "30"},
    "HardLabelMVC": {"max_iter": "30"},
    "GMMC": {"max_iter": "15"},
}


def names_of(estimator):
    """Return the names of an estimator's parameters."""
    return list(inspect.signature(getattr(volmar, estimator)).parameters)


def draw_value(draw, name):
    """Return an expression for a parameter, with a documented or an invalid value."""
    if draw.chance(0.12):
        return draw.pick(*BAD)
    text = draw.pick(*GOOD[name])
    if text.startswith("{") and ":" in text:
        low, high = map(int, text.strip("{}").split(":"))
        return f"{draw.power(low, high):.3g}"
    return text


def draw_parameters(draw, estimator):
    """Return some of an estimator's parameters with their expressions, random_state always."""
    chosen = dict(BOUNDS.get(estimator, {}))
    names = [name for name in names_of(estimator) if name not in ("n_clusters", "random_state")]
    share = draw.pick(0.0, 0.1, 0.1, 0.3)
    for name in draw.some(names, share):
        chosen[name] = draw_value(draw, name)
    # The parameter that decides the meaning of X is drawn more often than the others.
    for name in ("kernel", "affinity"):
        if name in names and draw.chance(0.3):
            chosen[name] = draw_value(draw, name)
    chosen["random_state"] = draw_value(draw, "random_state") if draw.chance(0.1) else "0"
    if estimator in CLUSTERERS:
        chosen = {"n_clusters": draw_number(draw, estimator), **chosen}
    return chosen


def draw_wrong(draw, estimator):
    """Return parameters of which one is likely to be wrong, and the name of that one."""
    name = draw.pick(*names_of(estimator))
    return {"random_state": "0", **BOUNDS.get(estimator, {}), name: draw.pick(*BAD)}, name


def draw_number(draw, estimator=None):
    """Return an expression for n_clusters."""
    if draw.chance(0.04):
        return draw.pick("'auto'", *BAD)
    if estimator == FINDS_THE_NUMBER and draw.chance(0.5):
        return "'auto'"
    return draw.pick("2", "2", "2", "2", "3", "3", "4", "5", "1", "np.int64(2)")
