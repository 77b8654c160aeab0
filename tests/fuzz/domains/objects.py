"""Objects on top of the estimators: tables from Python, pictures and reports."""

import io
import json
import tempfile
from pathlib import Path

import numpy as np

from fuzz.contract import DOCUMENTED, DOCUMENTED_FILES, Case, require
from fuzz.domains.functions import LABELS, WRONG_LABELS
from fuzz.parameters import BAD
from fuzz.rows import draw_matrix, draw_size
from fuzz.script import Script

#: Columns of a table.
NUMBERS = (
    "rng.normal(size=n)",
    "rng.normal(size=n) + 9 * (np.arange(n) % 2)",
    "rng.integers(5, size=n)",
    "rng.exponential(size=n) * 1e6",
    "np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))",
)
COLUMNS = (
    *NUMBERS,
    "np.array(list('abc'))[rng.integers(3, size=n)]",
    "pd.Categorical(np.array(list('abc'))[rng.integers(3, size=n)])",
    "pd.date_range('2020-01-01', periods=n)",
    "pd.array(rng.integers(5, size=n), dtype='Int64')",
    "rng.random(n) < 0.5",
    "np.zeros(n)",
    "[f'id {i}' for i in range(n)]",
)
HOSTILE = (
    "[None] * n",
    "np.full(n, np.nan)",
    "np.full(n, np.inf)",
    "np.r_[np.inf, rng.normal(size=n - 1)]",
    "10.0 ** rng.uniform(-300, 300, n)",
    "1e308 * rng.normal(size=n).clip(-1, 1)",
    "5e-324 * rng.integers(3, size=n)",
    "rng.integers(-(2**62), 2**62, size=n)",
    "[10**400 + i for i in range(n)]",
    "np.arange(n) * 1j",
    "[[1], [2, 3]] * n",
    "[{'a': 1}] * n",
    "[b'x', b'y'] * n",
    "[1, 'a', None, 2.5] * n",
    "['=cmd()', '\\x1b[31m', 'nan', ''] * n",
    "['1e999', '-1e999', '1', '2'] * n",
    "['9' * 400, '1'] * n",
    "pd.to_timedelta(np.arange(n), unit='s')",
    "pd.period_range('2020-01', periods=n, freq='M')",
    "pd.interval_range(0, n)",
    "[object() for _ in range(n)]",
    "pd.date_range('1700-01-01', periods=n, tz='UTC')",
)
NAMES = ("a", "b", "c d", "", "1", "ä", "=x", "\x1b[31m", "label", "x" * 300)
TABLES = (
    "T = T",
    "T = T",
    "T = T",
    "import polars as pl; T = pl.DataFrame(T)",
    "import pyarrow as pa; T = pa.Table.from_pandas(T)",
    "T = T.to_dict('list')",
    "T = T.to_numpy()",
    "T.index = rng.permutation(n) - 3",
    "T = T.iloc[:0]",
    "T = T.iloc[:1]",
    "T = T.iloc[:, :0]",
    "T.columns = ['a'] * T.shape[1]",
    "T.columns = range(T.shape[1])",
    "T = None",
    "T = 'table.csv'",
    "T = T.convert_dtypes()",
    "T = T.T",
)
OPTIONS = {
    "n_clusters": ("2", "3", "'auto'", "1"),
    "clusterer": (
        "'AutoClusterer'",
        "'MSPC'",
        "'CPMMC'",
        "'KernelKMeans'",
        "volmar.MSPC(2)",
        "volmar.SMIC",
        "'bogus'",
    ),
    "columns": ("None", "['a']", "['a', 'b']", "['nowhere']", "[]", "'a'"),
    "drop": ("None", "['b']", "['nowhere']", "['a', 'b', 'c d', '', '1']"),
    "id_column": ("None", "'a'", "'nowhere'", "''"),
    "kinds": ("None", "{'a': 'number'}", "{'b': 'category'}", "{'a': 'bogus'}", "{'z': 'number'}"),
    "scale": ("'auto'", "'none'", "'standard'", "'bogus'"),
    "missing": ("'impute'", "'drop'", "'indicate'", "'refuse'", "'error'", "'bogus'"),
    "alpha": ("None", "0.05", "0.5", "7"),
    "max_clusters": ("None", "2", "0"),
    "random_state": ("0", "7", "np.random.RandomState(1)", "'a'"),
}
#: Fields of the clusterer that hold the time.
CLOCKS = ("seconds_",)

PICTURES = (
    "volmar.plots.ClusterDisplay.from_labels(X, labels)",
    "volmar.plots.ClusterDisplay.from_labels(X, labels, standardize=False, legend=False)",
    "volmar.plots.ClusterDisplay.from_estimator(model, X)",
    "volmar.plots.ProjectionDisplay.from_estimator(model, X)",
    "volmar.plots.ProjectionDisplay.from_estimator(model, X, bins=bins)",
    "volmar.plots.SilhouetteDisplay.from_labels(X, labels)",
    "volmar.plots.SilhouetteDisplay.from_estimator(model, X)",
    "volmar.plots.TreeDisplay.from_estimator(model)",
    "volmar.plots.ColumnProfilesDisplay.from_labels(X, labels)",
    "volmar.plots.LabelTestDisplay.from_labels(X, labels, min_cluster_size=5, random_state=0)",
    "volmar.plots.NumberOfClustersDisplay.from_estimator(None, X, numbers=[2, 3], random_state=0)",
)
MODELS = (
    "volmar.MSPC(2, random_state=0)",
    "volmar.MSPC(3, random_state=0)",
    "volmar.KernelKMeans(2, gamma='scale', n_init=1, random_state=0)",
    "volmar.NormalizedCut(2, random_state=0)",
)


