"""A table for the tests of the command line."""

import numpy as np
import pytest
from helpers.reports import brief_reports, full_reports  # noqa: F401


@pytest.fixture(scope="session")
def people(tmp_path_factory):
    """A table with ids, text, missing values and two groups in two numeric columns."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    n = 400
    group = rng.random(n) < 0.45
    frame = pandas.DataFrame(
        {
            "name": [f"person {i}" for i in range(n)],
            "height": rng.normal(160, 5, n) + 30 * group,
            "weight": rng.normal(55, 4, n) + 25 * group,
            "age": rng.normal(40, 10, n),
            "region": rng.choice(["north", "south"], n),
        }
    )
    frame.loc[::50, "age"] = np.nan
    path = tmp_path_factory.mktemp("tables") / "people.csv"
    frame.to_csv(path, index=False)
    return path, group
