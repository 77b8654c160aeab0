"""Reports without the stages that fit many times, for tests of everything else."""

import pytest

from volmar.report import judging


@pytest.fixture
def full_reports():
    """Requested by tests that need resampling, tested differences and other numbers."""


@pytest.fixture(autouse=True)
def brief_reports(request, monkeypatch):
    if "full_reports" not in request.fixturenames:
        monkeypatch.setattr(judging, "repeatable_rows", lambda *_: 0)
        monkeypatch.setattr(judging, "_numbers", lambda *_: None)