def draw_case(draw):
    """Return the case of a table, a picture or a report."""
    kind = draw.pick("table", "table", "picture", "picture", "picture", "report")
    return {"table": _draw_table, "picture": _draw_picture, "report": _draw_report}[kind](draw)


def _draw_table(draw):
    script = Script(draw)
    _draw_frame(draw, script)
    given = {
        name: draw.pick(*BAD) if draw.chance(0.05) else draw.pick(*OPTIONS[name])
        for name in draw.some(list(OPTIONS), 0.15)
    }
    given.setdefault("n_clusters", draw.pick("2", "2", "3"))
    same_bits = given.get("random_state") != "None"
    model = f"volmar.TableClusterer({', '.join(f'{k}={v}' for k, v in given.items())})"

    def call():
        made = script.value(model)
        try:
            made.fit(script["T"])
        except Exception:
            left = [name for name in vars(made) if name.endswith("_") and name[0] != "_"]
            require(not left, f"a fit that failed left {left}")
            raise
        return _check_table(made, script["T"])

    text = script.text(f"model = {model}", "model.fit(T)")
    return Case(text, call, (script["T"],), same_bits=same_bits, documented=ALL)


ALL = (*DOCUMENTED, *DOCUMENTED_FILES)


def _draw_frame(draw, script, hostility=0.15):
    script.do("import pandas as pd", f"n = {draw.pick(2, 5, 30, 40, 60)}")
    script.do("T = pd.DataFrame(index=range(n))")
    for name in draw.some(NAMES[:4], 0.7) + draw.some(NAMES[4:], 0.1) or ["a"]:
        column = draw.pick(*(HOSTILE if draw.chance(hostility) else COLUMNS))
        if column.endswith("* n"):
            column = f"({column})[:n]"
        script.do(f"T[{name!r}] = {column}")
    _run_line(script, draw.pick(*TABLES))


def _run_line(script, line):
    """Run a line that fails for some tables; pyarrow, for example, does not accept objects."""
    try:
        script.do(line)
    except Exception:
        return


def _check_table(model, T):
    labels = model.labels_
    require(labels.dtype.kind == "i", f"labels_ has dtype {labels.dtype}")
    require(labels.min() >= -1, f"labels_ has {labels.min()}")
    # Clusters are found on rows with added noise; without it, a cluster may have no rows.
    empty = set(range(model.n_clusters_)) - set(labels.tolist())
    require(labels.max() < model.n_clusters_, f"labels_ has {labels.max()}")
    require(not empty or model.warnings_, f"no row is in the clusters {empty}, without a warning")
    confidence = model.confidence_[labels >= 0]
    require(np.isfinite(confidence).all(), f"confidence_ is not finite: {confidence}")
    predicted = model.predict(T)
    require(len(predicted) == len(labels), f"{len(predicted)} predictions of {len(labels)} rows")
    require(np.isfinite(model.decision_function(T)[predicted >= 0]).all(), "scores are not finite")
    summary = json.dumps(model.summary(), allow_nan=False, default=_no_json)
    repr(model), str(model.evidence_)
    kept = {name: value for name, value in vars(model).items() if name.endswith("_")}
    for name in (*CLOCKS, "model_", "preparation_"):
        kept.pop(name, None)
    return {"predict": predicted, "n": len(summary) > 2, **kept}


def _no_json(value):
    require(False, f"summary() holds a {type(value).__name__}, which is no JSON")


def _draw_picture(draw):
    script = Script(draw)
    script.do("import volmar.plots")
    draw_matrix(draw, script, size=draw_size(draw, 40), hostility=draw.pick(0.2, 1.0))
    script.do(f"labels = {draw.pick(*(WRONG_LABELS if draw.chance(0.15) else LABELS))}")
    script.do(f"bins = {draw.pick('1', '5', '0', '-1', 'None', repr('a'))}")
    model, picture = draw.pick(*MODELS), draw.pick(*PICTURES)

    def call():
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot

        try:
            if "model" in picture:
                script.names["model"] = script.value(model).fit(script["X"])
            made = script.value(picture)
            figure = made.figure_ if hasattr(made, "figure_") else made.ax_.figure
            figure.savefig(io.BytesIO(), dpi=20)
            return type(made).__name__
        finally:
            pyplot.close("all")

    lines = [f"model = {model}.fit(X)"] if "model" in picture else []
    text = script.text(*lines, f"{picture}.figure_.savefig('picture.png')")
    return Case(text, call, (script["X"], script["labels"]))


def _draw_report(draw):
    script = Script(draw)
    script.do("from volmar.report import save_report")
    draw_matrix(draw, script, size=draw_size(draw, 40), hostility=draw.pick(0.0, 0.5))
    model = draw.pick(*MODELS)
    title = draw.pick("None", "'<script>'", "'\\ud800'", "'a' * 5000", "3", "'\\x1b[31m'")
    save = f"save_report(path, {model}.fit(X), X, title={title}, random_state=0)"

    def call():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "report.html")
            try:
                eval(save, {**script.names, "path": path})
            except Exception:
                require(not any(Path(folder).iterdir()), "a report that failed left a file")
                raise
            page = path.read_text(encoding="utf-8")
        require("<script>alert" not in page and page.rstrip().endswith("</html>"), "broken page")
        return "report"

    text = script.text("path = 'report.html'", save)
    return Case(text, call, (script["X"],), same_bits=False, documented=ALL)
