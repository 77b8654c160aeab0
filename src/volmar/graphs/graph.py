"""Graphs of validated rows, with their extension to new rows, for the estimators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from volmar._checks import shown
from volmar._warn import warn_user
from volmar.graphs.density_scaling import DensityScalingSimilarity
from volmar.graphs.laplacian import component_message, connected_components, degrees, laplacian
from volmar.graphs.similarities import (
    CallableSimilarity,
    CosineKNNSimilarity,
    GaussianSimilarity,
    LocalScalingSimilarity,
    NearestNeighborsSimilarity,
)
from volmar.graphs.validation import (
    MatrixLike,
    check_nonnegative,
    check_similarity,
    rows_over_sums,
)
from volmar.operators import as_operator
from volmar.operators.protocol import EigenPairs, SPDOperator

# ---- similarity


_SIMILARITIES: dict[str, type] = {
    "gaussian": GaussianSimilarity,
    "local_scaling": LocalScalingSimilarity,
    "density_scaling": DensityScalingSimilarity,
    "cosine_knn": CosineKNNSimilarity,
    "nearest_neighbors": NearestNeighborsSimilarity,
}


class Extension(Protocol):
    """Similarities between new points and the training points, by the rule of the graph."""

    def __call__(self, X_new: MatrixLike) -> Any:
        """Return similarities of shape (m, n), dense or CSR."""
        ...  # pragma: no cover

    def weights(self, X_new: MatrixLike) -> Any:
        """Return similarities over row sums; ``weights(X_new) @ h`` extends h harmonically."""
        ...  # pragma: no cover


class Similarity(Protocol):
    """A recipe for a similarity: it has the parameters, and is applied to points by `build`."""

    def build(self, X: MatrixLike) -> tuple[Any, Extension]:
        """Build the (n, n) similarity, dense or CSR, and its extension to new points."""
        ...  # pragma: no cover


def make_similarity(
    affinity: str | Similarity | Callable[[Any, Any], Any] = "local_scaling", **params: Any
) -> Similarity:
    """Return the recipe for a similarity given by name or as a function.

    An object with a `build` method is returned unchanged, callable or not. ``recipe.build(X)``
    returns the matrix and an extension to new points.
    """
    if not isinstance(affinity, str):
        return _recipe(affinity, params)
    if affinity not in _SIMILARITIES:
        raise ValueError(f"affinity must be one of {', '.join(_SIMILARITIES)}; got {affinity!r}.")
    recipe = _SIMILARITIES[affinity]
    valid = [field.name for field in fields(recipe)]
    unknown = [name for name in params if name not in valid]
    if unknown:
        raise TypeError(
            f"affinity={affinity!r} has no parameter {', '.join(unknown)}; it takes "
            f"{', '.join(valid)}."
        )
    return recipe(**params)


def _recipe(affinity: Any, params: dict[str, Any]) -> Similarity:
    """Return the recipe of an affinity that is not a name."""
    if isinstance(affinity, type):
        raise TypeError(f"affinity must be an instance, not a class. Use {affinity.__name__}().")
    is_recipe = hasattr(affinity, "build")
    if not is_recipe and not callable(affinity):
        raise TypeError(
            f"affinity must be one of {', '.join(_SIMILARITIES)}, a callable f(X, Y) or an object "
            f"with a build method; got {type(affinity).__name__}."
        )
    if params and is_recipe:
        raise TypeError(
            f"affinity is a recipe with its own parameters. Set {', '.join(params)} there."
        )
    if params:
        raise TypeError(
            f"affinity is a callable and takes no {', '.join(params)} here. Bind parameters with "
            "functools.partial."
        )
    return affinity if is_recipe else CallableSimilarity(affinity)


# ---- graph


# Parameter of the estimator that each named affinity uses.
OWN_PARAMETER = {
    "density_scaling": "n_neighbors",
    "local_scaling": "n_neighbors",
    "gaussian": "sigma",
    "cosine_knn": "n_neighbors",
    "nearest_neighbors": "n_neighbors",
}


@dataclass(frozen=True)
class Graph:
    """A similarity matrix W (n, n), dense or sparse, with its extension to new rows.

    `extension` is None if the similarities of new rows are given, too.
    """

    W: Any
    extension: Extension | None

    @property
    def n_neighbors(self) -> int | None:
        """Number of neighbours of the similarity; None if it has no such parameter."""
        return getattr(self.extension, "n_neighbors", None)

    @property
    def sigma(self) -> float | None:
        """Width of the Gaussian similarity; None for other similarities."""
        return getattr(self.extension, "sigma", None)

    @property
    def recall(self) -> float | None:
        """Share of the true neighbours in the graph; None if there was no search."""
        search = getattr(self.extension, "search", None)
        return getattr(search, "recall", None)

    @cached_property
    def degrees(self) -> NDArray:
        """Row sums of W."""
        return degrees(self.W, check=False)

    @cached_property
    def inverse_roots(self) -> NDArray:
        """1 / sqrt(degree); zero for nodes that count as isolated in the Laplacian."""
        positive = self.degrees >= np.finfo(self.W.dtype).tiny
        return np.divide(1.0, np.sqrt(self.degrees), out=np.zeros(len(positive)), where=positive)

    @cached_property
    def components(self) -> tuple[int, NDArray]:
        """Number of connected components, and the component of each node."""
        return connected_components(self.W, check=False)

    def normalized_operator(self, shift: float = 0.0) -> SPDOperator:
        """Return L_sym + shift I, with L_sym = I - D^-1/2 W D^-1/2, in float64 for any dtype of W.

        Rounding to float32 would turn zero eigenvalues of L_sym into negative ones.
        """
        return as_operator(
            laplacian(self.W.astype(np.float64, copy=False), check=False),
            shift=shift,
            bounds=(0.0, 2.0),
            null_space=self._null_space(),
        )

    def operator(self, Q: Any, *, shift: float | None = None) -> SPDOperator:
        """Return the matrix Q of pairwise information.

        Q is "laplacian" for L_sym + shift I (shift=1/n if None), "kernel" for n I - W, a matrix,
        an operator, or a function that is called with W.
        """
        n = self.W.shape[0]
        if isinstance(Q, str):
            if Q == "laplacian":
                return self.normalized_operator(1.0 / n if shift is None else shift)
            return as_operator(-self.W, shift=float(n))
        matrix = Q(self.W) if callable(Q) and not isinstance(Q, type) else Q
        if not isinstance(matrix, SPDOperator):
            matrix = _operator_of(matrix)
        if matrix.n != n:
            raise ValueError(f"Q must have a row for each row of X, got {matrix.n} and {n}.")
        return matrix

    def _null_space(self) -> NDArray:
        """Return the roots of the degrees, with a column per large component with edges."""
        count, labels = self.components
        volumes = np.bincount(labels, self.degrees, count)
        sizes = np.where(volumes > 0, np.bincount(labels, minlength=count), 0)
        # Maximum number of components whose null vectors are given to the eigensolver. It finds
        # the others itself.
        chosen = np.argsort(-sizes, kind="stable")[: min(50, int((sizes > 0).sum()))]
        return np.sqrt(self.degrees)[:, None] * (labels[:, None] == chosen)

    def component_words(self, n_clusters: int) -> str:
        """Return a message on problematic components; "" if there are none.

        A problem is a component of a few stray rows, or more components than clusters.
        """
        count, labels = self.components
        sizes = np.sort(np.bincount(labels))
        # A component with a smaller share of the rows counts as stray rows, not as structure.
        if count > 1 and sizes[0] < 0.05 * labels.size:
            return component_message(labels)
        if count <= n_clusters:
            return ""
        return (
            f"The graph has {count} connected components of {sizes[0]} to {sizes[-1]} rows, more "
            f"than n_clusters={n_clusters}, and does not determine which belong together. Use "
            f"n_clusters={count}, or join them with a larger n_neighbors or another affinity."
        )

    def warn_of_components(self, n_clusters: int) -> None:
        """Warn of components of a few stray rows if there are not more components than clusters.

        If there are more components than clusters, the fit itself warns, with its status.
        """
        words = self.component_words(n_clusters)
        if words and self.components[0] <= n_clusters:
            warn_user(words)


@dataclass(frozen=True)
class SpectralGraph:
    """A graph with the smallest eigenpairs of its L_sym, `n_clusters` of which are used."""

    graph: Graph
    pairs: EigenPairs
    n_clusters: int

    @property
    def values(self) -> NDArray:
        """The eigenvalues in use."""
        return self.pairs.values[: self.n_clusters]

    @property
    def coordinates(self) -> NDArray:
        """Generalised eigenvectors of (D - W, D) in use: L_sym's over the roots of the degrees."""
        return self.pairs.vectors[:, : self.n_clusters] * self.graph.inverse_roots[:, None]

    @property
    def bound(self) -> float:
        """Lower bound of the normalised cut of any k clusters (Ky Fan).

        Computed eigenvalues are within their residuals of the true ones, which are subtracted.
        """
        used = slice(0, self.n_clusters)
        return float(np.maximum(self.values - self.pairs.residuals[used], 0.0).sum())

    @property
    def is_degenerate(self) -> bool:
        """Whether the graph does not determine `n_clusters` clusters.

        It has more components than that, or an eigenvalue in use is at least 1. Its eigenvector
        then separates rows from their own neighbours.
        """
        return self.graph.components[0] > self.n_clusters or bool(self.values[-1] >= 1.0)

    @property
    def words(self) -> str:
        """Message on a degenerate graph, with a remedy."""
        if self.graph.components[0] > self.n_clusters:
            return self.graph.component_words(self.n_clusters)
        values = self.pairs.values
        n_groups = int((values < 1.0).sum())
        return (
            f"The graph holds at most {n_groups} group(s): eigenvalue {n_groups + 1} of L_sym is "
            f"{values[min(n_groups, values.size - 1)]:.3g}. Eigenvectors with an eigenvalue of at "
            "least 1 separate rows from their own neighbours. Use fewer clusters, or a smaller "
            "n_neighbors or sigma."
        )

    def extended(self, rows: Any) -> NDArray:
        """Return coordinates of new rows: means over their neighbours, divided by 1 - lambda."""
        # Minimum divisor 1 - lambda, an eigenvalue of D^-1/2 W D^-1/2. With a smaller one, the
        # eigenvector changes sign between neighbours. Dividing by it would magnify noise.
        divisors = np.maximum(1.0 - self.values, 0.05)
        return np.asarray(row_weights(self.graph.extension, rows) @ (self.coordinates / divisors))


