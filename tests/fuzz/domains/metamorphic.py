"""Relations between results: the meaning of a fit, not only its exceptions.

A case draws one relation, a method and rows. Most rows are clear groups, at least 12 standard
deviations apart, so that there is one right partition. It must be found from rows in any order,
unit, dtype and container, with any spelling of "unknown" beside it, and together with another
group. A different partition is therefore a defect, not another local optimum. Overlapping groups
have no right partition, and are used only for relations between equal bits.
"""

import inspect
import tempfile
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np

import volmar
from fuzz.contract import DOCUMENTED, Case, plain_repr, require
from fuzz.domains.estimators import KEEP_LABELS
from fuzz.parameters import FINDS_THE_NUMBER
from fuzz.script import Script
from volmar.table_clusterer.estimator import clusterer_names

#: Methods that accept labels and links of rows.
GUIDED = ("MSPC", "CPMMC", "KernelCPMMC", "SKMMC", "SoftLabelMVC")
#: Methods that get two groups of similar size. Balance constraints and minimum shares cut groups
#: of unequal size, and the middle one of three (see `balance` in the design notes). SMIC takes the
#: largest eigenvalues of a kernel matrix, of which a large group has several, and a minimum
#: density hyperplane is looked for near the mean of the rows.
BALANCED = {
    *(
        "CPMMC",
        "GMMC",
        "HardLabelMVC",
        "IterSVR",
        "LGMMC",
        "MultivariateMMC",
    ),
    *("SDPMMC", "SKMMC", "SMIC"),
}
#: Methods that get two groups if the number is given. A table is standardised, so that columns
#: without groups are as wide as the others: the tree of MSPC may cut the middle one of three
#: groups, and k-means may split these columns. The tested tree of "auto" has no such limit.
STANDARDISED = {"TableClusterer"}
#: Methods whose objective is better for other partitions of three groups in a line.
TWO_GROUPS = {"LDAKMeans"}
#: The margin prefers similar sizes, also for more than two groups.
SIMILAR = {*BALANCED, "KernelCPMMC"}
#: Whitening makes columns without groups as wide as the others: k-means may split those.
ONE_COLUMN = {"DiscriminativeKMeans"}
#: Parameters without which a method misses some clear groups: with local widths, a group in one
#: column is a chain with several large eigenvalues.
ALWAYS = {"SMIC": "affinity='gaussian'"}
#: Changes after which a method need not find the groups, with the reason.
EXEMPT = {
    ("auto", "rows doubled"): "tests on held-out rows assume that rows are independent",
    ("auto", "rows repeated"): "the same",
    **{
        (name, change): "gamma='scale' counts differences between means of columns"
        for name in clusterer_names()
        if name != "MSPC" and "gamma" in inspect.signature(getattr(volmar, name)).parameters
        for change in ("a constant column", "columns reflected")
    },
    **{
        (name, change): "the method takes dense rows only"
        for name in clusterer_names()
        if not getattr(getattr(volmar, name), "_accepts_sparse", True)
        for change in ("CSR", "CSC")
    },
}
#: Maximum number of rows of methods whose time grows with the cube of it; 400 for the others.
MOST = {"SDPMMC": 60, "HardLabelMVC": 60, "GMMC": 120, "SKMMC": 120, "MultivariateMMC": 120}
#: Methods that are documented not to depend on the units of single columns.
WITHOUT_UNITS = ("MSPC", "TableClusterer")
#: Methods that find the number of clusters, with the minimum size of a group that they test. They
#: get at most three groups: the rows of many groups connect the sides of the first split.
AUTO = {"TableClusterer": 60}
#: Methods that read rows in their own layout, without a copy. Sums in another order move rows on
#: the border of overlapping groups.
OWN_LAYOUT = {
    name for name in clusterer_names() if getattr(getattr(volmar, name), "_takes_blocks", False)
}
#: Further parameters with which a method finds clear groups, as expressions. Graphs of a fixed
#: number of neighbours are left out, because the neighbours of copied rows are their copies, and
#: so are fewer starts than by default, which may end in a local optimum.
PARAMETERS = {
    "MSPC": ("solver='mpm'", "kernel='rbf'", "scan='histogram'"),
    "CPMMC": ("tol=0.001",),
    "KernelCPMMC": ("gamma='scale'", "method='nystroem'"),
    "KernelKMeans": ("kernel='linear'", "gamma='scale'"),
    "LGMMC": ("kernel='linear'", "gamma='scale'"),
    "IterSVR": ("kernel='linear'",),
    "LDAKMeans": ("reg=0.1",),
    "TableClusterer": ("scale='standard'", "scale='minmax'"),
}

