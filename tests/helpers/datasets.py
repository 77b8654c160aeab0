"""Shared by the tests of data sets."""

from __future__ import annotations

import pytest

from reproduction.datasets import data_folder


def require_data() -> None:
    if data_folder() is None:
        pytest.skip("no data folder: set VOLMAR_DATA or put shared/data beside the checkout")