def spectral_graph(graph: Graph, n_clusters: int, n_pairs: int) -> SpectralGraph:
    """Compute the smallest eigenpairs of a graph, and warn of stray rows."""
    graph.warn_of_components(n_clusters)
    pairs = graph.normalized_operator().smallest_eigenpairs(n_pairs)
    return SpectralGraph(graph, pairs, n_clusters)


def build_graph(X: Any, affinity: Any, *, sigma: Any = None, n_neighbors: Any = None) -> Graph:
    """Build the graph from an estimator's `affinity`, `sigma` and `n_neighbors`.

    Parameters that are None have the default of the affinity: n_neighbors is log2(n) + 3 for
    "density_scaling" and 7 for the others, at most n - 1. Named affinities have no self-loops.
    "local_scaling" uses the graph of nearest neighbours for any n, because a change from a dense
    to a sparse graph at some n would be two methods under one name. A recipe of `volmar.graphs`, a
    callable f(X, Y) or a precomputed matrix is used as given. An object that is both a recipe and
    callable counts as a recipe.
    """
    given = {"sigma": sigma, "n_neighbors": n_neighbors}
    params = {name: value for name, value in given.items() if value is not None}
    if isinstance(affinity, str) and affinity == "precomputed":
        if params:
            raise ValueError(
                f"{', '.join(params)} cannot be given with affinity='precomputed', which already "
                "has the similarities of the rows. Leave it out."
            )
        return Graph(check_similarity(X), None)
    if isinstance(affinity, str):
        recipe = make_similarity(affinity, **_named_parameters(affinity, params, X.shape[0]))
    else:
        recipe = make_similarity(affinity)
        if params and recipe is affinity:
            raise ValueError(
                f"{', '.join(params)} cannot be given with an affinity that has its own "
                f"parameters. Instead, set it there, in {type(affinity).__name__}."
            )
        if params:
            raise ValueError(
                f"{', '.join(params)} cannot be given with a callable affinity. Bind its "
                "parameters with functools.partial, and leave it out."
            )
    W, extension = recipe.build(X)
    # Named recipes of volmar need no check.
    return Graph(W if isinstance(affinity, str) else check_similarity(W), extension)


