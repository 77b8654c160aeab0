"""Clusters of dask DataFrames that are read from Parquet files, assigned as a new column."""

import dask
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from volmar import CPMMC, MSPC

pd = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")
pytest.importorskip("pyarrow")

K = 10
# dask's Parquet reader uses a deprecated feature of pandas.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def frame(tmp_path):
    """Ten groups in files of different lengths."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, 2400)
    X = 3.0 * rng.normal(size=(K, 6))[y] + rng.normal(size=(2400, 6))
    table = pd.DataFrame(X, columns=list("abcdef"))
    table["truth"], table["who"] = y, np.arange(2400)
    for i, places in enumerate(np.split(np.arange(2400), [100, 101, 1300])):
        table.iloc[places].to_parquet(tmp_path / f"{i}.parquet", index=False)
    return dd.read_parquet(tmp_path)


@pytest.mark.parametrize(
    "model",
    [MSPC(K, random_state=0), CPMMC(K, random_state=0)],
    ids=["MSPC", "CPMMC"],
)
def test_labels_beside_the_columns(frame, model):
    X = frame[list("abcdef")]
    model.fit(X)
    back = frame.assign(cluster=model.predict(X), fitted=model.labels_).compute()
    assert back["who"].tolist() == list(range(2400))
    np.testing.assert_array_equal(back["cluster"], back["fitted"])
    np.testing.assert_array_equal(model.predict(back[list("abcdef")]), back["cluster"])
    assert adjusted_rand_score(back["truth"], back["cluster"]) > 0.95
    scores = model.decision_function(X).compute()
    assert scores.shape == (2400, K)
    np.testing.assert_array_equal(np.argmax(scores.to_numpy(), axis=1), back["cluster"])
