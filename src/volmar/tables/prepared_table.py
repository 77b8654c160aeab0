"""`PreparedTable`: rows ready for a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["PreparedTable"]


@dataclass(frozen=True)
class PreparedTable:
    """Rows ready for a method, with what is known of them.

    Attributes
    ----------
    X : ndarray, csr_array or dask array of shape (n, d)
        Float64; sparse if the table was and nothing is scaled, a dask array by `prepare_blocks`.
    ids : ndarray or None
        The id column, the index of a DataFrame or row numbers from 0, of the kept rows. For
        blocks None, which stands for all row numbers, or a dask array.
    id_name : str
        "row" or the name of the id column.
    feature_names : list of str
        Names of the columns of X.
    kept : ndarray of bool or None
        Which rows of the table are in X; None for blocks stands for all.
    notes : list of str
        What was done, in plain words, one line each.
    warnings : list of str
        What may mislead, one line each.
    noise : callable or None
        From X and a Generator to the rows of `dithered`; None where they are X. Of blocks it gives
        a dask array with the same noise whenever it is computed.
    """

    X: Any
    ids: Any
    id_name: str
    feature_names: list[str]
    kept: Any
    notes: list[str]
    warnings: list[str] = field(default_factory=list)
    noise: Callable[[Any, np.random.Generator], Any] | None = None

    def dithered(self, seed: int = 0) -> Any:
        """Return the rows to fit a method on.

        Values are known to within the resolution of their column, and some gaps between them are
        made by the preparation: those between the logs of small counts, and between the scores of
        categories, which two columns can make by themselves. Noise fills these gaps. Values that
        were filled in are drawn as uncertain as they are. Clusters of the rows are what the
        fitted method predicts for `X`.

        Parameters
        ----------
        seed : int, default=0
            Random seed of the noise.

        Returns
        -------
        matrix of shape (n, d)
            `X` itself where there are no such columns.
        """
        return self.X if self.noise is None else self.noise(self.X, np.random.default_rng(seed))
