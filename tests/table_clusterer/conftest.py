"""A table of people, and a clusterer fitted to it."""

import numpy as np
import pandas as pd
import pytest
from helpers.reports import brief_reports, full_reports  # noqa: F401

from volmar import TableClusterer


def people(n=400, seed=0):
    """Two groups in height and weight, with names, missing ages and an unrelated region."""
    rng = np.random.default_rng(seed)
    group = rng.random(n) < 0.4
    frame = pd.DataFrame(
        {
            "name": [f"person {i}" for i in range(n)],
            "height": rng.normal(160, 5, n) + 30 * group,
            "weight": rng.normal(55, 4, n) + 25 * group,
            "age": rng.normal(40, 10, n),
        }
    )
    frame.loc[::50, "age"] = np.nan
    return frame, group


@pytest.fixture(scope="session")
def table():
    return people()


@pytest.fixture(scope="session")
def fitted(table):
    return TableClusterer(id_column="name").fit(table[0])
