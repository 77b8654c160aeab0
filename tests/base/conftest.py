"""A dask cluster of the session, rows for it, and dask without threads."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def cluster():
    from helpers.dask_clusters import local_cluster

    with local_cluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster):
    """A client of one module, because it is the default client while it exists."""
    from distributed import Client

    with Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    truth = rng.random(1200) < 0.4
    X = rng.standard_normal((1200, 5)) * [1.0, 2.0, 1.0, 0.5, 3.0] + 2.0
    X[:, 2] += 5.0 * truth
    return X, truth.astype(int)


@pytest.fixture(scope="module")
def one_thread():
    dask = pytest.importorskip("dask")
    with dask.config.set(scheduler="synchronous"):
        yield
