"""`save_model` and `load_model`: fitted models in files that hold data, and no code.

A file is a zip archive of ``schema.json``, the objects as nodes of `skops.io`, and of arrays.
skops trusts more types than models need: it gets a copy of nodes with types listed here only.
"""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from inspect import getattr_static
from pathlib import Path
from typing import Any

import numpy as np
import skops.io
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import kernel_metrics
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from volmar._files import open_atomically
from volmar._memory import available_memory
from volmar._npy import check_indices, read_array
from volmar._version import __version__
from volmar.base.blocks import without_vectors
from volmar.base.clusterer import default_start, is_model
from volmar.tables import Preparation

__all__ = ["ModelError", "SavedModel", "load_model", "save_model"]
# Version of the file format, and of the nodes of skops that are known here.
FORMAT, PROTOCOL = 4, 2
# The classes of a model file by module. Files name them "Name/1", so that a class can move.
CLASSES = """
base.kernel:KernelExpansion base.outcome:OneCluster base.recursion:RecursiveResult
base.tree:SplitTree baselines.kernel_kmeans:KernelKMeans,KernelKMeansResult
baselines.projected_kmeans:DiscriminativeKMeans,DiscriminativeKMeansResult,LDAKMeans
baselines.projected_kmeans:LDAKMeansResult baselines.smic:SMIC,SMICResult
baselines.spectral:CutResult,NormalizedCut,NormalizedSpectralClustering,SpectralResult
diagnostics.drift:CategoryCounts,DriftSummary evidence.novelty:ClusterNovelty
evidence.novelty:ClusterScatter,Sketch evidence.pairs:LinearCells graphs.copies:Copies
graphs.density_scaling:DensityScalingExtension,DensityScalingSimilarity,LocalScales
graphs.graph:Graph,SpectralGraph graphs.neighbors:CellSearch,ExactSearch,NeighborSearch
graphs.similarities:CosineKNNExtension
graphs.similarities:CosineKNNSimilarity,GaussianExtension,GaussianSimilarity,LocalScalingExtension
auto.clusterer:AutoClusterer evidence.space:Space auto.grow:Grouped,Groups,Hyperplanes
auto.grow:LinearFunctions,NearestRow
graphs.similarities:LocalScalingSimilarity,NearestNeighborsExtension,NearestNeighborsSimilarity
margin.cpmmc:CPMMC margin.engine.descent:MarginResult margin.feature_space.basis:BasisExpansion
margin.feature_space.basis:BasisHyperplane,Projection,SparseVector
margin.feature_space.kernel:KernelHyperplane margin.feature_space.linear:FeatureHyperplane
margin.feature_space.linear:LinearHyperplane margin.gmmc:GMMC,GMMCResult margin.iter_svr:IterSVR
margin.iter_svr:IterSVRResult margin.kernel_cpmmc:KernelCPMMC margin.lgmmc:LGMMC
margin.lgmmc:LabelGenerationResult margin.multivariate_mmc:MultivariateMMC margin.sdp_mmc:SDPMMC
margin.sdp_mmc:SDPMMCResult margin.skmmc:SKMMC operators.protocol:EigenPairs
report.outcome:Evidence rows.kernel:Kernel,KernelPCAMap,NystroemMap
separation.batch_moments:BatchMoments separation.discriminants:MultiwaySeparationResult
separation.gep:SeparationResult separation.minimax_probability_machine:MinimaxProbabilityMachine
separation.mspc:MSPC separation.problem:SeparatingPlanes
solvers.minimax_probability:MinimaxProbabilityResult solvers.result:Result
table_clusterer.estimator:TableClusterer tables.features:CategoryScores,Fills,NumberFeatures,Tails
tables.kinds:ColumnKind tables.prepare:Preparation volume.hard_label_mvc:HardLabelMVC
volume.hard_label_mvc:HardLabelResult volume.multiway:MultiwayVolumeResult
volume.soft_label_mvc:SoftLabelMVC volume.two_way:VolumeResult
volume.volume_regularized_classifier:AVRResult,VolumeRegularizedClassifier
sklearn.decomposition._pca:PCA sklearn.decomposition._truncated_svd:TruncatedSVD
sklearn.impute._base:MissingIndicator,SimpleImputer sklearn.pipeline:Pipeline
sklearn.preprocessing._data:MaxAbsScaler,MinMaxScaler,Normalizer,RobustScaler,StandardScaler
"""
# Attributes with an entry for each training row, and those that scikit-learn sets.
_NOT_SAVED = ("confidence_", "transduction_", "embedding_", "scores_", "_fitted")
_CALLBACKS = ("_skl_callback", "_callback_fit_ctx")


