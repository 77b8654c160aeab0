"""The matrix Q of pairwise information: by name, as a function of similarities, or as given."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from volmar.graphs.graph import Graph
from volmar.operators import SPDOperator, as_operator


def pairwise_operator(graph: Graph, Q: Any, *, shift: float | None = None) -> SPDOperator:
    """Return Q of the graph.

    Parameters
    ----------
    graph : Graph
        The graph.
    Q : {"laplacian", "kernel"}, matrix, SPDOperator or callable
        L_sym + shift I, n I - W, or what is given (a function is called with W).
    shift : float, optional
        Shift of the Laplacian; 1/n if not given.
    """
    n = graph.W.shape[0]
    if isinstance(Q, str):
        if Q == "laplacian":
            return graph.normalized_operator(1.0 / n if shift is None else shift)
        return as_operator(-graph.W, shift=float(n))
    matrix = Q(graph.W) if callable(Q) else Q
    if not isinstance(matrix, SPDOperator):
        is_sparse = sparse.issparse(matrix)
        matrix = as_operator(matrix if is_sparse else np.asarray(matrix, dtype=np.float64))
    if matrix.n != n:
        raise ValueError(f"Q must have a row for each row of X, got {matrix.n} and {n}.")
    return matrix
