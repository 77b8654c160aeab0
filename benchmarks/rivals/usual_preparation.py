"""The usual preparation of a table for a clusterer of scikit-learn or kmodes.

Ids are dropped by name, dates become numbers of days, missing numbers are replaced by the median
and missing categories by the most frequent level, and all columns are standardised. True and False
are a category.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.preprocessing import StandardScaler


class Usual(NamedTuple):
    """A table after the usual preparation.

    Attributes
    ----------
    numbers : ndarray of shape (n, p)
        Columns of numbers and dates, standardised.
    categories : ndarray of str of shape (n, q)
        The other columns.
    """

    numbers: np.ndarray
    categories: np.ndarray

    @property
    def one_hot(self):
        """Return all columns as numbers, with one standardised 0/1 column per level."""
        if self.categories.shape[1] == 0:
            return self.numbers
        levels = pd.get_dummies(pd.DataFrame(self.categories)).to_numpy(dtype=float)
        return np.column_stack([self.numbers, StandardScaler().fit_transform(levels)])


def usual_preparation(frame, id_columns=()):
    """Return the table after the usual preparation; `id_columns` are left out."""
    numbers, categories = [], []
    for name in frame.columns.difference(list(id_columns), sort=False):
        column = frame[name]
        if pd.api.types.is_datetime64_any_dtype(column):
            column = (column - column.min()) / pd.Timedelta(days=1)
        if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
            categories.append(column.fillna(column.mode()[0]).astype(str).to_numpy(dtype=str))
        else:
            numbers.append(column.fillna(column.median()).to_numpy(dtype=float))
    n = len(frame)
    scaled = np.column_stack(numbers) if numbers else np.empty((n, 0))
    return Usual(
        StandardScaler().fit_transform(scaled) if numbers else scaled,
        np.column_stack(categories) if categories else np.empty((n, 0), dtype=str),
    )
