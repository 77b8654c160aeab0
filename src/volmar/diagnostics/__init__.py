"""How far a clustering can be trusted: tests, stability, the papers' theory."""

from volmar.diagnostics.bound import BoundTerms, ErrorBound, error_bound
from volmar.diagnostics.cluster_description import ClusterDescription, Difference
from volmar.diagnostics.conditions import StabilityReport, stability_report
from volmar.diagnostics.describe_clusters import describe_clusters
from volmar.diagnostics.label_result import LabelJoin, LabelTestResult
from volmar.diagnostics.label_test import label_test
from volmar.diagnostics.split_test import SplitTestResult, split_test
from volmar.diagnostics.stability import ResamplingStability, stability

__all__ = [
    "BoundTerms",
    "ClusterDescription",
    "Difference",
    "ErrorBound",
    "LabelJoin",
    "LabelTestResult",
    "ResamplingStability",
    "SplitTestResult",
    "StabilityReport",
    "describe_clusters",
    "error_bound",
    "label_test",
    "split_test",
    "stability",
    "stability_report",
]