#: The same bits in other containers: labels must be equal.
SAME_BITS = (
    "np.asfortranarray(X)",
    "np.repeat(X, 2, axis=0)[::2]",
    "np.repeat(X, 2, axis=1)[:, ::2]",
    "np.ascontiguousarray(X[::-1])[::-1]",
    "X.astype('>f8')",
    "pd.DataFrame(X)",
    "pd.DataFrame(X, columns=[f'column {j}' for j in range(p)], index=np.arange(len(X))[::-1])",
    "pd.DataFrame({f'c{j}': X[:, j] for j in range(p)})",
    "pl.DataFrame({f'c{j}': X[:, j] for j in range(p)})",
    "pa.table({f'c{j}': X[:, j] for j in range(p)})",
)
#: The same groups in other numbers, as rows and their groups.
SAME_GROUPS = {
    "rows permuted": "X[order], truth[order]",
    "rows reversed": "X[::-1], truth[::-1]",
    "rows sorted by group": "X[np.argsort(truth, kind='stable')], np.sort(truth)",
    "rows doubled": "np.repeat(X, 2, axis=0), np.repeat(truth, 2)",
    "rows repeated": "np.concatenate([X, X]), np.concatenate([truth, truth])",
    "columns permuted": "X[:, rng.permutation(p)], truth",
    "columns reflected": "X * rng.choice([-1.0, 1.0], p), truth",
    "one factor": "X * 10.0 ** rng.uniform(-4, 4), truth",
    "one offset": "X + np.ptp(X) * rng.uniform(-1e3, 1e3), truth",
    "float32": "X.astype(np.float32), truth",
    "CSR": "sparse.csr_array(X), truth",
    "CSC": "sparse.csc_matrix(X), truth",
    "integers": "np.round((X - X.min(axis=0)) / unit * 50).astype(np.int64), truth",
    "a constant column": "np.column_stack([X, np.full(len(X), 3.0)]), truth",
    "a column twice": "np.column_stack([X, X[:, 0]]), truth",
    "columns rescaled": "X * 10.0 ** rng.uniform(-4, 4, p), truth",
}

KNOWN_LABELS = "[{label} if is_known else {unknown} for t, is_known in zip(truth, known)]"
UNKNOWN = ("None", "-1", "np.nan", "pd.NA", "''", "pd.NaT")
#: Labels of some rows, in every spelling of "unknown" that arrays and pandas produce.
SPELLINGS = {
    "numbers": (
        "np.where(known, truth, -1)",
        "np.where(known, truth, np.nan)",
        "pd.Series(np.where(known, truth, np.nan))",
        "pd.Series(truth).where(known).astype('Int64')",
        "pd.Series(truth).where(known).astype('category')",
        *(KNOWN_LABELS.format(label="int(t)", unknown=one) for one in UNKNOWN),
        f"np.array({KNOWN_LABELS.format(label='int(t)', unknown='None')}, dtype=object)",
    ),
    "words": (
        *(KNOWN_LABELS.format(label="'abcdef'[t]", unknown=one) for one in UNKNOWN),
        "pd.Series(words).where(known)",
        "pd.Series(words).where(known).astype('string')",
        "pd.Series(words).where(known).astype('category')",
        "np.where(known, words, '')",
        f"np.array({KNOWN_LABELS.format(label=repr('abcdef') + '[t]', unknown='-1')}, object)",
    ),
    "dates": (
        "np.where(known, np.datetime64('2021-01-01') + truth, np.datetime64('NaT'))",
        "pd.Series(np.datetime64('2021-01-01') + truth).where(known)",
    ),
}

