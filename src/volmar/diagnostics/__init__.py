"""How far a clustering can be trusted: the papers' stability theory and their error bound."""

from volmar.diagnostics.bound import BoundTerms, ErrorBound, error_bound
from volmar.diagnostics.conditions import StabilityReport, stability_report

__all__ = [
    "BoundTerms",
    "ErrorBound",
    "StabilityReport",
    "error_bound",
    "stability_report",
]
