"""How far a clustering can be trusted: tests of a split, stability, the papers' theory."""

from volmar.diagnostics.bound import BoundTerms, ErrorBound, error_bound
from volmar.diagnostics.cluster_description import ClusterDescription, Difference
from volmar.diagnostics.conditions import StabilityReport, stability_report
from volmar.diagnostics.describe_clusters import describe_clusters
from volmar.diagnostics.split_test import SplitTestResult, split_test
from volmar.diagnostics.stability import ResamplingStability, stability

__all__ = [
    "BoundTerms",
    "ClusterDescription",
    "Difference",
    "ErrorBound",
    "ResamplingStability",
    "SplitTestResult",
    "StabilityReport",
    "describe_clusters",
    "error_bound",
    "split_test",
    "stability",
    "stability_report",
]
