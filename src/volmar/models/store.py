"""`save_model` and `load_model`: fitted models in files."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import sklearn
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from volmar._version import __version__
from volmar.models.archive import Archive, ModelError, write_archive
from volmar.models.classes import TRANSFORMERS, is_public_estimator, name_of
from volmar.models.decode import Decoder
from volmar.models.encode import Encoder
from volmar.models.limits import extent_fault
from volmar.models.trial import trial_fault
from volmar.tables import Preparation

__all__ = ["SavedModel", "load_model", "save_model"]

# Version of the file format, raised when older files can no longer be read. Since version 2, the
# file has its own names of classes.
FORMAT = 2
_KEYS = {"format", "volmar", "model", "preparation", "nodes"}


@dataclass(frozen=True)
class SavedModel:
    """The content of a model file.

    Attributes
    ----------
    model : estimator
        The fitted estimator: a clusterer, a pipeline or a `TableClusterer`.
    preparation : Preparation or None
        The preparation of the table to which the model was fitted. For a `TableClusterer`, it is
        `model.preparation_`. None if the model was saved without one.
    version : str
        Version of volmar that wrote the file.
    """

    model: Any
    preparation: Any
    version: str

    @property
    def clusterer(self) -> Any:
        """The clusterer of prepared rows: `model`, or `model.model_` of a `TableClusterer`."""
        return getattr(self.model, "model_", self.model)


def save_model(
    path: str | PathLike[str], model: Any, *, preparation: Any = None, force: bool = False
) -> None:
    """Save a fitted estimator to a file that holds data but no code.

    Parameters
    ----------
    path : str or path-like
        File to write, usually with the suffix ``.volmar``.
    model : estimator
        A fitted estimator of volmar, such as `MSPC` or `TableClusterer`, or a pipeline of
        scikit-learn whose last step is a clusterer of volmar. Its other steps may be
        `StandardScaler`, `MinMaxScaler`, `MaxAbsScaler`, `RobustScaler`, `Normalizer`,
        `SimpleImputer`, `PCA`, `TruncatedSVD` or `volmar.tables.Preparation`.
    preparation : volmar.tables.Preparation, default=None
        The fitted preparation of the table, saved with the model. It must be None for a
        `TableClusterer`, which has its own.
    force : bool, default=False
        Whether an existing file may be replaced.

    Raises
    ------
    ModelError
        If the model is not fitted, if the file exists and `force` is False, or if the file cannot
        be written.
    TypeError
        If the model holds an object that cannot be saved: a callable kernel, affinity or start, a
        `RandomState`, or a transformer of another package. The message names the attribute.

    Notes
    -----
    The file holds the whole fitted model, including `labels_` and the training rows that graph
    and kernel methods need to predict new rows, and is about as large as the model in memory.
    Three things are left out: matrix factorisations and neighbour indices, which are recomputed
    when needed; callbacks; and labels in blocks of a dask collection, which the model can predict.
    If writing fails, no incomplete file is left.

    See Also
    --------
    load_model : Load a saved model.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from volmar import MSPC
    >>> from volmar.datasets import make_blobs
    >>> from volmar.models import load_model, save_model
    >>> X, _ = make_blobs(100, random_state=0)
    >>> model = MSPC(random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(pathlib.Path(folder) / "blobs.volmar", model)
    ...     again = load_model(pathlib.Path(folder) / "blobs.volmar").model
    >>> bool((again.predict(X) == model.labels_).all())
    True
    """
    _refuse_unknown(model)
    if preparation is not None and type(preparation) is not Preparation:
        raise TypeError(
            f"preparation must be a volmar.tables.Preparation or None, got "
            f"{type(preparation).__name__}."
        )
    if preparation is not None and _is_of_tables(model):
        raise ValueError(
            f"preparation must be None for a TableClusterer, which has its own, got "
            f"{preparation!r:.60}."
        )
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise ModelError(f"This {type(model).__name__} is not fitted. Call fit first.") from None
    encoder = Encoder()
    text = {
        "format": FORMAT,
        "volmar": __version__,
        "model": encoder.add(model, "model"),
        "preparation": encoder.add(preparation, "preparation"),
        "nodes": encoder.nodes,
    }
    fault = extent_fault(encoder.nodes)
    if fault:
        raise ModelError(
            f"The model {fault}, and load_model would not read it. Check its parameters."
        )
    write_archive(Path(path), text, encoder.arrays, force=force)


def load_model(path: str | PathLike[str]) -> SavedModel:
    """Load a model from a file that was written by `save_model`.

    No code in the file is executed, even if the file is malicious: only classes from a fixed list
    are used, objects are created empty and then given their attributes, and arrays hold no
    objects. The types, shapes and sizes of all values are checked, and the model must score a few
    rows before it is returned. However, the labels themselves cannot be checked, so use them only
    if you trust the author of the file.

    Parameters
    ----------
    path : str or path-like
        File that was written by `save_model`.

    Returns
    -------
    SavedModel
        The model, its preparation, and the version of volmar that wrote the file.

    Raises
    ------
    ModelError
        If the file is not a model file, is damaged, has a newer format, names an unknown class,
        needs more memory than is available, is nested more than 50 levels deep, holds more than
        2^24 values when every reference is expanded, or holds a model whose attributes do not fit
        together.

    Warns
    -----
    UserWarning
        If another version of volmar wrote the file.

    See Also
    --------
    save_model : Save a fitted model.
    """
    with Archive(Path(path)) as archive:
        text = archive.text()
        version = _check_version(archive, text)
        if set(text) != _KEYS:
            raise archive.error("has a malformed model.json")
        decoder = Decoder(archive, text["nodes"])
        model, preparation = decoder.value(text["model"]), decoder.value(text["preparation"])
        _check_loaded(archive, model, preparation)
        if _is_of_tables(model):
            preparation = model.preparation_
        if preparation is not None:
            _check_width(archive, model, preparation)
        fault = trial_fault(model, preparation, archive.n_bytes)
        if fault:
            raise archive.error(f"holds a {type(model).__name__} that {fault}")
    _warn_of_scikit_learn(path, model)
    if version != __version__:
        warnings.warn(
            f"{path} was written by volmar {version}, and this is volmar {__version__}. Labels of "
            "new rows may differ. Fit and save the model again to be sure.",
            UserWarning,
            stacklevel=2,
        )
    return SavedModel(model, preparation, version)


def _is_of_tables(model: Any) -> bool:
    return is_public_estimator(type(model)) and type(model).__name__ == "TableClusterer"


def _refuse_unknown(model: Any) -> None:
    """Raise `TypeError` for a model whose class cannot be saved."""
    if type(model) is not Pipeline:
        if not is_public_estimator(type(model)):
            raise TypeError(
                f"model must be an estimator of volmar, such as MSPC, or a pipeline of "
                f"scikit-learn that ends in one, got {type(model).__name__}."
            )
        return
    *before, (_, last) = model.steps
    if not is_public_estimator(type(last)) or _is_of_tables(last):
        raise TypeError(
            "model must be a pipeline that ends in a clusterer of volmar, such as MSPC, got one "
            f"that ends in {type(last).__name__}."
        )
    for name, step in before:
        known = (name_of(type(step)) or "").partition("/")[0]
        if step not in (None, "passthrough") and known not in TRANSFORMERS:
            raise TypeError(
                f"Step {name!r} of the pipeline is a {type(step).__name__}, which cannot be "
                f"saved. Use one of {', '.join(TRANSFORMERS)}."
            )
    if model.memory is not None:
        raise TypeError(
            "The memory of the pipeline cannot be saved. Call set_params(memory=None) on the "
            "fitted pipeline, and save it then."
        )


def _check_loaded(archive: Archive, model: Any, preparation: Any) -> None:
    """Raise `ModelError` if the loaded objects are not a fitted model and its preparation."""
    name = type(model).__name__
    if preparation is not None and (type(preparation) is not Preparation or _is_of_tables(model)):
        raise archive.error(f"holds a {type(preparation).__name__} as the preparation of a {name}")
    if type(model) is Pipeline:
        steps = vars(model).get("steps")
        is_list = type(steps) is list and len(steps) > 0
        if not is_list or any(type(one) is not tuple or len(one) != 2 for one in steps):
            raise archive.error("holds a pipeline whose steps are not names and estimators")
        try:
            _refuse_unknown(model)
        except TypeError as error:
            raise archive.error(f"holds a pipeline that cannot be saved ({error})") from error
        model = model.steps[-1][1]
    elif _is_of_tables(model):
        if type(vars(model).get("preparation_")) is not Preparation:
            raise archive.error(f"holds a {name} that is not fitted")
        model = vars(model).get("model_")
    if not is_public_estimator(type(model)) or _is_of_tables(model):
        raise archive.error(f"holds a {type(model).__name__}, not an estimator of volmar")
    n_features = vars(model).get("n_features_in_")
    if not isinstance(n_features, int) or "result_" not in vars(model):
        raise archive.error(f"holds a {type(model).__name__} that is not fitted")


def _check_width(archive: Archive, model: Any, preparation: Preparation) -> None:
    n_made, n_taken = len(preparation.feature_names_), getattr(model, "n_features_in_", None)
    if not _is_of_tables(model) and n_made != n_taken:
        raise archive.error(
            f"holds a {type(model).__name__} for {n_taken} features, and a preparation that makes "
            f"{n_made}"
        )


def _warn_of_scikit_learn(path: Any, model: Any) -> None:
    if type(model) is not Pipeline:
        return
    of_sklearn = [model, *(step for _, step in model.steps[:-1] if hasattr(step, "__dict__"))]
    # scikit-learn also removes this attribute when it unpickles an estimator.
    versions = {str(vars(one).pop("_sklearn_version", sklearn.__version__)) for one in of_sklearn}
    if versions - {sklearn.__version__}:
        warnings.warn(
            f"{path} has steps that were fitted by scikit-learn "
            f"{', '.join(sorted(versions))!s:.60}, and this is scikit-learn "
            f"{sklearn.__version__}. Labels of new rows may differ. Fit and save the model again "
            "to be sure.",
            UserWarning,
            stacklevel=3,
        )


def _check_version(archive: Archive, text: Any) -> str:
    """Return the version of volmar that wrote the file. Raise `ModelError` for other formats."""
    written = text.get("format") if isinstance(text, dict) else None
    version = text.get("volmar") if isinstance(text, dict) else None
    if type(written) is not int or written < 1 or type(version) is not str or len(version) > 40:
        raise archive.error("has a malformed model.json")
    if written < FORMAT:
        raise archive.error(
            f"has format {written}, which volmar {__version__} no longer reads",
            "Fit and save the model again.",
        )
    if written > FORMAT:
        raise archive.error(
            f"has format {written}, written by volmar {version!r:.40}. This is volmar "
            f"{__version__}, which reads format {FORMAT}",
            "Install the newer version of volmar.",
        )
    return version
