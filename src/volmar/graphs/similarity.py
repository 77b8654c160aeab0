"""Recipes for similarities by name: a graph of points, and its extension to new points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Protocol

from volmar.graphs.callable_similarity import CallableSimilarity
from volmar.graphs.cosine_knn import CosineKNNSimilarity
from volmar.graphs.density_scaling import DensityScalingSimilarity
from volmar.graphs.gaussian import GaussianSimilarity
from volmar.graphs.local_scaling import LocalScalingSimilarity
from volmar.graphs.nearest_neighbors import NearestNeighborsSimilarity
from volmar.graphs.validation import MatrixLike

__all__ = ["Extension", "Similarity", "make_similarity"]

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

    Parameters
    ----------
    affinity : str, callable or Similarity, default="local_scaling"
        "gaussian", "local_scaling", "density_scaling", "cosine_knn" or "nearest_neighbors"; a
        function f(X, Y) of similarities (see `CallableSimilarity`); or any object with a `build`
        method, callable or not, which is returned unchanged.
    **params
        Parameters of the named similarity: see `gaussian_similarity`, `local_scaling_similarity`,
        `density_scaling_similarity`, `cosine_knn_similarity` and `nearest_neighbors_similarity`.

    Returns
    -------
    Similarity
        ``recipe.build(X)`` returns the matrix and an extension. ``extension(X_new)`` returns the
        similarities of new points to the training points, and ``extension.weights(X_new)`` the
        same with rows that sum to one.

    Examples
    --------
    >>> from volmar.graphs import make_similarity
    >>> W, extension = make_similarity("gaussian", sigma=1.0).build([[0.0], [1.0]])
    >>> extension([[0.0]]).round(3)
    array([[1.   , 0.607]])
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
