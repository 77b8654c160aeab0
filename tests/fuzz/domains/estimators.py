"""Fits and predictions of every clusterer and classifier."""

import inspect
import pickle
import re

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import volmar
from fuzz.contract import Case, plain_repr, require, require_finite, require_labels
from fuzz.fitted import check_finite, fitted_of
from fuzz.parameters import (
    CLASSIFIERS,
    ESTIMATORS,
    FINDS_THE_NUMBER,
    SMALL,
    draw_parameters,
    draw_wrong,
)
from fuzz.rows import draw_matrix, draw_size, draw_weights
from fuzz.script import Script

#: Methods whose `predict` returns `labels_` for the training rows, except for scores of rounding
#: size. The others label a graph or a matrix, and use only the similarities of new rows (see the
#: notes of each class).
KEEP_LABELS = {
    *("CPMMC", "KernelCPMMC", "SKMMC", "MultivariateMMC", "IterSVR", "LGMMC"),
    *("MSPC", "KernelKMeans", "DiscriminativeKMeans", "LDAKMeans"),
}
#: Difference of scores, relative to the largest, that counts as rounding (float32: 7 digits).
ROUNDING = 1e-5
#: Offset of the rows, relative to their spread, beyond which there are fewer digits.
FAR_OUT = 1e9

TARGETS = (
    "np.arange(n) % 2",
    "np.arange(n) % 2",
    "np.array(['no', 'yes'])[np.arange(n) % 2]",
    "np.arange(n) % 3",
    "np.where(np.arange(n) < 4, np.arange(n) % 2, -1)",
    "np.where(np.arange(n) < 6, np.arange(n) % 3, -1)",
    "(np.arange(n) % 2).astype(bool)",
    "(np.arange(n) % 2).tolist()",
    "(np.arange(n) % 2 * 2.0 - 1.0)",
    "np.array(['a', 'b', None], dtype=object)[np.arange(n) % 3]",
    "np.array([1, 'b'], dtype=object)[np.arange(n) % 2]",
    "np.zeros(n)",
    "np.full(n, -1)",
    "rng.normal(size=n)",
    "np.full(n, np.nan)",
    "np.arange(n + 1) % 2",
    "np.arange(2 * n).reshape(n, 2) % 2",
    "np.arange(n)",
    "None",
    "'labels'",
)


def draw_case(draw):
    """Return a fit of an estimator to rows, with predictions for these and for other rows."""
    return _Fit(draw).case


