"""Fixtures of all tests of rows: dask in one thread, and tiles of two sizes."""

from __future__ import annotations

import dask
import pytest

from volmar.rows.blocks import recipes as recipes_module
from volmar.rows.blocks.sums import Wanted


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(params=["one tile", "many tiles"])
def tiling(request, monkeypatch):
    """Run with tiles larger, and much smaller, than the blocks."""
    if request.param == "many tiles":
        monkeypatch.setattr(recipes_module, "MIN_ROWS", 3)
        for wanted in (Wanted, *Wanted.__subclasses__()):
            monkeypatch.setattr(wanted, "tile_bytes", 1)
