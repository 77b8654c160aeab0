"""What memory is free, and the refusal that names the figure and the remedy."""

from pathlib import Path

import pytest

from volmar import _memory


def test_available_memory_is_plausible():
    assert 2**20 < _memory.available_memory() < 2**50


def test_a_containers_limit_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(_memory, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert _memory.available_memory() == 2000
    (tmp_path / "memory.max").write_text("max\n")
    assert _memory.available_memory() > 2**20


def test_without_proc_half_of_what_is_installed(monkeypatch):
    def missing(self):
        raise OSError

    monkeypatch.setattr(Path, "read_text", missing)
    assert _memory.available_memory() > 2**20


def test_refusal_names_figure_and_remedy(monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**30)
    _memory.require_memory(2**29, "a small thing", "Nothing to do.")
    with pytest.raises(
        MemoryError, match=r"a big thing needs 4\.0 GiB and 1\.0 GiB are avail.* Do"
    ):
        _memory.require_memory(2**32, "a big thing", "Do less.")
