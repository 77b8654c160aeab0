"""Similarities by name: from points to a graph, and the graph's extension to new points."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol

from volmar.graphs.cosine_knn import CosineKNNSimilarity
from volmar.graphs.gaussian import GaussianSimilarity
from volmar.graphs.local_scaling import LocalScalingSimilarity
from volmar.graphs.validation import MatrixLike

__all__ = ["Extension", "Similarity", "make_similarity"]

_SIMILARITIES: dict[str, type] = {
    "gaussian": GaussianSimilarity,
    "local_scaling": LocalScalingSimilarity,
    "cosine_knn": CosineKNNSimilarity,
}


class Extension(Protocol):
    """Similarities between new points and the training points, under the rule of the graph."""

    def __call__(self, X_new: MatrixLike) -> Any:
        """Similarities of shape (m, n), dense or CSR."""
        ...  # pragma: no cover

    def weights(self, X_new: MatrixLike) -> Any:
        """Similarities over their row sums: ``weights(X_new) @ h`` extends h harmonically."""
        ...  # pragma: no cover


class Similarity(Protocol):
    """A recipe: parameters now, points later."""

    def build(self, X: MatrixLike) -> tuple[Any, Extension]:
        """Build the (n, n) similarity, dense or CSR, and its extension to new points."""
        ...  # pragma: no cover


def make_similarity(affinity: str | Similarity = "local_scaling", **params: Any) -> Similarity:
    """Make the recipe of a named similarity.

    Parameters
    ----------
    affinity : {"gaussian", "local_scaling", "cosine_knn"} or Similarity, default="local_scaling"
        The name, or any object with a `build` method, which is handed back.
    **params
        Parameters of `gaussian_similarity`, `local_scaling_similarity` or `cosine_knn_similarity`.

    Returns
    -------
    Similarity
        ``recipe.build(X)`` returns the matrix and an extension: ``extension(X_new)`` are the
        similarities of new points to the training points, ``extension.weights(X_new)`` the same
        with rows that sum to one.

    Examples
    --------
    >>> from volmar.graphs import make_similarity
    >>> W, extension = make_similarity("gaussian", sigma=1.0).build([[0.0], [1.0]])
    >>> extension([[0.0]]).round(3)
    array([[1.   , 0.607]])
    """
    if not isinstance(affinity, str):
        if not hasattr(affinity, "build"):
            raise TypeError(
                f"affinity must be one of {', '.join(_SIMILARITIES)} or an object with a build "
                f"method; got {type(affinity).__name__}."
            )
        if params:
            raise TypeError(
                f"affinity is a recipe with its own parameters; set {', '.join(params)} there."
            )
        return affinity
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