class ModelError(ValueError):
    """A model file that cannot be read or written. The message gives the reason and a remedy."""


@dataclass(frozen=True)
class SavedModel:
    """The content of a model file.

    Attributes
    ----------
    model : estimator
        The fitted estimator: a clusterer, a pipeline or a `TableClusterer`.
    preparation : Preparation or None
        The preparation that was saved with the model, or that of a `TableClusterer`.
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
    path: str | os.PathLike[str], model: Any, *, preparation: Any = None, force: bool = False
) -> None:
    """Save a fitted estimator to a file that holds data but no code.

    Parameters
    ----------
    path : str or path-like
        File to write, usually with the suffix ``.volmar``.
    model : estimator
        A fitted estimator of volmar, or a pipeline of scikit-learn that ends in a clusterer of
        volmar. Its other steps may be `StandardScaler`, `MinMaxScaler`, `MaxAbsScaler`,
        `RobustScaler`, `Normalizer`, `SimpleImputer`, `PCA`, `TruncatedSVD` or `Preparation`.
    preparation : volmar.tables.Preparation, default=None
        The fitted preparation of the table. None for a `TableClusterer`, which has its own.
    force : bool, default=False
        Whether an existing file may be replaced.

    Raises
    ------
    ModelError
        If the model is not fitted, or the file exists (unless `force`), or cannot be written.
    TypeError
        If an attribute, which the message names, cannot be saved: a function or a `RandomState`.

    Notes
    -----
    The file holds what the model needs for new rows: `predict`, `decision_function`,
    `novelty_score`, `partial_fit` and `drift`. Only files of graph and kernel methods grow with
    the training rows. Results of these rows (`labels_`, `confidence_` and arrays of `result_` with
    an entry per row), a model given as `init`, search trees and callbacks are not saved.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from volmar import MSPC, load_model, save_model
    >>> from volmar.datasets import make_blobs
    >>> X, _ = make_blobs(100, random_state=0)
    >>> model = MSPC(random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(pathlib.Path(folder) / "blobs.volmar", model)
    ...     again = load_model(pathlib.Path(folder) / "blobs.volmar").model
    >>> bool((again.predict(X) == model.labels_).all())
    True
    """
    _refuse_unknown(model)
    is_preparation = type(preparation) is Preparation
    if preparation is not None and (not is_preparation or hasattr(model, "preparation_")):
        raise (ValueError if is_preparation else TypeError)(
            "preparation must be a volmar.tables.Preparation or None, and None for a "
            f"TableClusterer, which has its own; got {preparation!r:.60}."
        )
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise ModelError(f"This {type(model).__name__} is not fitted. Call fit first.") from None
    numbers: dict[bytes, str] = {}  # equal arrays are written once, numbered as they are used
    try:
        content = skops.io.dumps({"model": _for_prediction(model), "preparation": preparation})
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            text = _copied(
                json.loads(archive.read("schema.json")),
                lambda name: numbers.setdefault(archive.read(name), f"{len(numbers)}{name[-4:]}"),
            )
    except Exception as error:  # of objects that skops cannot take apart
        what = "is nested too deep" if isinstance(error, RecursionError) else error
        raise TypeError(
            f"This {type(model).__name__} cannot be saved: {' '.join(str(what).split())[:200]}. A "
            "model file holds numbers, strings, arrays and classes of volmar, and no functions. "
            "Change the parameter with set_params, to None or a name, and save the model then."
        ) from error
    raw = json.dumps({**text, "format": FORMAT, "volmar": __version__}, separators=(",", ":"))
    with open_atomically(Path(path), force=force, error=ModelError) as file:
        file.write(_zipped({"schema.json": raw} | {name: one for one, name in numbers.items()}))


def load_model(path: str | os.PathLike[str]) -> SavedModel:
    """Load a model from a file that was written by `save_model`.

    No code in the file is executed, even if the file is malicious: `skops.io` creates objects of
    a fixed list of classes without calling their constructors, and arrays hold no objects. The
    methods of a malicious model may still raise any error or return any labels. A file of another
    version of volmar or scikit-learn gives a warning.

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
        If the file is no model file, is damaged, has another format, or needs too much memory.
    """
    path = Path(path)
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise ModelError(f"{path} {what}. Give a file that was written by save_model.")
    try:
        saved = _loaded(path)
    except Exception as error:  # damaged or malicious bytes may raise any error
        reason = f"is not a model file written by save_model, or is damaged ({error!r:.200})"
        reason = str(error) if isinstance(error, ModelError) else reason
        remedy = "Copy the file again, or fit and save the model again."
        raise ModelError(f"{path} {' '.join(reason.split())}. {remedy}") from error
    if saved.version != __version__:
        warnings.warn(
            f"{path} was written by volmar {saved.version}, and this is volmar {__version__}. "
            "Labels of new rows may differ. Fit and save the model again to be sure.",
            stacklevel=2,
        )
    return saved


def _loaded(path: Path) -> SavedModel:
    """Return the content of a file."""
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        sizes = {one.filename: max(one.file_size, one.compress_size) for one in parts}
        if "schema.json" not in sizes or len(sizes) < len(parts):
            raise ModelError(
                "lacks schema.json, as files of earlier versions, or has a part twice"
            )
        is_packed = any(one.compress_type or one.flag_bits & 1 for one in parts)  # 1: encrypted
        if is_packed or sum(sizes.values()) > path.stat().st_size:
            raise ModelError("has compressed parts, or claims to hold more bytes than it has")
        # A byte of JSON takes at most 25 bytes as Python objects.
        if sum(sizes.values()) + 25 * sizes["schema.json"] > available_memory():
            raise ModelError("needs more memory than is available")
        members = {one: archive.read(one) for one in archive.namelist()}
    text = json.loads(members.pop("schema.json"))
    version, written = f"{text['volmar']!s:.40}", (text["format"], text["protocol"])
    if written != (FORMAT, PROTOCOL):
        raise ModelError(
            f"has format {written!s:.40}, written by volmar {version}. This is volmar "
            f"{__version__}, which reads format {FORMAT, PROTOCOL}. Install a newer version"
        )
    used: list[str] = []
    text = _copied(text, used.append)
    if set(used) != members.keys():
        raise ModelError("lacks arrays, or has unused arrays")
    # skops reads an array again for each node that names it.
    if 2 * sum(len(members[name]) for name in used) > available_memory():
        raise ModelError("needs more memory than is available")
    made = {name: _checked_array(name, content) for name, content in members.items()}
    trusted = [f"{module}.{own}" for _, module, own in _types() if module]
    found = skops.io.loads(_zipped(made | {"schema.json": json.dumps(text)}), trusted=trusted)
    model = found["model"]
    _refuse_unknown(model)
    check_is_fitted(model)
    preparation = getattr(model, "preparation_", found["preparation"])
    if preparation is not None and type(preparation) is not Preparation:
        raise ModelError(f"holds a {type(preparation).__name__} as the preparation")
    return SavedModel(model, preparation, version)


def _checked_array(name: str, content: bytes) -> bytes:
    """Return the bytes of an array or sparse matrix, written again after a check."""
    made = io.BytesIO()
    if name.endswith(".npy"):
        np.save(made, read_array(io.BytesIO(content)), allow_pickle=False)
        return made.getvalue()
    with zipfile.ZipFile(io.BytesIO(content)) as inner:
        if sum(one.file_size for one in inner.infolist()) > available_memory():
            raise ModelError("needs more memory than is available")
        for one in inner.infolist():
            with inner.open(one) as member:
                read_array(member)
    matrix = sparse.load_npz(io.BytesIO(content))
    check_indices(matrix)  # COO and DIA matrices have no indices to check, and are refused
    sparse.save_npz(made, matrix)
    return made.getvalue()


def _zipped(members: Mapping[str, bytes | str]) -> bytes:
    """Return an archive. Its times are fixed, so that the same model gives the same bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


@cache
def _types() -> dict[tuple[str, str | None, str], dict[str, str]]:
    """Return the type of a node in a file by its loader and type in memory, and the reverse."""
    plain: list[tuple[str, Any]] = [("DTypeNode", np.dtype), ("TypeNode", str), ("TypeNode", int)]
    plain += [("DictNode", dict), ("JsonNode", str), ("ListNode", list), ("TupleNode", tuple)]
    plain += [("FunctionNode", one) for one in kernel_metrics().values()]
    numbers = (np.bool_, np.int8, np.int32, np.int64, np.uint8, np.float32, np.float64, np.str_)
    plain += [("NdArrayNode", one) for one in (np.ndarray, *numbers)]
    matrices = (sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.csc_matrix)
    plain += [("SparseMatrixNode", one) for one in matrices]
    listed = [(key, one.__module__, one.__name__, one.__name__.rstrip("_")) for key, one in plain]
    listed.append(("ConstructorFromReduceNode", "volmar.solvers.result", "Status", "Status/1"))
    for room, names in (word.split(":") for word in CLASSES.split()):
        module = room if room.startswith("sklearn.") else f"volmar.{room}"
        listed += [("ObjectNode", module, own, f"{own}/1") for own in names.split(",")]
    found: dict[tuple[str, str | None, str], dict[str, str]] = {}
    for loader, module, own, name in listed:
        found[loader, module, own] = {"__class__": name}
        found[loader, None, name] = {"__module__": module, "__class__": own}
    return found


def _copied(part: Any, file: Callable[[str], str | None], path: str = "") -> Any:
    """Return a copy of nodes with the types of `_types`; `file` may return other names of arrays.

    Other types are refused, and references left out, so that no value contains or repeats another.
    """
    if isinstance(part, list):
        return [_copied(one, file, f"{path}[{i}]") for i, one in enumerate(part)]
    if not isinstance(part, dict):
        return part
    if "__loader__" not in part:
        return {key: _copied(one, file, f"{path}.{key:.40}") for key, one in part.items()}
    kind: Any = tuple(part.get(f"__{key}__") for key in ("loader", "module", "class"))
    loader, module, name = kind
    content: Any = part.get("content")
    is_known = kind in _types()
    if loader == "JsonNode":  # numbers have at most 24 characters
        is_known &= len(content) < 25 or content.startswith('"')
    elif "Pipeline" in str(name):  # the memory of others, which can hold code, is not checked
        is_known &= path == ".model"
    if not is_known:
        place = ".".join(str(one)[:60] for one in (module, name) if one)
        raise ModelError(f"{path[1:]} is a {place} ({loader!s:.30}), which no model file holds")
    made = {"__loader__": loader, **_types()[kind]}
    if loader == "ObjectNode":
        _tidy(content, part if module else made, is_loading=not module)
    return made | {
        key: file(one) or one if key == "file" else _copied(one, file, path)
        for key, one in part.items()
        if not key.startswith("__")
    }


def _tidy(state: Any, place: dict[str, Any], *, is_loading: bool) -> None:
    """Remove cached values, which nothing checks, from attributes, and use few threads."""
    cls = getattr(import_module(place["__module__"]), place["__class__"])
    attributes = state["content"]
    for key in list(attributes):
        if isinstance(getattr_static(cls, key, None), cached_property):
            del attributes[key], state["key_types"]["content"][0]  # all keys have the same type
    for key in attributes.keys() & {"n_jobs", "_n_jobs"}:
        if is_loading and (n_jobs := json.loads(attributes[key]["content"])) is not None:
            attributes[key]["content"] = str(max(-1, min(int(n_jobs), os.cpu_count() or 1)))


def _refuse_unknown(model: Any) -> None:
    """Raise `TypeError` for a model whose class cannot be saved."""
    import volmar

    is_pipeline = type(model) is Pipeline
    last = model.steps[-1][1] if is_pipeline else model
    name = type(last).__name__
    if getattr(volmar, name, None) is not type(last) or (is_pipeline and name == "TableClusterer"):
        raise TypeError(
            "model must be an estimator of volmar, such as MSPC, or a pipeline of scikit-learn "
            f"that ends in a clusterer of volmar, got {type(model).__name__} ({last!r:.40})."
        )
    if is_pipeline and model.memory is not None:
        raise TypeError("The pipeline has a memory. Call set_params(memory=None) before saving.")


def _for_prediction(model: Any) -> Any:
    """Return a copy of a fitted model with the attributes that new rows need."""
    light = without_vectors(model)
    state = vars(light)
    for key in [one for one in state if one in _NOT_SAVED or one.startswith(_CALLBACKS)]:
        del state[key]
    if type(model).__name__ == "HardLabelMVC":  # its scores are means over the labels
        state["labels_"] = model.labels_
    if isinstance(state.get("init"), np.ndarray) or is_model(state.get("init")):
        state["init"] = default_start(model)
    if "tree_" in state:
        state["tree_"] = copy(model.tree_)  # with nodes of its own
        for node in state["tree_"].nodes():
            node.model = None if node.model is None else _for_prediction(node.model)
    if state.get("_guided") is not None:  # of AutoClusterer
        state["_guided"] = _for_prediction(model._guided)
    if "model_" in state:
        state["model_"] = _for_prediction(model.model_)
    if type(model) is Pipeline:
        *before, (name, last) = model.steps
        state["steps"] = [*before, (name, _for_prediction(last))]
    return light
