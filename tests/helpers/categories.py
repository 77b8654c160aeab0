"""Columns of categories for tests."""

import numpy as np
import pandas as pd


def latent_classes(n, n_columns, seed, *, purity=0.8, n_values=3, n_classes=2):
    """Return columns of categories, and the class of each row that they depend on."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    columns = {}
    for j in range(n_columns):
        own = (y + rng.integers(n_values)) % n_values
        other = rng.integers(n_values, size=n)
        value = np.where(rng.random(n) < purity, own, other)
        columns[f"c{j}"] = np.array([f"v{v}" for v in range(n_values)])[value]
    return pd.DataFrame(columns), y