#: Dates that a column may be fitted to: the day is known because some days are above 12.
FITTED_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%d/%m/%Y", "%d.%m.%Y", "%m/%d/%Y", "%d-%m-%Y", None)
#: Unambiguous spellings of dates in new rows; None are timestamps.
NEW_DATES = ("%Y-%m-%d", "%Y/%m/%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%d %b %Y", None)

#: Smallest p-value of `drift` that rows from the same source can have in a run of many cases.
IMPOSSIBLE = 1e-6


def draw_case(draw):
    """Return a case of one relation."""
    relations = [relation for relation, share in RELATIONS.items() for _ in range(share)]
    return draw.pick(*relations)(draw)


def make_groups(rng, places, sizes, *, gap=12.0, unit=1.0, offset=0.0):
    """Return rows in groups around `places` times `gap`, of standard deviation about 1, in order.

    No row is farther than 3 from its group's centre in any column. Groups are normal or uniform.
    """
    truth = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    shape = (truth.size, len(places[0]))
    normal = np.clip(rng.normal(size=shape), -2.5, 2.5)
    noise = np.where(truth[:, None] % 2 == 0, normal, rng.uniform(-1.7, 1.7, shape))
    widths = rng.uniform(0.7, 1.2, len(sizes))[truth, None]
    X = np.asarray(places)[truth] * gap + widths * noise
    return (X + offset) * unit, truth


def same_partition(one, other):
    """Return whether two labellings are equal except for the names of the clusters."""
    one, other = np.asarray(one), np.asarray(other)
    pairs = len(set(zip(one.tolist(), other.tolist(), strict=True)))
    return pairs == len(set(one.tolist())) == len(set(other.tolist()))


