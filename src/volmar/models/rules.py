"""What the attributes of fitted objects must be besides their types: shapes that fit each other.

`RULES` has a few lines for each class. A line names an attribute, or a way to one of its parts,
and says what stands there::

    "coef: float d k? finite"     an array (d,) or (d, k), or a matrix; or a number, where all
                                  dimensions are optional
    "_expansion.rows: float n d"  the same n as that of other lines of the class

Kinds are float, int, bool, real (any of these), text (of one dimension: str), name (a str), a
class of `volmar.models.classes`, a word that its name ends in ("*Extension"), "function" and
"estimator". A kind with a question mark may be None, one with an exclamation mark must be there:
other attributes may be missing, and the trial of the model finds what it needs. Dimensions are
letters, numbers or "*" for any. Flags: finite, positive, nonzero, divisor (no quotient of a number
of a table by it overflows), below:n (indices from 0 to n - 1), number:n (the same, or a name where
a line before has the dimension "names"), label:n (-1 to n - 1), upto:n (0 to
n), sum:n, is:n (a number that equals n).
"""

from __future__ import annotations

__all__ = ["RULES"]

_LABELLED = (
    "n_features_in_: int positive",
    "classes_: int|text names",
    "labels_: int|text n number:n",
    "_offsets: float? * finite",
    "broken_links_: int * 2 below:n",
    "previous_clusters_: int *",
    "objective_: float!",
    "n_iter_: int!",
    "status_: Status!",
    "result_: *Result|OneCluster!",
    "result_.labels: real n",
    "tree_: SplitTree",
    "novelty_: ClusterNovelty",
    "novelty_.scatter.n_features: int",
    "row_map_: RowMap|ViewMap",
    "row_map_.idf: float? f",
    "row_map_.components: float? * f",
    "row_map_.columns: int * below:f",
    "n_features_in_: int is:f",
)
_EXPANDED = ("_expansion: KernelExpansion", "_expansion.rows: float? n *")
# A number in files of the first versions.
_KERNEL_FUNCTION = (
    "dual_coef_: float n finite",
    "intercept_: float *? finite",
    "gamma_: float?",
)
_LINEAR = ("coef_: float k *", "intercept_: float k?")
_GRAPH = (
    "n_neighbors_: int?",
    "sigma_: float?",
    "_row_weights: function",
    "eigenvalues_: float *",
)
_HYPERPLANE = (
    "_hyperplane: *Hyperplane",
    "coef_: float * *",
    "dual_coef_: float * *?",
    "intercept_: float *?",
    "gamma_: float?",
    "cut_: float",
)
_KERNEL_MAP = ("_kernel: Kernel", "_n_components: int positive is:r", "n_features_in_: int is:d")
_BACKEND = ("_rows: float n d finite", "_seed: int")

