"""Rows with three columns in all types that table functions accept."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

NAMES = ["x0", "x1", "x2"]
CONVERSIONS = {
    "dense": np.asarray,
    "float32": lambda X: X.astype(np.float32),
    "sparse": sparse.csr_array,
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": lambda X: pytest.importorskip("polars").DataFrame(X, NAMES),
    "list": np.ndarray.tolist,
}
