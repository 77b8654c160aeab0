"""HTML reports (needs jinja2: ``pip install volmar[cli]``)."""

from volmar.report.page import Section, Table, write_page

__all__ = ["Section", "Table", "write_page"]