RULES: dict[str, tuple[str, ...]] = {
    # Parts of predictions.
    "Kernel": ("kernel: name|function", "_function: function?", "_arguments: numbers"),
    "KernelExpansion": ("rows: float? n d finite", "offset: float? d finite"),
    "RowMap": ("idf: float? d finite", "components: float? r d finite"),
    "ViewMap": (
        "columns: int m",
        "starts: int *",
        "ends: int *",
        "scales: float v finite",
        "mean: float * finite",
        "maps: list v",
    ),
    "LinearHyperplane": ("coef: float d k? finite", "intercept: float k? finite"),
    "KernelHyperplane": (
        "coef: float n k? finite",
        "intercept: float k? finite",
        "expansion.rows: float? n d",
    ),
    "FeatureHyperplane": (
        "feature_map: *Map",
        "feature_map._n_components: int is:r",
        "linear.coef: float r *?",
    ),
    "BasisHyperplane": ("t: float finite",),
    "BasisExpansion": (
        "vectors: float m d finite",
        "coefficients: float m finite",
        "means: float m finite",
        "gamma: float positive finite",
        "offset: float? d finite",
    ),
    "NystroemMap": (
        "landmarks_: float m d finite",
        "normalizer_: float m r finite",
        *_KERNEL_MAP,
    ),
    "KernelPCAMap": (
        "_points: float? n d finite",
        "_column_means: float n finite",
        "_projection: float n r finite",
        *_KERNEL_MAP,
    ),
    "SeparatingPlanes": (
        "feature_map: *Map?",
        "mean: float d finite",
        "coefficients: float d m? finite",
        "threshold: float m? finite",
        "unit: float finite nonzero",
        "pairs: int? m 2 upto:m",
    ),
    "BatchMoments": (
        "n_rows: int! positive",
        "n_batches: int! positive",
        "weight: float! k finite positive",
        "means: float! k d finite",
        "second: float! d d finite",
        "second_of_1: float? d d finite",
    ),
    "LinearCells": ("coef: float k d finite", "intercept: float k finite", "sides: bool k"),
    "CellSplit": ("cells: LinearCells", "labels_: int *", "result_: Result", *_LINEAR),
    # Calibrated distances of rows in clusters.
    "Sketch": ("bucket: int d", "sign: int d"),
    "ClusterScatter": (
        "n_features: int positive",
        "sketch: Sketch?",
        "mean: float q finite",
        "scale: float q finite divisor positive",
        "starts: int! *",
        "centers: float! c q finite",
        "axes: float! m q r finite",
        "variances: float! m r finite positive",
        "noise: float! m positive",
    ),
    "ClusterNovelty": (
        "scatter: ClusterScatter!",
        "starts: int! *",
        "distances: float! m finite",
        "counts: float! m finite",
        "n_rows: int! k",
    ),
    # Graphs.
    "NeighborSearch": (
        "metric: name",
        "rows: float n d finite",
        "_origin: float? d finite",
        "_n_jobs: int?",
        "_backend: *Backend",
        "_backend._rows: float n d",
        "_named: bool",
        "recall: float?",
    ),
    "CellBackend": _BACKEND,
    "FaissBackend": _BACKEND,
    "PyNNDescentBackend": _BACKEND,
    "Copies": ("point: int n below:p", "counts: int p positive sum:n"),
    "LocalScales": (
        "radius: float p finite positive",
        "relative: float p finite positive",
        "width: float finite positive",
    ),
    "DensityScalingExtension": (
        "copies.counts: int p",
        "search.rows: float p d",
        "scales.radius: float p",
        "scales.relative: float p",
        "n_edges: int positive below:p",
        "n_neighbors: int positive",
        "exponent: float finite",
    ),
    "LocalScalingExtension": (
        "scales: float n finite positive",
        "search.rows: float n d",
        "n_edges: int positive below:n",
        "n_neighbors: int positive",
    ),
    "CosineKNNExtension": ("search.rows: float n d", "n_neighbors: int positive below:n"),
    "NearestNeighborsExtension": ("search.rows: float n d", "n_neighbors: int positive below:n"),
    "GaussianExtension": (
        "rows: float n d finite",
        "origin: float? d finite",
        "sigma: float finite positive",
    ),
    "Graph": ("W: float n n finite",),
    "EigenPairs": (
        "values: float k finite",
        "vectors: float n k finite",
        "residuals: float k",
    ),
    "SpectralGraph": (
        "graph.W: float n n",
        "pairs.vectors: float n k",
        "n_clusters: int positive upto:k",
    ),
    "DenseOperator": ("matrix: float n n", "shift: float", "n: int is:n", "_known: float? n *"),
    "SparseOperator": ("matrix: float n n", "shift: float", "n: int is:n", "_known: float? n *"),
    "Candidates": ("vectors: float n k", "values: float k"),
    "TwoWayProblem": (
        "graph.W: float n n",
        "problem.operator.n: int is:n",
        "problem.sides: float? n",
        "pairs.vectors: float? n *",
        "init: float? n",
    ),
    "MultiwayProblem": ("graph.W: float n n", "init: int? n"),
    # Tables.
    "Tails": (
        "shifts: float d",
        "steps: float d finite",
        "leasts: float d finite",
        "lows: float d",
        "highs: float d",
    ),
    "Fills": ("donors: float m d", "medians: float d finite", "scales: float d finite positive"),
    "NumberFeatures": (
        "offsets: float d finite",
        "scales: float d finite divisor",
        "tails.shifts: float d",
        "fills.medians: float d",
    ),
    "CategoryScores": ("columns: text c", "widths: float k finite", "leading: list k"),
    "Preparation": (
        "n_features_in_: int! is:f",
        "names_in_: text! f",
        "feature_names_in_: text f",
        "numbers_: text! d",
        "number_kinds_: list! d",
        "number_features_: NumberFeatures?",
        "number_features_.offsets: float d",
        "texts_: text! c",
        "scores_: CategoryScores?",
        "scores_.columns: text c",
        "categories_: categories!",
        "feature_names_: text! *",
        "kinds_: names!",
        "left_out_: names!",
        "notes_: text! *",
        "warnings_: text! *",
    ),
    "TableClusterer": (
        "clusterer: name|estimator",
        "n_features_in_: int! is:f",
        "preparation_: Preparation!",
        "preparation_.names_in_: text f",
        "preparation_.feature_names_: text d",
        "model_: estimator!",
        "model_.n_features_in_: int is:d",
        "feature_names_in_: text f",
        "labels_: int! n label:n",
        "confidence_: float! n",
        "n_clusters_: int! positive upto:n",
        "cluster_names_: text c",
        "slopes_: slopes!",
        "novelty_: ClusterNovelty",
        "novelty_.scatter.n_features: int is:d",
        "evidence_: list! *",
        "notes_: text! *",
        "warnings_: text! *",
        "seconds_: numbers!",
        "_fit_seed: int!",
        "_fit_work: float",
        "is_fitted_to_blocks_: bool",
        "drift_summary_: DriftSummary",
        "drift_summary_.names: text d",
    ),
    "CategoryCounts": ("n_other: int", "n_missing: int"),
    "DriftSummary": (
        "names: text! d",
        "counts: int! k",
        "means: float! k d finite",
        "squares: float! k d finite",
        "centers: float! k d finite",
        "scales: float! d finite positive",
        "edges: float! k 9 finite",
        "distance_counts: int! k 10",
        "n_left_out: int",
    ),
    "SplitTree": ("feature_names: text? *",),
    # Estimators.
    "CPMMC": (*_LABELLED, *_HYPERPLANE),
    "DiscriminativeKMeans": (
        *_LABELLED,
        "components_: float r d finite",
        "mean_: float d finite",
        "cluster_centers_: float k r finite",
    ),
    "GMMC": (*_LABELLED, *_EXPANDED, *_KERNEL_FUNCTION),
    "HardLabelMVC": (*_LABELLED, *_GRAPH, "alpha_: float n finite"),
    "IterSVR": (*_LABELLED, *_HYPERPLANE),
    "KernelCPMMC": (*_LABELLED, *_HYPERPLANE),
    "KernelKMeans": (
        *_LABELLED,
        *_EXPANDED,
        "_mean_weights: float n k finite",
        "_mean_norms: float k finite",
    ),
    "LDAKMeans": (
        *_LABELLED,
        "components_: float r d finite",
        "mean_: float d finite",
        "cluster_centers_: float k r finite",
    ),
    "LGMMC": (*_LABELLED, *_HYPERPLANE),
    "MSPC": (
        *_LABELLED,
        *_LINEAR,
        "_planes: SeparatingPlanes",
        "msp_: float",
        "polished_: bool",
        "reg_: float",
        "gamma_: float?",
        "n_samples_seen_: int positive",
        "batch_moments_: BatchMoments",
        "batch_moments_.means: float * d",
        "_planes.mean: float d",
    ),
    "MinimaxProbabilityMachine": (
        "n_features_in_: int positive",
        "result_: *Result",
        "classes_: any 2",
        "coef_: float 1 d finite",
        "intercept_: float 1 finite",
        "feature_map_: *Map?",
        "_w: float * finite",
        "gamma_: float?",
        "kappa_: float",
        "separation_probability_: float",
        "n_iter_: int",
    ),
    "MinimumDensityHyperplane": (
        *_LABELLED,
        "coef_: float 1 d finite",
        "intercept_: float 1 finite",
        "mean_: float d finite",
        "relative_depth_: float",
    ),
    "MultivariateMMC": (*_LABELLED, *_HYPERPLANE),
    "NormalizedCut": (*_LABELLED, *_GRAPH, "_spectral_graph: SpectralGraph"),
    "NormalizedSpectralClustering": (
        *_LABELLED,
        *_GRAPH,
        "_spectral_graph: SpectralGraph",
        "_spectral_graph.n_clusters: int is:c",
        "result_.centers: float k c finite",
        "embedding_: float n c",
    ),
    "SDPMMC": (*_LABELLED, *_EXPANDED, *_KERNEL_FUNCTION),
    "SKMMC": (*_LABELLED, *_HYPERPLANE),
    "SMIC": (
        *_LABELLED,
        *_GRAPH,
        "result_.shares: float n k finite",
        "result_.divisors: float k finite nonzero",
    ),
    "SoftLabelMVC": (
        *_LABELLED,
        *_GRAPH,
        "_fitted: *Problem",
        "_fitted.graph.W: float n n",
        "field_: float n *? finite",
        "h_: float n *?",
        "n_candidates_: int positive",
        "ill_defined_: bool",
    ),
    "VolumeRegularizedClassifier": (
        *_GRAPH,
        "n_features_in_: int positive",
        "result_: *Result",
        "classes_: any c",
        "h_: float n *? finite",
        "transduction_: any n",
    ),
}
