"""Diagnostics of a clustering: tests, stability, descriptions and the papers' theory."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.diagnostics.bound import BoundTerms as BoundTerms
    from volmar.diagnostics.bound import ErrorBound as ErrorBound
    from volmar.diagnostics.bound import error_bound as error_bound
    from volmar.diagnostics.cluster_description import ClusterDescription as ClusterDescription
    from volmar.diagnostics.cluster_description import Difference as Difference
    from volmar.diagnostics.cluster_description import suggested_names as suggested_names
    from volmar.diagnostics.column_profiles import ColumnProfile as ColumnProfile
    from volmar.diagnostics.column_profiles import ColumnProfiles as ColumnProfiles
    from volmar.diagnostics.column_profiles import column_profiles as column_profiles
    from volmar.diagnostics.compare_numbers import NumberComparison as NumberComparison
    from volmar.diagnostics.compare_numbers import NumberOfClusters as NumberOfClusters
    from volmar.diagnostics.compare_numbers import compare_numbers as compare_numbers
    from volmar.diagnostics.conditions import StabilityReport as StabilityReport
    from volmar.diagnostics.conditions import stability_report as stability_report
    from volmar.diagnostics.describe_clusters import describe_clusters as describe_clusters
    from volmar.diagnostics.drift import DriftReport as DriftReport
    from volmar.diagnostics.drift import drift as drift
    from volmar.diagnostics.stability import ResamplingStability as ResamplingStability
    from volmar.diagnostics.stability import stability as stability
    from volmar.evidence import ClusterNovelty as ClusterNovelty
    from volmar.evidence import LabelJoin as LabelJoin
    from volmar.evidence import LabelTestResult as LabelTestResult
    from volmar.evidence import SplitTestResult as SplitTestResult
    from volmar.evidence import calibrate_novelty as calibrate_novelty
    from volmar.evidence import label_test as label_test
    from volmar.evidence import split_test as split_test

attach(__name__)