class _Fit:
    """The call of a case: a fit, and checks of all properties of a fitted estimator."""

    def __init__(self, draw):
        self.name = draw.pick(*ESTIMATORS)
        self.script = Script(draw)
        self.script.do("import volmar.graphs")
        self.wrong = None
        if draw.chance(0.1):
            parameters, self.wrong = draw_wrong(draw, self.name)
        else:
            parameters = draw_parameters(draw, self.name)
        given = ", ".join(f"{name}={text}" for name, text in parameters.items())
        self.model = f"volmar.{self.name}({given})"
        self.can_be_pickled = "lambda" not in given
        self._draw_inputs(draw, "'precomputed'" in parameters.values(), parameters)
        self.refits = draw.chance(0.05)
        self.fit = f"model.fit({', '.join(self._arguments())})"
        lines = [f"model = {self.model}", self.fit]
        if "Z" in self.script:
            lines.append("model.predict(Z)")
        self.case = Case(
            self.script.text(*lines),
            self,
            tuple(self.script[name] for name in ("X", "y", "w", "Z") if name in self.script),
            same_bits=parameters["random_state"] != "None",
        )

    def _draw_inputs(self, draw, square, parameters):
        n, p = draw_size(draw, SMALL.get(self.name, 60))
        n = max(n, 6) if self.wrong else n
        if not self.wrong and draw.chance(0.5):
            # Mostly with the number of columns of X.
            columns = p if not square else n
            columns += draw.chance(0.1)
            size = (draw.whole(1, 8), columns)
            draw_matrix(draw, self.script, "Z", size=size, hostility=draw.pick(0.2, 1.0))
        hostility = 0.0 if self.wrong else draw.pick(0.2, 0.6, 1.0)
        draw_matrix(draw, self.script, "X", size=(n, p), square=square, hostility=hostility)
        number = parameters.get("n_clusters", "2")
        self.script.do(f"k = {number if number.isdigit() else 2}")
        if self.name in CLASSIFIERS:
            self.script.do(f"y = {TARGETS[0] if self.wrong else draw.pick(*TARGETS)}")
        if (
            not self.wrong
            and "sample_weight" in inspect.signature(getattr(volmar, self.name).fit).parameters
        ):
            draw_weights(draw, self.script)

    def _arguments(self):
        arguments = ["X"] + ["y"] * ("y" in self.script)
        has_weights = "w" in self.script and self.script["w"] is not None
        return arguments + ["sample_weight=w"] * has_weights

    def __call__(self):
        model = self.script.value(self.model)
        text, X = plain_repr(model), self.script["X"]
        names = {"model": model, **self.script.names}
        try:
            require(eval(self.fit, names) is model, "fit does not return the model")
        except Exception as error:
            require(not fitted_of(model), f"a fit that failed left {sorted(fitted_of(model))}")
            self._check_names(error)
            raise
        finally:
            require(plain_repr(model) == text, f"fit changed a parameter: {model!r}")
        n_rows = X.shape[0] if hasattr(X, "shape") else np.asarray(X).shape[0]
        value = self._check_model(model, X, n_rows)
        self._check_copies(model, X, value["predict"])
        if "Z" in self.script:
            value["new"] = self._check_scores(model, self.script["Z"])
        if self.refits:
            self._check_refit(model)
        return value

    def _check_names(self, error):
        """Check that the message names the one parameter that was wrong."""
        is_own = "lambda" in self.model  # exceptions of a user's function are passed on
        if self.wrong and not is_own and isinstance(error, (TypeError, ValueError)):
            said = re.search(rf"\b{self.wrong}\b|\bX\b|rows", str(error))
            require(said, f"{type(error).__name__} does not name {self.wrong}: {error}")

    def _check_model(self, model, X, n_rows):
        check_finite(model)
        scores, predicted = self._check_scores(model, X, n_rows)
        fitted = fitted_of(model)
        if self.name in CLASSIFIERS:
            return {"predict": predicted, "scores": scores, **fitted}
        labels = fitted["labels_"]
        n_clusters = n_rows if isinstance(model.n_clusters, str) else model.n_clusters
        require_labels("labels_", labels, n_rows, n_clusters)
        self._check_numbers("labels_", labels, n_clusters, model)
        if self.name in KEEP_LABELS and not _is_far_out(X):
            self._check_kept(labels, predicted, scores)
        if self.name != FINDS_THE_NUMBER and not model.status_.ok:
            require(
                any(issubclass(one.category, ConvergenceWarning) for one in self.case.warned),
                f"status_ is {model.status_.name} without a ConvergenceWarning",
            )
        return {"predict": predicted, "scores": scores, **fitted}

    def _check_numbers(self, what, labels, n_clusters, model):
        """Check that clusters are numbered consecutively; fewer than requested need a warning."""
        found = np.unique(labels)
        require(
            np.array_equal(found, np.arange(found.size)),
            f"{what} has the clusters {found}, not all from 0",
        )
        require(
            found.size == n_clusters or isinstance(model.n_clusters, str) or self.case.warned,
            f"{what} has {found.size} clusters where n_clusters={n_clusters}, without a warning",
        )

    def _check_scores(self, model, X, n_rows=None):
        """Return scores and predictions of rows, after checking that they agree."""
        predicted, scores = np.asarray(model.predict(X)), np.asarray(model.decision_function(X))
        n_rows = predicted.shape[0] if n_rows is None else n_rows
        require_finite("decision_function", scores)
        require(len(scores) == n_rows, f"{len(scores)} scores of {n_rows} rows")
        chosen = (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
        if self.name in CLASSIFIERS:
            chosen = model.classes_[chosen]
        else:
            n_clusters = n_rows if isinstance(model.n_clusters, str) else model.n_clusters
            most = max(n_clusters, int(np.max(model.labels_)) + 1)
            require_labels("predict", predicted, n_rows, most)
        require(np.array_equal(chosen, predicted), "predict does not agree with decision_function")
        return scores, predicted

    def _check_kept(self, labels, predicted, scores):
        if scores.ndim == 1:
            clear = np.abs(scores)
        else:
            ordered = np.sort(scores, axis=1)
            clear = ordered[:, -1] - ordered[:, -2] if scores.shape[1] > 1 else ordered[:, -1]
        sure = clear > ROUNDING * np.abs(scores).max(initial=0.0)
        differ = sure & (labels != predicted)
        has_said = any(issubclass(w.category, ConvergenceWarning) for w in self.case.warned)
        require(
            has_said or not differ.any(),
            f"predict differs from labels_ in {differ.sum()} of {labels.size} rows: "
            f"{np.flatnonzero(differ)[:10]}",
        )

    def _check_copies(self, model, X, predicted):
        """Check the text, copies and pickles of the model."""
        for part in (model, getattr(model, "result_", None), getattr(model, "tree_", None)):
            repr(part), str(part)
        require(plain_repr(clone(model)) == plain_repr(model), "clone has other parameters")
        if self.can_be_pickled and not hasattr(X, "dask"):
            again = pickle.loads(pickle.dumps(model))
            same = np.array_equal(again.predict(X), predicted)
            require(same, "the model predicts otherwise after a pickle")

    def _check_refit(self, model):
        """Check the error of an unfitted model, also after a failed fit."""
        try:
            clone(model).predict(self.script["X"])
        except NotFittedError:
            pass
        else:
            require(False, "a model that was never fitted predicts")
        nothing = np.full((3, 2), np.nan)
        try:
            model.fit(nothing, *([np.arange(3) % 2] if self.name in CLASSIFIERS else []))
        except ValueError:
            require(not fitted_of(model), f"a fit that failed left {sorted(fitted_of(model))}")
        else:
            require(False, "NaN was fitted")


def _is_far_out(X):
    """Return whether all columns are so far from 0 that scores have few correct digits."""
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return bool(rows.ndim == 2 and FAR_OUT * np.ptp(rows, axis=0).max() < np.abs(rows).max())
