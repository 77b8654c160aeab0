"""`save_model` and `load_model`: fitted models in files, written and read by `skops.io`.

A file is a zip archive of ``schema.json``, which holds the objects as nodes of skops, and of
arrays. skops trusts more types than models need. Therefore every node is copied before skops gets
it, and only nodes and types that are listed here are copied.
"""

from __future__ import annotations

import io
import json
import os
import re
import warnings
import zipfile
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from inspect import getattr_static
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import kernel_metrics
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from volmar._files import open_atomically
from volmar._memory import available_memory
from volmar._npy import read_array
from volmar._version import __version__
from volmar.base.clusterer import default_start, is_model
from volmar.tables import Preparation

# Version of the file format, and of the nodes of skops that are known here.
FORMAT, PROTOCOL = 3, 2
# Maximum size of schema.json in bytes, and nesting of nodes; a fitted model has about 20 levels.
MAX_TEXT, MAX_DEPTH = 64 * 2**20, 60
# The classes of a model file, by room. Files name them "Name/version", so that a class can move.
# A class whose attributes change so that older files no longer fit gets a version in `VERSIONS`.
CLASSES = {
    "volmar.base": (
        "kernel.KernelExpansion outcome.OneCluster recursion.CellSplit "
        "recursion.RecursiveResult tree.SplitTree"
    ),
    "volmar.baselines": (
        "kernel_kmeans.KernelKMeans kernel_kmeans.KernelKMeansResult "
        "projected_kmeans.DiscriminativeKMeans projected_kmeans.DiscriminativeKMeansResult "
        "projected_kmeans.LDAKMeans projected_kmeans.LDAKMeansResult smic.SMIC smic.SMICResult "
        "spectral.CutResult spectral.NormalizedCut spectral.NormalizedSpectralClustering "
        "spectral.SpectralResult"
    ),
    "volmar.diagnostics": "drift.CategoryCounts drift.DriftSummary",
    "volmar.evidence": (
        "novelty.ClusterNovelty novelty.ClusterScatter novelty.Sketch pairs.LinearCells"
    ),
    "volmar.graphs": (
        "copies.Copies density_scaling.DensityScalingExtension "
        "density_scaling.DensityScalingSimilarity density_scaling.LocalScales graph.Graph "
        "graph.SpectralGraph neighbors.CellBackend neighbors.ExactBackend "
        "neighbors.FaissBackend neighbors.NeighborSearch neighbors.PyNNDescentBackend "
        "similarities.CosineKNNExtension similarities.CosineKNNSimilarity "
        "similarities.GaussianExtension similarities.GaussianSimilarity "
        "similarities.LocalScalingExtension similarities.LocalScalingSimilarity "
        "similarities.NearestNeighborsExtension similarities.NearestNeighborsSimilarity"
    ),
    "volmar.margin": (
        "cpmmc.CPMMC engine.descent.MarginResult feature_space.basis.BasisExpansion "
        "feature_space.basis.BasisHyperplane feature_space.basis.Projection "
        "feature_space.basis.SparseVector feature_space.kernel.KernelHyperplane "
        "feature_space.linear.FeatureHyperplane feature_space.linear.LinearHyperplane gmmc.GMMC "
        "gmmc.GMMCResult iter_svr.IterSVR iter_svr.IterSVRResult kernel_cpmmc.KernelCPMMC "
        "lgmmc.LGMMC lgmmc.LabelGenerationResult multivariate_mmc.MultivariateMMC "
        "sdp_mmc.SDPMMC sdp_mmc.SDPMMCResult skmmc.SKMMC"
    ),
    "volmar.operators": "protocol.EigenPairs",
    "volmar.report": "outcome.Evidence",
    "volmar.rows": "kernel.Kernel kernel.KernelPCAMap kernel.NystroemMap",
    "volmar.separation": (
        "batch_moments.BatchMoments discriminants.MultiwaySeparationResult gep.SeparationResult "
        "minimax_probability_machine.MinimaxProbabilityMachine mspc.MSPC "
        "problem.SeparatingPlanes"
    ),
    "volmar.solvers": "minimax_probability.MinimaxProbabilityResult result.Result",
    "volmar.table_clusterer": "estimator.TableClusterer",
    "volmar.tables": (
        "features.CategoryScores features.Fills features.NumberFeatures features.Tails "
        "kinds.ColumnKind prepare.Preparation"
    ),
    "volmar.volume": (
        "hard_label_mvc.HardLabelMVC hard_label_mvc.HardLabelResult "
        "multiway.MultiwayVolumeResult soft_label_mvc.SoftLabelMVC two_way.VolumeResult "
        "volume_regularized_classifier.AVRResult "
        "volume_regularized_classifier.VolumeRegularizedClassifier"
    ),
    # scikit-learn: these only compute with arrays, and call nothing by name.
    "sklearn.decomposition": "_pca.PCA _truncated_svd.TruncatedSVD",
    "sklearn.impute": "_base.MissingIndicator _base.SimpleImputer",
    "sklearn.pipeline": "Pipeline",
    "sklearn.preprocessing": (
        "_data.MaxAbsScaler _data.MinMaxScaler _data.Normalizer _data.RobustScaler "
        "_data.StandardScaler"
    ),
}
VERSIONS: dict[str, int] = {}
#: Transformers that a saved pipeline may have.
TRANSFORMERS = (
    *("MaxAbsScaler", "MinMaxScaler", "Normalizer", "PCA", "Preparation", "RobustScaler"),
    *("SimpleImputer", "StandardScaler", "TruncatedSVD"),
)
_MEMBER = re.compile(r"schema\.json|(0|[1-9][0-9]{0,8})\.np[yz]", re.ASCII)
# Attributes with an entry for each training row, which predictions do not need, and fields of
# results which they do need.
_OF_ROWS = ("labels_", "confidence_", "transduction_", "embedding_", "scores_", "_fitted")
_USED = ("centers", "shares", "divisors")
# Attributes that scikit-learn sets for callbacks during a fit.
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
        A fitted estimator of volmar, or a pipeline of scikit-learn that ends in a clusterer of
        volmar. Its other steps may be `StandardScaler`, `MinMaxScaler`, `MaxAbsScaler`,
        `RobustScaler`, `Normalizer`, `SimpleImputer`, `PCA`, `TruncatedSVD` or `Preparation`.
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
    The file holds what the model needs for new rows: `predict`, `decision_function`,
    `novelty_score`, `partial_fit`, and `drift` of a `TableClusterer`. Graph and kernel methods
    need their training rows, so that their files grow with these. Results of training rows
    (`labels_`, `confidence_` and arrays of `result_` with an entry per row) are not saved, nor
    are a previous model given as `init`, search trees, which are built again, and callbacks. If
    writing fails, no incomplete file is left.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from volmar import MSPC
    >>> from volmar.datasets import make_blobs
    >>> from volmar import load_model, save_model
    >>> X, _ = make_blobs(100, random_state=0)
    >>> model = MSPC(random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(pathlib.Path(folder) / "blobs.volmar", model)
    ...     again = load_model(pathlib.Path(folder) / "blobs.volmar").model
    >>> bool((again.predict(X) == model.labels_).all())
    True
    """
    _refuse_unknown(model)
    if preparation is not None and (type(preparation) is not Preparation or _is_of_tables(model)):
        kind = TypeError if type(preparation) is not Preparation else ValueError
        raise kind(
            "preparation must be a volmar.tables.Preparation or None, and None for a "
            f"TableClusterer, which has its own; got {preparation!r:.60}."
        )
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise ModelError(f"This {type(model).__name__} is not fitted. Call fit first.") from None
    import skops.io

    try:
        content = skops.io.dumps({"model": _for_prediction(model), "preparation": preparation})
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {one: archive.read(one) for one in archive.namelist()}
        schema = json.loads(members.pop("schema.json"))
        copy = _Copy(members, is_saving=True)
        root = copy.node(schema, "", 0)
    except Exception as error:  # of objects that skops cannot take apart
        what = "is nested too deep" if isinstance(error, RecursionError) else error
        raise TypeError(
            f"This {type(model).__name__} cannot be saved: {' '.join(str(what).split())[:200]}. A "
            "model file holds numbers, strings, arrays and classes of volmar, and no functions. "
            "Change the parameter with set_params, to None or a name, and save the model then."
        ) from error
    text = {"format": FORMAT, "volmar": __version__, "protocol": schema["protocol"], "root": root}
    raw = json.dumps(text, separators=(",", ":")).encode("ascii")
    if len(raw) > MAX_TEXT:
        raise ModelError(
            f"The model needs a schema.json of {len(raw)} bytes, above the limit of {MAX_TEXT}. "
            "Fit with fewer clusters."
        )
    with open_atomically(Path(path), force=force, error=ModelError) as file:
        file.write(_zipped({"schema.json": raw, **copy.members}))


def load_model(path: str | PathLike[str]) -> SavedModel:
    """Load a model from a file that was written by `save_model`.

    No code in the file is executed, even if the file is malicious: `skops.io` creates objects of
    a fixed list of classes, and only these, without calling their constructors, and arrays hold
    no objects. Of a malicious file, the methods of the model may still raise any error or return
    any labels, so use the labels only if you trust the author of the file.

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
        If the file is not a model file, is damaged, has another format, names an unknown class,
        or needs more memory than is available.

    Warns
    -----
    UserWarning
        If another version of volmar wrote the file, or if another version of scikit-learn fitted
        a step of a pipeline.

    """
    path = Path(path)
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise ModelError(f"{path} {what}. Give a file that was written by save_model.")
    try:
        model, preparation, version = _loaded(path)
    except Exception as error:  # damaged or malicious bytes may raise any error
        reason = str(error) if isinstance(error, _RefusedError) else f"is damaged ({error!r:.200})"
        if isinstance(error, zipfile.BadZipFile):
            reason = f"is not a model file written by save_model, or is damaged ({error!s:.100})"
        remedy = "Copy the file again, or fit and save the model again."
        raise ModelError(f"{path} {' '.join(reason.split())}. {remedy}") from error
    if version != __version__:
        warnings.warn(
            f"{path} was written by volmar {version}, and this is volmar {__version__}. Labels of "
            "new rows may differ. Fit and save the model again to be sure.",
            UserWarning,
            stacklevel=2,
        )
    return SavedModel(model, preparation, version)


# ---------------------------------------------------------------------- files


class _RefusedError(Exception):
    """Why a file is refused, or the place and type of an object that cannot be saved."""


def _loaded(path: Path) -> tuple[Any, Any, str]:
    """Return the model of a file, its preparation, and the version that wrote it."""
    with zipfile.ZipFile(path) as archive:
        _check_members(archive, path.stat().st_size)
        members = {one: archive.read(one) for one in archive.namelist()}
    text = json.loads(members.pop("schema.json"))
    version = _check_version(text)
    copy = _Copy(members, is_saving=False)
    root = copy.node(text["root"], "", 0)
    if copy.members.keys() != members.keys():
        raise _RefusedError("has unused arrays")
    if 2 * copy.n_bytes > available_memory():
        raise _RefusedError("needs more memory than is available")
    made = {name: _checked_array(name, content) for name, content in copy.members.items()}
    schema = {**root, "protocol": PROTOCOL, "_skops_version": ""}
    import skops.io

    made["schema.json"] = json.dumps(schema).encode("ascii")
    found = skops.io.loads(_zipped(made), trusted=sorted(copy.trusted))
    model, preparation = found["model"], found["preparation"]
    try:
        _refuse_unknown(model)
        check_is_fitted(model)
    except (TypeError, ValueError) as error:
        raise _RefusedError(f"holds no fitted model ({error})") from error
    preparation = model.preparation_ if _is_of_tables(model) else preparation
    if preparation is not None and type(preparation) is not Preparation:
        raise _RefusedError(f"holds a {type(preparation).__name__} as the preparation")
    return model, preparation, version


def _check_members(archive: zipfile.ZipFile, n_bytes: int) -> None:
    """Refuse parts that save_model does not write, and sizes above those of the file."""
    members = {one.filename: one for one in archive.infolist()}
    if "model.json" in members:
        raise _RefusedError("was written by an earlier version, whose files are no longer read")
    for name, one in members.items():
        if not _MEMBER.fullmatch(name):
            raise _RefusedError(f"holds {name!r:.60}, which is not part of a model file")
        # Bit 0 marks an encrypted member.
        if one.compress_type != zipfile.ZIP_STORED or one.flag_bits & 1:
            raise _RefusedError(f"holds {name} compressed or encrypted")
    if len(members) < len(archive.infolist()) or "schema.json" not in members:
        raise _RefusedError("has a duplicate member, or no schema.json")
    total = sum(max(one.file_size, one.compress_size) for one in members.values())
    n_text = members["schema.json"].file_size
    if total > n_bytes or n_text > MAX_TEXT:
        raise _RefusedError(f"claims to hold more bytes than it has, or than {MAX_TEXT} of text")
    # A byte of JSON takes at most 25 bytes as Python objects.
    if total + 25 * n_text > available_memory():
        raise _RefusedError("needs more memory than is available")


def _check_version(text: Any) -> str:
    """Return the version of volmar that wrote the file."""
    if not isinstance(text, dict) or text.keys() != {"format", "volmar", "protocol", "root"}:
        raise _RefusedError("has a malformed schema.json")
    version, written = f"{text['volmar']!s:.40}", (text["format"], text["protocol"])
    if written != (FORMAT, PROTOCOL) or bool in map(type, written):
        raise _RefusedError(
            f"has format {written!s:.40}, written by volmar {version}. This is volmar "
            f"{__version__}, which reads format {FORMAT, PROTOCOL}. Install a newer version"
        )
    return version


def _checked_array(name: str, content: bytes) -> bytes:
    """Return the bytes of an array or sparse matrix, written again after a check."""
    made = io.BytesIO()
    if name.endswith(".npy"):
        np.save(made, read_array(io.BytesIO(content), len(content)), allow_pickle=False)
        return made.getvalue()
    with zipfile.ZipFile(io.BytesIO(content)) as inner:
        if sum(one.file_size for one in inner.infolist()) > available_memory():
            raise _RefusedError("needs more memory than is available")
        parts = {}
        for one in inner.infolist():
            with inner.open(one) as member:
                parts[one.filename.removesuffix(".npy")] = read_array(member, one.file_size)
    kind = {b"csr": "csr", b"csc": "csc"}[parts["format"].item()]
    is_array = "_is_array" in parts and parts["_is_array"].item() is True
    arrays = tuple(parts[part] for part in ("data", "indices", "indptr"))
    cls = getattr(sparse, f"{kind}_{'array' if is_array else 'matrix'}")
    matrix = cls(arrays, shape=tuple(parts["shape"].tolist()))
    # Compiled code uses the indices without a check of their range.
    matrix.check_format(full_check=True)
    sparse.save_npz(made, matrix)
    return made.getvalue()


def _zipped(members: dict[str, bytes]) -> bytes:
    """Return an archive. Its times are fixed, so that the same model gives the same bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()


# ---------------------------------------------------------------------- nodes


@cache
def _places() -> dict[tuple[str, str], tuple[str, str]]:
    """Return the module and name of each type, by the loader of skops and the name in files."""
    found = {("ConstructorFromReduceNode", "Status/1"): ("volmar.solvers.result", "Status")}
    for room, classes in CLASSES.items():
        for place in classes.split():
            module, _, name = f"{room}.{place}".rpartition(".")
            found["ObjectNode", f"{name}/{VERSIONS.get(name, 1)}"] = module, name
    found["FunctionNode", "given similarities"] = "volmar.graphs.graph", "_given_row_weights"
    numbers = (np.bool_, np.int8, np.int32, np.int64, np.uint8, np.float32, np.float64, np.str_)
    matrices = (sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.csc_matrix)
    known: dict[str, tuple[Any, ...]] = {
        "FunctionNode": tuple(kernel_metrics().values()),
        "NdArrayNode": (np.ndarray, *numbers),
        "SparseMatrixNode": matrices,
        "TypeNode": (str, int),
    }
    plain = {"Dict": dict, "List": list, "Tuple": tuple, "DType": np.dtype, "Json": str}
    known |= {f"{name}Node": (one,) for name, one in plain.items()}
    for loader, types in known.items():
        for one in types:
            found[loader, one.__name__.rstrip("_")] = one.__module__, one.__name__
    return found


class _Copy:
    """Copy nodes of skops to a file (`is_saving`) or from a file, and refuse unknown ones.

    References between nodes are not copied, so that no value contains itself, and all values
    together are not larger than their text and arrays.
    """

    def __init__(self, members: dict[str, bytes], *, is_saving: bool):
        self._given, self._is_saving = members, is_saving
        self._names = {(loader, place): name for (loader, name), place in _places().items()}
        self._same: dict[bytes, str] = {}
        #: Arrays that nodes name, their bytes if each was read for every node, trusted types.
        self.members: dict[str, bytes] = {}
        self.n_bytes = 0
        self.trusted: set[str] = set()

    def node(self, state: Any, path: str, depth: int) -> dict[str, Any]:
        """Return the copy of a node, whose place is `path`."""
        if depth > MAX_DEPTH:
            raise _RefusedError(f"has {path[1:80]} nested more than {MAX_DEPTH} levels deep")
        loader, content = state["__loader__"], state.get("content")
        if loader == "MethodNode":
            return self._method(content, path, depth)
        made: dict[str, Any] = {"__loader__": loader, **self._type(state, path)}

        def inside(part: Any, step: str = "") -> Any:
            return self.node(part, path + step, depth + 1)

        if loader == "JsonNode":
            made |= {"content": _plain(content, path), "is_json": True}
        elif loader == "DictNode":
            made["content"] = {key: inside(part, f".{key}") for key, part in content.items()}
            made["key_types"] = inside(state["key_types"], " (keys)")
        elif loader in ("ListNode", "TupleNode"):
            made["content"] = [inside(part, f"[{i}]") for i, part in enumerate(content)]
        elif loader in ("ObjectNode", "ConstructorFromReduceNode", "DTypeNode"):
            if loader == "ObjectNode":
                name = (made if self._is_saving else state)["__class__"]
                content = _tidied(content, _places()[loader, name], is_saving=self._is_saving)
            made["content"] = inside(content)
        elif loader == "NdArrayNode" and state["type"] == "json":
            made["content"] = [inside(part, f"[{i}]") for i, part in enumerate(content)]
            if any(part["__loader__"] != "JsonNode" for part in made["content"]):
                raise _RefusedError(f"{path[1:]} is an array of objects")
            made |= {"type": "json", "shape": inside(state["shape"])}
        elif loader in ("NdArrayNode", "SparseMatrixNode"):
            kind, suffix = ("numpy", "npy") if loader == "NdArrayNode" else ("scipy", "npz")
            made |= {"type": kind, "file": self._file(state["file"], suffix)}
        return made

    def _type(self, state: Any, path: str) -> dict[str, str]:
        loader, module, name = (state.get(f"__{key}__") for key in ("loader", "module", "class"))
        if self._is_saving:
            if (loader, (module, name)) not in self._names:
                raise _RefusedError(f"{path[1:]} is a {module}.{name}")
            return {"__class__": self._names[loader, (module, name)]}
        if (loader, name) not in _places():
            raise _RefusedError(
                f"names a type {name!r:.80} ({loader!r:.30}), which volmar {__version__} does not "
                "know. No code was executed"
            )
        if name == "Pipeline/1" and path != ".model":  # the memory of a pipeline can hold code
            raise _RefusedError(f"holds a pipeline as {path[1:80]}")
        module, name = _places()[loader, name]
        self.trusted.add(f"{module}.{name}")
        return {"__module__": module, "__class__": name}

    def _method(self, content: Any, path: str, depth: int) -> dict[str, Any]:
        """Copy the method `weights` of an extension of a similarity, the only one in models."""
        held = self.node(content["obj"], path, depth + 1)
        if content["func"] != "weights" or "Extension" not in held["__class__"]:
            raise _RefusedError(f"{path[1:]} is a method {content['func']!r:.40}")
        # skops writes the module of an inherited method, but expects that of the object.
        place: dict[str, Any] = {
            key: held[key] for key in ("__module__", "__class__") if key in held
        }
        self.trusted.add(".".join([*place.values(), "weights"]))
        return {"__loader__": "MethodNode", **place, "content": {**content, "obj": held}}

    def _file(self, name: str, suffix: str) -> str:
        content = self._given[name]
        self.n_bytes += len(content)
        if self._is_saving:
            name = self._same.setdefault(content, f"{len(self._same)}.{suffix}")
        if not name.endswith(suffix):
            raise _RefusedError(f"has a wrong array {name}")
        self.members[name] = content
        return name


def _plain(content: Any, path: str) -> str:
    """Return the JSON text of a plain value after a check."""
    value = json.loads(content)
    is_long = type(value) is int and not -(2**63) <= value < 2**64
    if is_long or type(value) not in (bool, int, float, str, type(None)):
        raise _RefusedError(f"{path[1:]} is not a plain value of at most 64 bits")
    return str(content)


def _tidied(state: dict[str, Any], place: tuple[str, str], *, is_saving: bool) -> dict[str, Any]:
    """Return attributes without cached values, which nothing checks, and with few threads."""
    cls, kept = getattr(import_module(place[0]), place[1]), {}
    for key, part in state["content"].items():
        if not isinstance(getattr_static(cls, key, None), cached_property):
            kept[key] = part
        if key in ("n_jobs", "_n_jobs") and not is_saving and part["content"] != "null":
            part["content"] = str(max(-1, min(int(part["content"]), os.cpu_count() or 1)))
    types = state["key_types"]
    if {one["__class__"] for one in types["content"]} - {"str"}:
        raise _RefusedError(f"has attributes of {place[1]} without names")
    types = {**types, "content": types["content"][: len(kept)]}
    return {**state, "content": kept, "key_types": types}


# ---------------------------------------------------------------------- models


def _is_estimator(model: Any) -> bool:
    import volmar

    return getattr(volmar, type(model).__name__, None) is type(model)


def _is_of_tables(model: Any) -> bool:
    return _is_estimator(model) and type(model).__name__ == "TableClusterer"


def _refuse_unknown(model: Any) -> None:
    """Raise `TypeError` for a model whose class cannot be saved."""
    is_pipeline = type(model) is Pipeline
    *before, (_, last) = model.steps if is_pipeline else [("", model)]
    if not _is_estimator(last) or (is_pipeline and _is_of_tables(last)):
        raise TypeError(
            "model must be an estimator of volmar, such as MSPC, or a pipeline of scikit-learn "
            f"that ends in a clusterer of volmar, got {type(model).__name__} ({last!r:.40})."
        )
    for name, step in before:
        if type(step).__name__ not in TRANSFORMERS and step not in (None, "passthrough"):
            raise TypeError(
                f"Step {name!r} of the pipeline is a {type(step).__name__}, which cannot be "
                f"saved. Use one of {', '.join(TRANSFORMERS)}."
            )
    if is_pipeline and model.memory is not None:
        raise TypeError("The pipeline has a memory. Call set_params(memory=None) before saving.")


def _for_prediction(model: Any) -> Any:
    """Return a copy of a fitted model with the attributes that new rows need."""
    light = _copied(model)
    state = vars(light)
    n_rows = getattr(state.get("labels_"), "shape", (None,))[0]
    for name in list(state):
        if name in _OF_ROWS or name.startswith(_CALLBACKS):
            del state[name]
    if type(model).__name__ == "HardLabelMVC":  # its scores are means over the labels
        state["labels_"] = model.labels_
    if isinstance(state.get("init"), np.ndarray) or is_model(state.get("init")):
        state["init"] = default_start(model)
    if "result_" in state:
        found = vars(state["result_"])
        is_long = {
            name: getattr(value, "shape", ())[:1] == (n_rows,) for name, value in found.items()
        }
        rows = {name: np.empty(0) for name in found if is_long[name] and name not in _USED}
        plain = {"residuals": dict(found["residuals"]), "history": ()}
        state["result_"] = _copied(state["result_"], **rows, **plain)
    if "tree_" in state:
        nodes = {id(node): _copied(node) for node in state["tree_"].nodes()}
        for node in nodes.values():
            node.children = tuple(nodes[id(child)] for child in node.children)
            node.model = None if node.model is None else _for_prediction(node.model)
        state["tree_"] = _copied(state["tree_"], root=nodes[id(state["tree_"].root)])
    if "model_" in state:
        state["model_"] = _for_prediction(state["model_"])
    if type(model) is Pipeline:
        *before, (name, last) = state["steps"]
        state["steps"] = [*before, (name, _for_prediction(last))]
    return light


def _copied(held: Any, **changes: Any) -> Any:
    copied = object.__new__(type(held))
    vars(copied).update(vars(held) | changes)
    return copied