def _operator_of(Q: Any) -> SPDOperator:
    """Convert a matrix Q from the user, or from the user's function, to an operator."""
    is_table = isinstance(Q, (list, tuple)) or getattr(Q, "ndim", 0) == 2
    if not is_table or np.iscomplexobj(Q):
        raise ValueError(
            f"Q is not a symmetric positive definite matrix: got {shown(Q)}. Use a name, a "
            "matrix, an operator, or a function of W that returns one."
        )
    try:
        return as_operator(Q)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"Q is not a symmetric positive definite matrix: {error}") from error


def _named_parameters(affinity: str, params: dict[str, Any], n_samples: int) -> dict[str, Any]:
    """Complete the parameters of a named affinity; raise ValueError for those it does not use."""
    if affinity not in OWN_PARAMETER:
        raise ValueError(
            f"affinity must be one of {', '.join(map(repr, OWN_PARAMETER))}, a callable f(X, Y), "
            f"'precomputed' or a recipe of volmar.graphs, got {affinity!r}."
        )
    for name, value in params.items():
        if name != OWN_PARAMETER[affinity]:
            users = " or ".join(repr(a) for a, own in OWN_PARAMETER.items() if own == name)
            raise ValueError(
                f"{name}={shown(value)} has no meaning for affinity={affinity!r}. Leave it out, "
                f"or use affinity={users}."
            )
    if affinity == "gaussian":
        return {"self_loops": False, **params}
    # A fixed seed gives the same graph for the same rows, even if neighbours are approximate.
    defaults: dict[str, Any] = {"random_state": 0}
    if affinity == "density_scaling":
        return {"self_loops": False, **defaults, **params}
    defaults["n_neighbors"] = min(7, n_samples - 1)
    if affinity == "local_scaling":
        defaults |= {"self_loops": False, "graph": "knn"}
    return {**defaults, **params}


def row_weights(extension: Extension | None, X: Any) -> Any:
    """Return similarities of new rows to the training rows over their sums; X itself if given."""
    if extension is not None:
        return extension.weights(X)
    check_nonnegative(X, "precomputed X")
    return rows_over_sums(X, points="X")
