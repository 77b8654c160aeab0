"""Fitted models into files and out of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from volmar._version import __version__
from volmar.models.archive import Archive, ModelError, write_archive
from volmar.models.classes import is_public_estimator
from volmar.models.decode import Decoder
from volmar.models.encode import Encoder

__all__ = ["SavedModel", "load_model", "save_model"]

# Raised when files of before can no longer be read, or those of now not by versions of before.
FORMAT = 1
_KEYS = {"format", "volmar", "model", "preparation", "nodes"}


@dataclass(frozen=True)
class SavedModel:
    """What a model file holds.

    Attributes
    ----------
    model : estimator
        The fitted estimator.
    preparation : object or None
        How its rows were made from a table, where that was saved with it.
    version : str
        The version of volmar that wrote the file.
    """

    model: Any
    preparation: Any
    version: str


def save_model(
    path: str | PathLike[str], model: Any, *, preparation: Any = None, force: bool = False
) -> None:
    """Write a fitted estimator to a file that holds numbers and names, and no code.

    Parameters
    ----------
    path : str or path
        The file; ``.volmar`` is the customary ending.
    model : estimator
        A fitted estimator of volmar.
    preparation : object, optional
        How its rows were made from a table, a `volmar.tables.Preparation`.
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
    if not is_public_estimator(type(model)):
        raise TypeError(
            f"model must be an estimator of volmar, such as MSPC, got {type(model).__name__}."
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
    write_archive(Path(path), text, encoder.arrays, force=force)


def load_model(path: str | PathLike[str]) -> SavedModel:
    """Read a file that `save_model` has written.

    Loading runs nothing that the file says, whoever made it: classes are taken from a list of
    volmar's own, objects are made empty and given attributes, arrays hold no objects. A file
    can still lie about clusters: trust its labels as far as the one who sent it.

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
        class that is not on the list or needs more memory than there is.

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
            raise archive.error("has a model.json that is not made like one")
        decoder = Decoder(archive, text["nodes"])
        model, preparation = decoder.value(text["model"]), decoder.value(text["preparation"])
        if not is_public_estimator(type(model)):
            raise archive.error(f"holds a {type(model).__name__} and not an estimator of volmar")
        n_features = vars(model).get("n_features_in_")
        if not isinstance(n_features, int) or "result_" not in vars(model):
            raise archive.error(f"holds a {type(model).__name__} that is not fitted")
    if version != __version__:
        warnings.warn(
            f"{path} was written by volmar {version}, and this is {__version__}: labels of new "
            "rows may differ. Fit and save again to be sure.",
            UserWarning,
            stacklevel=2,
        )
    return SavedModel(model, preparation, version)


def _check_version(archive: Archive, text: Any) -> str:
    """Return the version that wrote the file; refuse a format that is not known here."""
    written = text.get("format") if isinstance(text, dict) else None
    version = text.get("volmar") if isinstance(text, dict) else None
    if type(written) is not int or written < 1 or type(version) is not str:
        raise archive.error("has a model.json that is not made like one")
    if written > FORMAT:
        raise archive.error(
            f"has format {written}, written by volmar {version!r:.40}; this is volmar "
            f"{__version__}, which reads formats up to {FORMAT}. Install the newer volmar"
        )
    return version
