"""Diagnostics of a clustering: tests, stability, descriptions and the papers' theory."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.diagnostics.bound import ErrorBound as ErrorBound
    from volmar.diagnostics.bound import error_bound as error_bound
    from volmar.diagnostics.cluster_description import ClusterDescription as ClusterDescription
    from volmar.diagnostics.column_profiles import ColumnProfiles as ColumnProfiles
    from volmar.diagnostics.column_profiles import column_profiles as column_profiles
    from volmar.diagnostics.compare_numbers import NumberComparison as NumberComparison
    from volmar.diagnostics.compare_numbers import compare_numbers as compare_numbers
    from volmar.diagnostics.conditions import StabilityReport as StabilityReport
    from volmar.diagnostics.conditions import stability_report as stability_report
    from volmar.diagnostics.describe_clusters import describe_clusters as describe_clusters
    from volmar.diagnostics.drift import DriftReport as DriftReport
    from volmar.diagnostics.drift import drift as drift
    from volmar.diagnostics.stability import ResamplingStability as ResamplingStability
    from volmar.diagnostics.stability import stability as stability

attach(__name__)
