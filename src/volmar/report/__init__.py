"""HTML reports (needs jinja2: ``pip install volmar[cli]``)."""

from typing import TYPE_CHECKING

from volmar._lazy import attach

if TYPE_CHECKING:
    from volmar.report.evidence import evidence_of as evidence_of
    from volmar.report.outcome import Evidence as Evidence
    from volmar.report.outcome import Outcome as Outcome
    from volmar.report.pictures import save_pictures as save_pictures
    from volmar.report.save_report import save_report as save_report

attach(__name__)
