"""How far a clustering can be trusted: tests, stability, the papers' theory."""

from volmar.diagnostics.bound import BoundTerms, ErrorBound, error_bound
from volmar.diagnostics.cluster_description import ClusterDescription, Difference
from volmar.diagnostics.cluster_names import suggested_names
from volmar.diagnostics.column_profiles import ColumnProfile, ColumnProfiles, column_profiles
from volmar.diagnostics.compare_numbers import (
    NumberComparison,
    NumberOfClusters,
    compare_numbers,
)
from volmar.diagnostics.conditions import StabilityReport, stability_report
from volmar.diagnostics.describe_clusters import describe_clusters
from volmar.diagnostics.stability import ResamplingStability, stability
from volmar.evidence import LabelJoin, LabelTestResult, SplitTestResult, label_test, split_test

__all__ = [
    "BoundTerms",
    "ClusterDescription",
    "ColumnProfile",
    "ColumnProfiles",
    "Difference",
    "ErrorBound",
    "LabelJoin",
    "LabelTestResult",
    "NumberComparison",
    "NumberOfClusters",
    "ResamplingStability",
    "SplitTestResult",
    "StabilityReport",
    "column_profiles",
    "compare_numbers",
    "describe_clusters",
    "error_bound",
    "label_test",
    "split_test",
    "stability",
    "stability_report",
    "suggested_names",
]
