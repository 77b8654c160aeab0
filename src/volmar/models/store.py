"""Fitted models into files and out of them."""

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

# Raised when files of before can no longer be read; 2 since classes have names of their own.
FORMAT = 2
_KEYS = {"format", "volmar", "model", "preparation", "nodes"}


@dataclass(frozen=True)
class SavedModel:
    """What a model file holds.

    Attributes
    ----------
    model : estimator
        The fitted estimator, as it was saved: a clusterer, a pipeline or a `TableClusterer`.
    preparation : Preparation or None
        How its rows were made from a table, where that was saved with it. That of a
        `TableClusterer` is its own.
    version : str
        The version of volmar that wrote the file.
    """

    model: Any
    preparation: Any
    version: str

    @property
    def clusterer(self) -> Any:
        """What takes rows that `preparation` has made: the model, or that of `TableClusterer`."""
        return getattr(self.model, "model_", self.model)


def save_model(
    path: str | PathLike[str], model: Any, *, preparation: Any = None, force: bool = False
) -> None:
    """Write a fitted estimator to a file that holds numbers and names, and no code.

    Parameters
    ----------
    path : str or path
        The file; ``.volmar`` is the customary ending.
    model : estimator
        A fitted estimator of volmar, such as `MSPC` or `TableClusterer`, or a pipeline of
        scikit-learn that ends in one. Other steps may be `StandardScaler`, `MinMaxScaler`,
        `MaxAbsScaler`, `RobustScaler`, `Normalizer`, `SimpleImputer`, `PCA`, `TruncatedSVD` or
        `volmar.tables.Preparation`.
    preparation : volmar.tables.Preparation, optional
        How its rows were made from a table. A `TableClusterer` has its own.
    force : bool, default=False
        Replace a file that exists.

    Raises
    ------
    ModelError
        Where the model is not fitted, the file exists and `force` is not set, or it cannot be
        written.
    TypeError
        Where the model holds what a file cannot: a callable kernel, affinity or start, a
        `RandomState`, a transformer of another package. The message names the attribute.

    Notes
    -----
    Everything that the fitted model has is kept, `labels_` and the training rows that graph and
    kernel methods need for new rows included: the file is as large as the model. Left out are
    factors of matrices and indices of neighbours, which are made again from what is kept;
    callbacks; and labels that lie in the blocks of a dask collection, which the model predicts.
    The file is complete or is not there at all.

    See Also
    --------
    load_model : Read it.

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
            f"preparation={preparation!r:.60}: a TableClusterer has its own. Leave it out."
        )
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise ModelError(f"this {type(model).__name__} is not fitted. Call fit first.") from None
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
        raise ModelError(f"the model {fault}, which load_model refuses. Check its parameters.")
    write_archive(Path(path), text, encoder.arrays, force=force)


def load_model(path: str | PathLike[str]) -> SavedModel:
    """Read a file that `save_model` has written.

    Loading runs nothing that the file says, no matter who wrote it: classes are taken from a list
    of volmar's own, objects are made empty and given attributes, arrays hold no objects. Types,
    shapes and sizes of its parts are checked, and the model scores a few rows before it is
    returned. A file can still lie about clusters: trust its labels as far as the one who sent it.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    SavedModel
        The model, the preparation of its rows and the version that wrote them.

    Raises
    ------
    ModelError
        Where the file is not a model file, is damaged, was written by a later format, names a
        class that is not on the list, needs more memory than there is, is nested more than 50
        deep, holds more than 2^24 values when every reference is written out, or holds a model
        whose parts do not fit together.

    Warns
    -----
    UserWarning
        Where another version of volmar has written the file.

    See Also
    --------
    save_model : Write it.
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
            f"{path} was written by volmar {version}, and this is {__version__}: labels of new "
            "rows may differ. Fit and save again to be sure.",
            UserWarning,
            stacklevel=2,
        )
    return SavedModel(model, preparation, version)


def _is_of_tables(model: Any) -> bool:
    return is_public_estimator(type(model)) and type(model).__name__ == "TableClusterer"


def _refuse_unknown(model: Any) -> None:
    """Refuse what cannot be saved by its class, before anything is encoded."""
    if type(model) is not Pipeline:
        if not is_public_estimator(type(model)):
            raise TypeError(
                f"model must be an estimator of volmar, such as MSPC, got {type(model).__name__}. "
                "A pipeline of scikit-learn may end in one."
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
                f"the step {name!r} of the pipeline is a {type(step).__name__}, and a model file "
                f"holds only these transformers: {', '.join(TRANSFORMERS)}."
            )
    if model.memory is not None:
        raise TypeError(
            "the pipeline has a memory, and a model file cannot hold it: call "
            "set_params(memory=None) on the fitted pipeline and save it then."
        )


def _check_loaded(archive: Archive, model: Any, preparation: Any) -> None:
    """Refuse a model whose parts are not those of a fitted one."""
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
            raise archive.error(f"holds a pipeline that none is saved as: {error}") from error
        model = model.steps[-1][1]
    elif _is_of_tables(model):
        if type(vars(model).get("preparation_")) is not Preparation:
            raise archive.error(f"holds a {name} that is not fitted")
        model = vars(model).get("model_")
    if not is_public_estimator(type(model)) or _is_of_tables(model):
        raise archive.error(f"holds a {type(model).__name__} and not an estimator of volmar")
    n_features = vars(model).get("n_features_in_")
    if not isinstance(n_features, int) or "result_" not in vars(model):
        raise archive.error(f"holds a {type(model).__name__} that is not fitted")


def _check_width(archive: Archive, model: Any, preparation: Preparation) -> None:
    n_made, n_taken = len(preparation.feature_names_), getattr(model, "n_features_in_", None)
    if not _is_of_tables(model) and n_made != n_taken:
        raise archive.error(
            f"holds a {type(model).__name__} for rows of {n_taken} features, and its preparation "
            f"makes {n_made}"
        )


def _warn_of_scikit_learn(path: Any, model: Any) -> None:
    if type(model) is not Pipeline:
        return
    of_sklearn = [model, *(step for _, step in model.steps[:-1] if hasattr(step, "__dict__"))]
    # As scikit-learn does when it unpickles.
    versions = {str(vars(one).pop("_sklearn_version", sklearn.__version__)) for one in of_sklearn}
    if versions - {sklearn.__version__}:
        warnings.warn(
            f"{path} has steps that scikit-learn {', '.join(sorted(versions))!s:.60} fitted, and "
            f"this is {sklearn.__version__}: labels of new rows may differ. Fit and save again to "
            "be sure.",
            UserWarning,
            stacklevel=3,
        )


def _check_version(archive: Archive, text: Any) -> str:
    """Return the version that wrote the file; refuse a format that is not known here."""
    written = text.get("format") if isinstance(text, dict) else None
    version = text.get("volmar") if isinstance(text, dict) else None
    if type(written) is not int or written < 1 or type(version) is not str or len(version) > 40:
        raise archive.error("has a malformed model.json")
    if written < FORMAT:
        raise archive.error(
            f"has format {written}, which this version no longer reads. Fit and save again"
        )
    if written > FORMAT:
        raise archive.error(
            f"has format {written}, written by volmar {version!r:.40}; this is volmar "
            f"{__version__}, which reads format {FORMAT}. Install the newer volmar"
        )
    return version
