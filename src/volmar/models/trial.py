"""Trial of a loaded model: it must score a few rows before it is returned.

The types and shapes of single attributes are checked by `hints` and `rules`. The trial checks that
they fit together: the usual methods score some rows, and a model that fails is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import MethodType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline

from volmar._warn import collecting
from volmar.tables import Preparation

__all__ = ["trial_fault"]

# Rows with more columns are sparse, unless the file is large enough to hold that many numbers.
WIDE = 2**17
# Attributes with a centre of the rows. Zero may be far from the rows, with zero similarity.
_CENTRES = ("mean", "mean_", "offset", "origin", "_origin")
_HOLDERS = (
    *("_hyperplane", "_expansion", "expansion", "_planes", "_row_weights", "_fitted", "graph"),
    *("_spectral_graph", "row_weights", "search", "_backend", "model_"),
)
# These build an index in the first search, which may take minutes.
_SLOW = ("CellBackend", "FaissBackend", "PyNNDescentBackend")


def trial_fault(model: Any, preparation: Any, n_bytes: int) -> str | None:
    """Return why a model cannot score rows, or None if it can.

    Parameters
    ----------
    model : estimator
        A fitted estimator, pipeline or `TableClusterer`.
    preparation : Preparation or None
        The preparation of its table.
    n_bytes : int
        Size of the file, which limits the size of the rows that are created here.
    """
    steps = [step for _, step in model.steps] if type(model) is Pipeline else []
    parts = (model, getattr(model, "model_", None), preparation, *steps)
    owners = [getattr(one, "__dict__", {}) for one in parts]
    # scikit-learn would warn of rows without names.
    names = [(own, own.pop("feature_names_in_")) for own in owners if "feature_names_in_" in own]
    with collecting(), np.errstate(all="ignore"):
        try:
            return _fault(model, preparation, n_bytes)
        except MemoryError:
            return "needs more memory than is available"
        except Exception as error:  # malicious attributes may raise any error
            return f"has attributes that do not fit together ({type(error).__name__})"
        finally:
            for own, value in names:
                own["feature_names_in_"] = value


def _fault(model: Any, preparation: Any, n_bytes: int) -> str | None:
    if type(model) is Pipeline:
        first, last = model.steps[0][1], model.steps[-1][1]
        of_table = first if isinstance(first, Preparation) else None
        return _inner(last, n_bytes) or _scores_rows(
            model, _tables(of_table) if of_table else _rows(model, n_bytes)
        )
    if isinstance(preparation, Preparation):
        for table in _tables(preparation):
            preparation.prepare(table)
    clusterer = vars(model).get("model_", model)
    if clusterer is not model:
        fault = _scores_rows(model, _tables(preparation), confidence=True)
        if fault:
            return fault
    return _inner(clusterer, n_bytes) or _scores_rows(clusterer, _rows(clusterer, n_bytes))


def _inner(model: Any, n_bytes: int) -> str | None:
    """Try the model of every split in a tree, because the rows may not reach all of them."""
    tree = vars(model).get("tree_")
    if tree is None:
        return None
    rows = list(_rows(model, n_bytes))
    tried: set[int] = set()
    for node in tree.nodes():
        if node.model is None or (id(node.model) in tried and node.columns is None):
            continue
        tried.add(id(node.model))
        own = rows if node.columns is None else [row[:, node.columns] for row in rows]
        fault = _scores_rows(node.model, [*own, *_fitted_rows(node.model)])
        if fault:
            return fault
    return None


def _scores_rows(model: Any, rows: Iterable[Any], *, confidence: bool = False) -> str | None:
    """Score all rows at once, or else one by one: only some may raise a `ValueError`."""
    if any(type(part).__name__ in _SLOW for part in _parts(model)):
        return None
    rows = list(rows)
    if len(rows) > 1 and all(isinstance(row, np.ndarray) for row in rows):
        together = np.vstack(rows)
        with suppress(ValueError):
            if _has_scores(model, together):
                return None
    refused, has_scored = None, False
    for row in rows:
        try:
            has_scored |= _has_scores(model, row)
            if confidence:
                model.confidence(row)
        except ValueError as error:
            refused = error
    if has_scored:
        return None
    reason = "scores are not finite" if refused is None else " ".join(str(refused).split())
    return f"has attributes that do not fit together ({reason[:120]})"


def _has_scores(model: Any, rows: Any) -> bool:
    """Return whether all scores are finite. Raise `TypeError` if they are not floats."""
    scores = np.asarray(model.decision_function(rows))
    if hasattr(model, "predict"):
        model.predict(rows)
    if "novelty_" in vars(model):
        model.novelty_score(rows)
    if scores.dtype.kind != "f" or scores.shape[:1] != rows.shape[:1] or scores.ndim > 2:
        raise TypeError("the scores are not an array of floats")
    return bool(np.isfinite(scores).all())


def _rows(model: Any, n_bytes: int) -> Iterator[Any]:
    """Yield single rows: zeros, ones, centres of the training rows, and a training row."""
    d = int(model.n_features_in_)
    if d > max(WIDE, n_bytes // 8):
        yield sparse.csr_array((1, d))
        return
    yield np.zeros((1, d))
    yield np.ones((1, d))
    for centre in _centres(model):
        if centre.shape == (d,) and np.isfinite(centre).all():
            yield centre[None].astype(np.float64)
    if type(model) is Pipeline and hasattr(model.steps[0][1], "statistics_"):
        yield np.full((1, d), np.nan)
    tree = vars(model).get("tree_")
    yield from _fitted_rows(model if tree is None else tree.root.model)


def _fitted_rows(model: Any) -> Iterator[Any]:
    """Yield the first training row that a model stores: other rows may have zero similarity."""
    for part in _parts(model):
        rows: Any = getattr(part, "rows", None)
        if not (isinstance(rows, np.ndarray) or sparse.issparse(rows)):
            continue
        if rows.ndim != 2 or 0 in rows.shape or rows.shape[1] != model.n_features_in_:
            continue
        row = rows[:1].toarray() if sparse.issparse(rows) else rows[:1]
        row = row.astype(np.float64)
        for centre in (getattr(part, name, None) for name in _CENTRES):
            if isinstance(centre, np.ndarray) and centre.shape == row[0].shape:
                row += centre
        if np.isfinite(row).all():
            yield row


def _centres(model: Any) -> Iterator[NDArray]:
    for part in _parts(model):
        for name in _CENTRES:
            centre = getattr(part, name, None)
            if isinstance(centre, np.ndarray):
                yield centre


def _parts(model: Any) -> Iterator[Any]:
    """Yield a model and the objects with which it scores rows."""
    stack, seen = [model.steps[-1][1] if type(model) is Pipeline else model], set()
    while stack:
        part = stack.pop()
        if isinstance(part, MethodType):
            part = part.__self__
        if id(part) not in seen and hasattr(part, "__dict__"):
            seen.add(id(part))
            yield part
            stack.extend(vars(part)[name] for name in _HOLDERS if name in vars(part))


def _tables(preparation: Preparation) -> Iterator[Any]:
    """Yield tables of one row with the columns of a preparation, and check its parameters."""
    preparation.check_parameters()
    kinds = dict(zip(preparation.numbers_, preparation.number_kinds_, strict=True))
    d = preparation.n_features_in_
    is_plain = not preparation.texts_ and all(kind.kind == "numeric" for kind in kinds.values())
    if is_plain and preparation.id_column is None:
        yield sparse.csr_array((1, d)) if d > WIDE else np.zeros((1, d))
        return
    try:
        import pandas as pd
    except ImportError:  # without pandas, there are no such tables
        return
    row = {name: _cell(preparation, kinds.get(name), name) for name in preparation.names_in_}
    yield pd.DataFrame([row], columns=preparation.names_in_)
    if preparation.missing in ("impute", "indicator"):
        yield pd.DataFrame([dict.fromkeys(row)], columns=preparation.names_in_)


def _cell(preparation: Preparation, kind: Any, name: str) -> Any:
    if kind is None:
        return next(iter(preparation.categories_.get(name, [])), "1")
    if kind.kind == "date":
        import pandas as pd

        return "2024-01-31" if kind.layout else pd.Timestamp("2024-01-31")
    return kind.order[0] if kind.order else 1.0
