"""Pictures in tests: drawn without a screen, and closed afterwards."""

import pytest


@pytest.fixture
def figures():
    """Draw without a screen, and close what was drawn."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")
