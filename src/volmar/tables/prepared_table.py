"""`PreparedTable`: rows that are ready for clustering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PreparedTable"]


@dataclass(frozen=True)
class PreparedTable:
    """Rows that are ready for clustering, with their ids and notes.

    Attributes
    ----------
    X : ndarray, csr_array or dask array of shape (n, d)
        Features in float64. Sparse if the table is sparse and not scaled, a dask array if made
        by `prepare_blocks`.
    ids : ndarray, dask array or None
        Ids of the kept rows: the id column, the index of a DataFrame or row numbers from 0. None
        from `prepare_blocks` stands for all row numbers.
    id_name : str
        Name of the id column; "row" for row numbers.
    feature_names : list of str
        Names of the columns of X.
    kept : ndarray of bool or None
        Mask of the rows of the table that are in X. None from `prepare_blocks` stands for all.
    notes : list of str
        Description of the preparation, one line each.
    warnings : list of str
        Possible problems with the table, one line each.
    noise : callable or None
        Takes X and a `Generator`, and returns the rows of `dithered`. None if these are X. For
        blocks, it returns a dask array that has the same noise each time it is computed.
    outlying : ndarray of bool or None
        Mask of the kept rows that belong to no cluster whatever the rest of X is: a value was too
        far out to be used, or there is no value at all. None if not known.
    """

    X: Any
    ids: Any
    id_name: str
    feature_names: list[str]
    kept: Any
    notes: list[str]
    warnings: list[str] = field(default_factory=list)
    noise: Callable[[Any, np.random.Generator], Any] | None = None
    outlying: NDArray[np.bool_] | None = None

    def dithered(self, seed: int = 0) -> Any:
        """Return the rows to which a clusterer should be fitted.

        The preparation creates some gaps between values: between the logs of small counts, and
        between the scores of categories, where two columns alone can create one. Uniform noise of
        the width of these gaps closes them. Filled-in values are drawn at random, to reflect their
        uncertainty. To get the clusters, predict the labels of `X` with the fitted clusterer.

        Parameters
        ----------
        seed : int, default=0
            Random seed of the noise.

        Returns
        -------
        matrix of shape (n, d)
            `X` itself if there are no such columns and no filled-in values.
        """
        return self.X if self.noise is None else self.noise(self.X, np.random.default_rng(seed))