class Groups:
    """The lines of a case: rows in groups, and a method that should find them.

    Attributes
    ----------
    name : str
        The method.
    k : int
        Number of groups.
    model : str
        Expression for the method, not fitted.
    """

    def __init__(self, draw, names=None, *, clear=True, smallest=15, most=400, max_groups=5):
        self.draw = draw
        self.name = draw.pick(*(names or (*clusterer_names(), "TableClusterer")))
        self.script = Script(draw)
        self.script.do(
            *("import pandas as pd", "import polars as pl", "import pyarrow as pa"),
            *("from scipy import sparse", "from fuzz.domains.metamorphic import make_groups"),
        )
        self.is_auto = clear and self.name in AUTO and draw.chance(0.25)
        smallest = max(smallest, AUTO[self.name] if self.is_auto else 0)
        self._draw_rows(clear, smallest, most, max_groups)
        self.model = self.model_of("'auto'" if self.is_auto else self.k)

    def _draw_rows(self, clear, smallest, most, max_groups):
        draw = self.draw
        is_two = self.name in BALANCED | TWO_GROUPS
        is_two |= self.name in STANDARDISED and not self.is_auto
        self.k = 2 if is_two else draw.whole(2, 3 if self.is_auto else max_groups)
        p = 1 if clear and self.name in ONE_COLUMN else draw.pick(1, 2, 2, 3, 5, 8)
        # Distinct places on a grid with about twice as many places as groups.
        side = next(m for m in range(2, 9) if m**p >= (self.k if p == 1 else 2 * self.k))
        chosen = draw.rng.choice(side**p, self.k, replace=False)
        places = [[int(c) // side**j % side for j in range(p)] for c in chosen]
        most = min(most, MOST.get(self.name, most))
        n = draw.whole(30, max(most, 30))
        shares = draw.rng.dirichlet(np.full(self.k, 200.0 if self.name in SIMILAR else 5.0))
        sizes = [max(int(share * n), smallest) for share in shares]
        unit, offset = f"{draw.power(-3, 3):.3g}", draw.pick("0.0", "0.0", "-1e3", "1e6")
        gap = 12.0 if clear else 2.0
        self.script.do(
            f"X, truth = make_groups(rng, {places}, {sizes}, gap={gap}, unit=(unit := {unit}), "
            f"offset={offset})",
            "n, p = X.shape",
        )

    def model_of(self, number, more=True):
        """Return the expression of the method with a number of clusters."""
        given = ", ".join(
            [f"{number}, random_state=0", *([ALWAYS[self.name]] if self.name in ALWAYS else [])]
        )
        if more and self.name in PARAMETERS and self.draw.chance(0.3):
            given += f", {self.draw.pick(*PARAMETERS[self.name])}"
        return f"volmar.{self.name}({given})"

    def do(self, *lines):
        """Run lines of the case, and keep them for its text."""
        self.script.do(*lines)

    def fit(self, arguments="X", model=None):
        """Fit a new model to expressions of the arguments."""
        return self.script.value(f"{model or self.model}.fit({arguments})")

    def case(self, call, text, names=("X", "truth")):
        """Return the case, whose call may not fail."""
        lines = self.script.text(f"model = {self.model}", *text.splitlines())
        inputs = tuple(self.script[name] for name in names)
        return Case(lines, call, inputs, same_bits=False, documented=())

    def require_truth(self, labels, truth, what):
        """Require that labels are the groups; say whether the plain fit finds them.

        With "auto" a group may be split: its test has a level. Groups may not be joined.
        """
        if same_partition(labels, truth):
            return
        pairs = set(zip(np.asarray(labels).tolist(), truth.tolist(), strict=True))
        if self.is_auto and len(pairs) == len(set(np.asarray(labels).tolist())):
            return
        plain = "finds" if same_partition(self.fit().labels_, self.script["truth"]) else "misses"
        counts = sorted(
            Counter(zip(truth.tolist(), np.asarray(labels).tolist(), strict=True)).items()
        )
        require(False, f"{what}: not the groups (group, cluster): {counts}; fit(X) {plain} them")


# ------------------------------------------------------------ the same rows in other forms


def same_bits(draw):
    """The same bits in another container give the same labels, also for overlapping groups."""
    is_clear = draw.chance(0.3)
    names = (*clusterer_names(), "TableClusterer")
    names = names if is_clear else [name for name in names if name not in OWN_LAYOUT]
    groups = Groups(draw, names, clear=is_clear, most=150)
    form = draw.pick(*SAME_BITS)
    groups.do(f"other = {form}")

    def call():
        one, other = groups.fit(), groups.fit("other")
        differ = np.flatnonzero(one.labels_ != other.labels_)
        require(not differ.size, f"labels_ of {differ.size} rows differ: {differ[:10]}")
        same = np.array_equal(
            one.predict(groups.script["X"]), other.predict(groups.script["other"])
        )
        require(same, "labels_ are equal, predictions are not")

    case = groups.case(call, "model.fit(X).labels_ == model.fit(other).labels_", ("X", "other"))
    if not is_clear:
        case.documented = DOCUMENTED  # overlapping groups may be too uneven for a method
    return case


def same_groups(draw):
    """The same groups in other numbers are found again."""
    change = draw.pick(*SAME_GROUPS)
    names = WITHOUT_UNITS if change == "columns rescaled" else None
    # Single columns: more than two groups of MSPC start from k-means in the units given as well.
    groups = Groups(draw, names, most=200, max_groups=2 if change == "columns rescaled" else 5)
    if change == "columns rescaled":  # not with a kernel
        groups.model = groups.model_of("'auto'" if groups.is_auto else groups.k, more=False)
    groups.do("order = rng.permutation(n)", f"Z, groups = {SAME_GROUPS[change]}")
    is_exempt = not EXEMPT.keys().isdisjoint(
        [(groups.name, change), *([("auto", change)] if groups.is_auto else [])]
    )

    def call():
        if is_exempt:
            return
        model = groups.fit("Z")
        groups.require_truth(model.labels_, groups.script["groups"], change)

    return groups.case(call, f"model.fit(Z).labels_  # {change}", ("Z", "groups"))


def weights(draw):
    """A row of weight 2 counts as two rows."""
    groups = Groups(draw, [name for name in clusterer_names() if _takes_weights(name)], most=150)
    forms = ["np.full(n, 2)", "rng.integers(1, 4, n)", "1.0 + (truth == 0)"]
    if groups.name in BALANCED:  # the last makes groups of uneven weight
        forms.pop()
    groups.do(
        f"w = {draw.pick(*forms)}",
        "Z = np.repeat(X, w.astype(int), axis=0)",
    )

    def call():
        truth, w = groups.script["truth"], groups.script["w"]
        weighted = groups.fit("X, sample_weight=w")
        groups.require_truth(weighted.labels_, truth, "weights")
        copied = groups.fit("Z")
        groups.require_truth(copied.labels_, np.repeat(truth, w.astype(int)), "copies")
        sizes = np.bincount(truth, w)
        if np.unique(sizes).size == sizes.size:  # clusters of equal size are numbered by row
            same = np.array_equal(np.repeat(weighted.labels_, w.astype(int)), copied.labels_)
            require(same, "clusters are numbered otherwise with weights than with copies")

    return groups.case(
        call, "model.fit(X, sample_weight=w).labels_  # model.fit(Z)", ("X", "w", "Z")
    )


def one_more_group(draw):
    """A further clear group leaves the others as they are."""
    names = [name for name in clusterer_names() if name not in BALANCED | TWO_GROUPS]
    groups = Groups(draw, names, most=200, max_groups=4)
    size = draw.whole(15, 80)  # more rows than neighbours in a graph
    if groups.name in SIMILAR:
        size = int(groups.script["n"] // groups.k)
    groups.do(
        f"far = X[rng.integers(n, size={size})] * 0.0 + rng.normal(size=({size}, p)) * unit",
        "far = far + X.max(axis=0) + 12.0 * unit * (1.0 + rng.random(p))",
        f"Z, groups = np.concatenate([X, far]), np.concatenate([truth, np.full({size}, 9)])",
    )
    model = groups.model_of(groups.k + 1, more=False)

    def call():
        found = groups.fit("Z", model).labels_
        groups.require_truth(found, groups.script["groups"], f"one more group, {model}")

    return groups.case(call, f"{model}.fit(Z).labels_", ("Z", "groups"))


# ------------------------------------------------------------------- predictions and copies


def predictions(draw):
    """Predictions agree with labels, scores, other batches of rows and the saved model."""
    is_clear = draw.chance(0.6)
    groups = Groups(draw, clear=is_clear, most=150)
    groups.do("some = rng.permutation(n)[: 1 + n // 3]")

    def call():
        X, some = groups.script["X"], groups.script["some"]
        model = groups.fit()
        predicted, scores = model.predict(X), model.decision_function(X)
        chosen = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        require(np.array_equal(chosen, predicted), "decision_function does not agree with predict")
        if is_clear:
            groups.require_truth(predicted, groups.script["truth"], "predict")
        if is_clear or groups.name in KEEP_LABELS:
            differ = np.flatnonzero(predicted != model.labels_)
            require(not differ.size, f"predict differs from labels_ in the rows {differ[:10]}")
        for rows in (some, some[:1]):
            same = np.array_equal(model.predict(X[rows]), predicted[rows])
            require(same, f"{rows.size} rows are predicted otherwise alone than among all")
        again = _saved_and_loaded(model)
        require(np.array_equal(again.predict(X), predicted), "a loaded model predicts otherwise")
        same = np.array_equal(again.decision_function(X), scores)
        require(same, "a loaded model has other scores")

    return groups.case(call, "model.fit(X).predict(X[some])", ("X", "some"))


def copies(draw):
    """Copies of rows, in the fit or new, are in the cluster of their row."""
    groups = Groups(draw, clusterer_names(), most=120)
    groups.do("some = rng.integers(n, size=1 + n // 2)", "Z = np.concatenate([X, X[some]])")

    def call():
        some, n = groups.script["some"], groups.script["n"]
        model = groups.fit("Z")
        require(
            np.array_equal(model.labels_[n:], model.labels_[some]), "copies have other labels_"
        )
        alone = groups.fit()
        same = np.array_equal(alone.predict(groups.script["X"][some]), alone.labels_[some])
        require(same, "copies of training rows are predicted otherwise than labels_")

    return groups.case(call, "model.fit(Z).labels_; model.fit(X).predict(X[some])", ("X", "Z"))


# ------------------------------------------------------------------------ what stays unchanged


def threads(draw):
    """Fits in threads give the labels of a fit alone, and leave the process's warnings alone."""
    groups = Groups(draw, most=80)

    def call():
        expected = groups.fit().labels_
        before = _warnings_state()
        started = Barrier(4)

        def fit(_):
            started.wait()
            return groups.fit().labels_

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(fit, range(4)))
        after = _warnings_state()
        require(all(np.array_equal(one, expected) for one in found), "labels differ in threads")
        changed = [name for name in before if before[name] != after[name]]
        require(
            not changed, f"fits in threads changed {changed}: {[after[one] for one in changed]}"
        )

    return groups.case(call, "4 threads: model.fit(X), each with its own model")


def parameters(draw):
    """No parameter is assigned another value during a fit, and callbacks see the user's model."""
    groups = Groups(draw, most=80)

    def call():
        model = groups.script.value(groups.model)
        given = {name: plain_repr(value) for name, value in model.get_params(deep=False).items()}
        changes, seen = [], []
        model.__class__ = _watched(type(model), model, given, changes)
        if hasattr(model, "set_callbacks"):
            model.set_callbacks(_Watcher(seen))
        model.fit(groups.script["X"])
        require(not changes, f"fit assigned parameters: {changes}")
        for params in (*seen, model.get_params(deep=False)):
            now = {name: plain_repr(value) for name, value in params.items()}
            require(now == given, f"get_params() of a fit: {now}, given were {given}")

    case = groups.case(call, "model.fit(X)  # get_params() before, in callbacks and after")
    case.documented = DOCUMENTED  # directions of rows far from 0 may all be equal
    return case


# ------------------------------------------------------------------------- labels and links


def spellings(draw):
    """All spellings of unknown labels and ids have one meaning, or are refused by all methods."""
    groups = Groups(draw, GUIDED, most=120)
    argument = draw.pick("y", "y", "must_link")
    form = draw.pick(*SPELLINGS[draw.pick("numbers", "words", "words", "dates")])
    _draw_known(groups, 3)
    groups.do(f"given = {form}")
    fit = f"X, {argument}=given"

    def call():
        truth, known, given = (groups.script[name] for name in ("truth", "known", "given"))
        try:
            model = groups.fit(fit)
        except (TypeError, ValueError) as error:
            require(argument in str(error), f"the error does not name {argument}: {error}")
            for other in GUIDED:  # refused by all methods or by none
                try:
                    groups.fit(fit, f"volmar.{other}({groups.k}, random_state=0)")
                except (TypeError, ValueError):
                    continue
                require(False, f"{groups.name} refuses {argument}, {other} does not: {error}")
            return
        groups.require_truth(model.labels_, truth, f"{argument} with {type(given).__name__}")
        if argument == "y":
            require(hasattr(model, "classes_"), "y was ignored: there are no classes_")
            wrong = [
                (name, label)
                for name, label, is_known in zip(list(given), model.labels_, known, strict=True)
                if is_known and _plain(name) != _plain(label)
            ]
            require(not wrong, f"labelled rows have other labels (given, found): {wrong[:5]}")

    return groups.case(call, f"model.fit({fit}).labels_", ("X", "truth"))


def table_seeds(draw):
    """Every labelled row of a table is in the cluster of its name, for every `missing`."""
    groups = Groups(draw, ("TableClusterer",), smallest=14, most=150)
    missing = draw.pick("impute", "drop", "drop", "indicator")
    clusterer = draw.pick(*GUIDED, FINDS_THE_NUMBER)
    if clusterer in SIMILAR:
        groups.do("X, truth = X[truth < 2], truth[truth < 2]", "n, p = X.shape")
        groups.k = 2
    _draw_known(groups, 4)
    lost = draw.pick(
        *("known", "~known", "known & (truth == 0)", "known & (truth == truth.max())"),
        *("np.arange(n) % 5 == 0", "known & (rng.random(n) < 0.5)", "np.zeros(n, bool)"),
    )
    p = groups.script["p"]
    column = draw.whole(0, p - 1)
    groups.do(
        "T = pd.DataFrame(X, columns=[f'c{j}' for j in range(p)])",
        f"T['s'] = {draw.pick(*SPELLINGS['words'][:3], SPELLINGS['words'][4])}",
        f"lost = {lost}",
        f"T.loc[lost, 'c{column}'] = np.nan",
    )
    is_any = clusterer == FINDS_THE_NUMBER
    number = draw.pick(groups.k, groups.k, "'auto'") if is_any else groups.k
    groups.model = (
        f"volmar.TableClusterer({number}, clusterer={clusterer!r}, seeds='s', missing={missing!r}"
        f"{'' if clusterer == 'MSPC' or is_any else ', scale=' + repr('none')})"
    )

    def call():
        truth, known, lost, words = (
            groups.script[name] for name in ("truth", "known", "lost", "words")
        )
        kept = ~lost if missing == "drop" else np.ones(truth.size, bool)
        seeded = known & kept
        try:
            model = groups.fit("T")
        except ValueError as error:
            is_empty = p == 1 and lost.mean() > 0.5 and "missing" in str(error)
            has_lost_a_name = set(truth[seeded]) != set(truth[known])
            can_fail = has_lost_a_name or seeded[kept].all()
            require(is_empty or (can_fail and "seeds" in str(error)), f"refused: {error}")
            return
        require(seeded.any(), "no labelled row was left, but there is no error")
        names = np.array([*model.cluster_names_, ""], dtype=object)[model.labels_]
        wrong = np.flatnonzero(seeded & (names != words))
        require(not wrong.size, f"labelled rows {wrong[:5]} are {names[wrong[:5]]}")
        if number == "'auto'" or (missing != "drop" and lost.any()):
            return  # few rows may be one cluster, and filled rows are not in their group
        is_named = np.isin(truth, truth[seeded]) & ~lost
        wrong = np.flatnonzero(is_named & (names != words))
        require(not wrong.size, f"rows {wrong[:5]} of {words[wrong[:5]]} are {names[wrong[:5]]}")

    return groups.case(call, "model.fit(T).cluster_names_", ("T",))


# --------------------------------------------------------- drift, reports and dates of new rows


def drift_of(draw):
    """Rows from the same source have not changed, rows from elsewhere have."""
    n_new, has_changed = draw.whole(1, 50), draw.chance(0.2)
    groups = Groups(draw, ("MSPC", "KernelKMeans", "TableClusterer"), clear=False, smallest=60)
    groups.do(
        "from volmar.diagnostics import drift",
        f"is_new = np.arange(n) < {50 if has_changed else n_new}",
        "old, new = X[~is_new], X[is_new]",
        *(["new = new + 5 * np.ptp(X, axis=0)"] if has_changed else []),
        *(
            ["new = old[rng.integers(len(old), size=1)]"]
            if n_new == 1 and draw.chance(0.5)
            else []
        ),
    )

    def call():
        groups.script.names["model"] = groups.fit("old")
        p_value = groups.script.value("drift(model, new, old)").p_value
        if has_changed and len(groups.script["new"]) == 50:
            require(p_value < 0.01, f"all rows have moved, and p = {p_value}")
        elif not has_changed:  # NaN: too few rows for a test
            require(not p_value < IMPOSSIBLE, f"nothing has changed, and p = {p_value}")

    return groups.case(call, "drift(model.fit(old), new, old).p_value", ("old", "new"))


def report_counts(draw):
    """A report counts the predicted clusters of the rows that it shows."""
    groups = Groups(draw, ("MSPC", "KernelKMeans", "SoftLabelMVC"), smallest=15, most=80)
    groups.do(
        f"shown = {draw.pick('X', 'X[::-1]', 'X[truth == 0]', 'X[rng.integers(n, size=n)]')}"
    )
    if draw.chance(0.5):  # as many rows as in the fit, all of one group
        groups.do("shown = shown[:1] + unit * rng.normal(size=(n, p)) / 9")

    def call():
        import re

        from volmar.report import save_report

        model = groups.fit()
        labels = model.predict(groups.script["shown"])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "report.html")
            save_report(path, model, groups.script["shown"])
            page = path.read_text(encoding="utf-8")
        pattern = (
            r'Cluster (\S+) <span class="called">[^<]*</span></h3><span class="soft">([\d,]+) row'
        )
        found = {int(name): int(size.replace(",", "")) for name, size in re.findall(pattern, page)}
        expected = Counter(labels.tolist())
        if len(expected) > 1:
            require(found == expected, f"the page has the sizes {found}, predict {dict(expected)}")
        else:
            said = f"{labels.size:,} rows" in page and len(found) < 2
            require(said, f"one cluster of {labels.size} rows, the page has the sizes {found}")

    return groups.case(call, "save_report('report.html', model.fit(X), shown)", ("X", "shown"))


def dates(draw):
    """A date is one number in every unambiguous spelling, in the fit and in new rows."""
    groups = Groups(draw, ("TableClusterer",), smallest=15, most=60)
    fitted, new = draw.pick(*FITTED_DATES), draw.pick(*NEW_DATES)
    groups.do(
        "from volmar.tables import Preparation",
        "days = pd.Series(pd.date_range('2021-01-01', periods=n, freq='7D')[rng.permutation(n)])",
        f"old = pd.DataFrame({{'x': X[:, 0], 'day': days{_spelled(fitted)}}})",
        f"new = pd.DataFrame({{'x': X[:, 0], 'day': days{_spelled(new)}}})",
    )
    groups.model = "Preparation()"

    def call():
        preparation = groups.script.value("Preparation().fit(old)")
        one, other = (preparation.transform(groups.script[name]) for name in ("old", "new"))
        require(one.shape[1] > 1, f"the dates are not used: {preparation.get_feature_names_out()}")
        differ = np.flatnonzero(~np.isclose(one, other).all(axis=1))
        rows = [
            (groups.script["old"]["day"][i], groups.script["new"]["day"][i]) for i in differ[:3]
        ]
        require(not differ.size, f"{differ.size} of {len(one)} dates differ (fitted, new): {rows}")

    return groups.case(call, "model.fit(old).transform(new)", ("old", "new"))


#: The relations, and how often each is drawn.
RELATIONS = {
    same_bits: 5,
    same_groups: 12,
    weights: 2,
    one_more_group: 3,
    predictions: 4,
    copies: 2,
    threads: 1,
    parameters: 2,
    spellings: 5,
    table_seeds: 3,
    drift_of: 3,
    report_counts: 1,
    dates: 2,
}


def _takes_weights(name):
    return "sample_weight" in inspect.signature(getattr(volmar, name).fit).parameters


def _draw_known(groups, n_each):
    """Draw the rows with a known label, a few of each group."""
    groups.do(
        f"known = np.array([(truth[:i] == t).sum() < {n_each} for i, t in enumerate(truth)])",
        "words = np.array(list('abcdef'), dtype=object)[truth]",
    )


def _plain(name):
    """Return the text of a label: 1, 1.0 and '1' are one label, as are dates in any type."""
    try:
        return str(int(float(name)))
    except (TypeError, ValueError):
        return str(name).partition("T")[0].partition(" ")[0]


def _spelled(form):
    return "" if form is None else f".dt.strftime({form!r})"


def _saved_and_loaded(model):
    from volmar.models import load_model, save_model

    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder, "model.volmar"), model)
        return load_model(Path(folder, "model.volmar")).model


def _warnings_state():
    """Return what decides which warnings of this process are shown, and how."""
    return {
        "filters": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "_showwarnmsg_impl": warnings._showwarnmsg_impl,
    }


def _watched(kind, model, given, changes):
    """Return a subclass that records assignments of other values to parameters of `model`."""

    def assign(self, name, value):
        if self is model and name in given and plain_repr(value) != given[name]:
            changes.append((name, plain_repr(value)))
        kind.__setattr__(self, name, value)

    return type(kind.__name__, (kind,), {"__setattr__": assign, "__module__": kind.__module__})


class _Watcher:
    """A callback that keeps the parameters of the estimator at every step."""

    def __init__(self, seen):
        self.seen = seen

    def setup(self, estimator, context):
        """Begin, which keeps nothing."""

    def on_fit_task_begin(self, estimator, context):
        """Keep the parameters."""
        self.seen.append(estimator.get_params(deep=False))

    def on_fit_task_end(self, estimator, context):
        """Keep the parameters."""
        self.seen.append(estimator.get_params(deep=False))
        return False

    def teardown(self, estimator, context):
        """End, which keeps nothing."""
