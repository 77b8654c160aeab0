"""The classes and functions that a model file may hold, and their attributes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from importlib import import_module
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import kernel_metrics

__all__ = [
    "CLASSES",
    "TRANSFORMERS",
    "attribute_fault",
    "class_named",
    "defaults_of",
    "is_cached",
    "is_extension",
    "is_public_estimator",
    "known_functions",
    "name_of",
]

# The permanent names of classes in files, and the modules of the classes. If a class moves, its
# module is changed here. If it is renamed, the value becomes "module:Class". If its attributes
# change so that older files no longer fit, a line with a new version is added. The old line stays
# as long as such files are read.
CLASSES: dict[str, str] = {
    "BasisExpansion/1": "volmar.margin.feature_space.basis",
    "BasisHyperplane/1": "volmar.margin.feature_space.basis",
    "BatchMoments/1": "volmar.separation.batch_moments",
    "Candidates/1": "volmar.volume.two_way",
    "CategoryScores/1": "volmar.tables.agreement",
    "CategoryCounts/1": "volmar.diagnostics.drift_summary",
    "CellBackend/1": "volmar.graphs.neighbors",
    "CellSplit/1": "volmar.base.splitting",
    "ClusterNovelty/1": "volmar.evidence.novelty.cluster_novelty",
    "ClusterScatter/1": "volmar.evidence.novelty.scatter",
    "ColumnKind/1": "volmar.tables.kinds",
    "Copies/1": "volmar.graphs.copies",
    "CosineKNNExtension/1": "volmar.graphs.similarities",
    "CosineKNNSimilarity/1": "volmar.graphs.similarities",
    "DenseOperator/1": "volmar.operators.dense",
    "DensityScalingExtension/1": "volmar.graphs.density_scaling",
    "DensityScalingSimilarity/1": "volmar.graphs.density_scaling",
    "DriftSummary/1": "volmar.diagnostics.drift_summary",
    "EigenPairs/1": "volmar.operators.protocol",
    "Evidence/1": "volmar.report.outcome",
    "FaissBackend/1": "volmar.graphs.neighbors",
    "FeatureHyperplane/1": "volmar.margin.feature_space.linear",
    "Fills/1": "volmar.tables.fills",
    "GaussianExtension/1": "volmar.graphs.similarities",
    "GaussianSimilarity/1": "volmar.graphs.similarities",
    "Graph/1": "volmar.graphs.graph",
    "Kernel/1": "volmar.rows.kernel",
    "KernelExpansion/1": "volmar.base.kernel",
    "KernelHyperplane/1": "volmar.margin.feature_space.kernel",
    "KernelPCAMap/1": "volmar.rows.kernel_pca",
    "LinearCells/1": "volmar.evidence.splits.cells",
    "LinearHyperplane/1": "volmar.margin.feature_space.linear",
    "LocalScales/1": "volmar.graphs.density_scaling",
    "LocalScalingExtension/1": "volmar.graphs.similarities",
    "LocalScalingSimilarity/1": "volmar.graphs.similarities",
    "MultiwayProblem/1": "volmar.volume.multiway",
    "NearestNeighborsExtension/1": "volmar.graphs.similarities",
    "NearestNeighborsSimilarity/1": "volmar.graphs.similarities",
    "NeighborSearch/1": "volmar.graphs.neighbors",
    "NumberFeatures/1": "volmar.tables.number_features",
    "NystroemMap/1": "volmar.rows.nystroem",
    "Preparation/1": "volmar.tables.prepare",
    "Projection/1": "volmar.margin.feature_space.basis",
    "PyNNDescentBackend/1": "volmar.graphs.neighbors",
    "SeparatingPlanes/1": "volmar.separation.problem",
    "Sketch/1": "volmar.evidence.novelty.scatter",
    "SparseOperator/1": "volmar.operators.sparse",
    "SparseVector/1": "volmar.margin.feature_space.printed_basis",
    "SpectralGraph/1": "volmar.graphs.graph",
    "SplitNode/1": "volmar.base.tree",
    "SplitTree/1": "volmar.base.tree",
    "Status/1": "volmar.solvers.result",
    "Tails/1": "volmar.tables.tails",
    "TwoWayProblem/1": "volmar.volume.two_way",
    "VolumeProblem/1": "volmar.volume.problem",
    # Results of solvers.
    "AVRResult/1": "volmar.volume.volume_regularized_classifier",
    "CutResult/1": "volmar.baselines.spectral",
    "DiscriminativeKMeansResult/1": "volmar.baselines.projected_kmeans",
    "GMMCResult/1": "volmar.margin.gmmc",
    "HardLabelResult/1": "volmar.volume.hard_label_mvc",
    "IterSVRResult/1": "volmar.margin.relaxations.iter_svr_solver",
    "KernelKMeansResult/1": "volmar.baselines.kernel_kmeans",
    "LDAKMeansResult/1": "volmar.baselines.projected_kmeans",
    "LabelGenerationResult/1": "volmar.margin.relaxations.lgmmc_solver",
    "MarginResult/1": "volmar.margin.engine.descent",
    "MinimaxProbabilityResult/1": "volmar.solvers.minimax_probability",
    "MinimumDensityResult/1": "volmar.solvers.minimum_density",
    "MultiwaySeparationResult/1": "volmar.separation.relabelling",
    "MultiwayVolumeResult/1": "volmar.volume.multiway",
    "OneCluster/1": "volmar.base.one_cluster",
    "RecursiveResult/1": "volmar.base.recursion",
    "Result/1": "volmar.solvers.result",
    "SDPMMCResult/1": "volmar.margin.sdp_mmc",
    "SMICResult/1": "volmar.baselines.smic",
    "SeparationResult/1": "volmar.separation.gep",
    "SpectralResult/1": "volmar.baselines.spectral",
    "VolumeResult/1": "volmar.volume.two_way",
    # scikit-learn: these transforms only compute with arrays, and call nothing by name.
    "MaxAbsScaler/1": "sklearn.preprocessing",
    "MinMaxScaler/1": "sklearn.preprocessing",
    "MissingIndicator/1": "sklearn.impute",
    "Normalizer/1": "sklearn.preprocessing",
    "PCA/1": "sklearn.decomposition",
    "Pipeline/1": "sklearn.pipeline",
    "RobustScaler/1": "sklearn.preprocessing",
    "SimpleImputer/1": "sklearn.impute",
    "StandardScaler/1": "sklearn.preprocessing",
    "TruncatedSVD/1": "sklearn.decomposition",
    # Estimators.
    "CPMMC/1": "volmar",
    "DiscriminativeKMeans/1": "volmar",
    "GMMC/1": "volmar",
    "HardLabelMVC/1": "volmar",
    "IterSVR/1": "volmar",
    "KernelCPMMC/1": "volmar",
    "KernelKMeans/1": "volmar",
    "LDAKMeans/1": "volmar",
    "LGMMC/1": "volmar",
    "MSPC/1": "volmar",
    "MinimaxProbabilityMachine/1": "volmar",
    "MinimumDensityHyperplane/1": "volmar",
    "MultivariateMMC/1": "volmar",
    "NormalizedCut/1": "volmar",
    "NormalizedSpectralClustering/1": "volmar",
    "SDPMMC/1": "volmar",
    "SKMMC/1": "volmar",
    "SMIC/1": "volmar",
    "SoftLabelMVC/1": "volmar",
    "TableClusterer/1": "volmar",
    "VolumeRegularizedClassifier/1": "volmar",
}
#: Transformers that a saved pipeline may have.
TRANSFORMERS = (
    *("MaxAbsScaler", "MinMaxScaler", "Normalizer", "PCA", "Preparation", "RobustScaler"),
    *("SimpleImputer", "StandardScaler", "TruncatedSVD"),
)


def name_of(cls: type) -> str | None:
    """Return the latest name of a class in files, or None if it cannot be saved."""
    return next((name for name in _names(cls.__name__) if class_named(name) is cls), None)


@cache
def _names(own: str) -> list[str]:
    return [name for name in reversed(CLASSES) if _place(name)[1] == own]


def class_named(name: str) -> type | None:
    """Return the class of a name. For an unknown name, return None and import nothing."""
    if name not in CLASSES:
        return None
    module, own = _place(name)
    found: type = getattr(import_module(module), own)
    return found


def _place(name: str) -> tuple[str, str]:
    module, _, own = CLASSES[name].partition(":")
    return module, own or name.partition("/")[0]


def is_extension(value: Any) -> bool:
    """Return whether a value extends a similarity to new rows; models hold its `weights`."""
    return (name_of(type(value)) or "").partition("/")[0].endswith("Extension")


def is_public_estimator(cls: type) -> bool:
    """Return whether a class is an estimator that `volmar` exports."""
    return CLASSES.get(name_of(cls) or "") == "volmar"


@cache
def known_functions() -> dict[str, Callable[..., Any]]:
    """Return the functions that a model may hold: kernels of scikit-learn, given similarities."""
    graph = import_module("volmar.graphs.graph")
    kernels = {f"kernel {name}": function for name, function in kernel_metrics().items()}
    return {"given similarities": graph._given_row_weights, **kernels}


@cache
def _own_names(cls: Any) -> frozenset[str]:
    """Return the required attributes of a class: its fields, or parameters of an estimator."""
    if is_dataclass(cls):
        return frozenset(field.name for field in fields(cls))
    if issubclass(cls, BaseEstimator):
        return frozenset(inspect.signature(cls).parameters)
    return frozenset()


def defaults_of(cls: Any) -> dict[str, Any]:
    """Return the defaults of fields and parameters, which are missing from older files."""
    if is_dataclass(cls):
        return {one.name: one.default for one in fields(cls) if one.default is not MISSING}
    if issubclass(cls, BaseEstimator):
        parameters = inspect.signature(cls).parameters.values()
        return {one.name: one.default for one in parameters if one.default is not one.empty}
    return {}


def is_cached(cls: Any, name: str) -> bool:
    """Return whether a name is a cached property, which is recomputed when needed."""
    return isinstance(inspect.getattr_static(cls, name, None), cached_property)


def attribute_fault(cls: Any, names: Iterable[str]) -> str | None:
    """Return what is wrong with the attribute names of an instance, or None.

    A dataclass has its fields. An estimator has its parameters, and names that begin or end with
    an underscore, as usual in scikit-learn. Any class may have values of its cached properties. No
    attribute may hide a method or another name of the class.
    """
    if issubclass(cls, Enum):
        return "is an enumeration with attributes"
    own, names = _own_names(cls), set(names)
    for name in sorted(own - names):
        return f"lacks {name!r}"
    for name in sorted(names - own):
        static = inspect.getattr_static(cls, name, None)
        if is_cached(cls, name):
            continue
        if not name.isidentifier() or name.startswith("__") or static is not None:
            return f"has an attribute {name!r:.60}, which is not allowed"
        is_private = name.startswith("_") or name.endswith("_")
        if is_dataclass(cls) or (issubclass(cls, BaseEstimator) and not is_private):
            return f"has an unknown attribute {name!r:.60}"
    return None
