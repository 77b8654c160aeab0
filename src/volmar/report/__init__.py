"""HTML reports (needs jinja2: ``pip install volmar[cli]``)."""

from volmar.report.cluster_page import write_report
from volmar.report.evidence import evidence_of, sentences_of
from volmar.report.outcome import BestSplit, Evidence, Outcome, Score
from volmar.report.page import Section, Table, write_page
from volmar.report.pictures import save_pictures
from volmar.report.save_report import save_report

__all__ = [
    "BestSplit",
    "Evidence",
    "Outcome",
    "Score",
    "Section",
    "Table",
    "evidence_of",
    "save_pictures",
    "save_report",
    "sentences_of",
    "write_page",
    "write_report",
]
