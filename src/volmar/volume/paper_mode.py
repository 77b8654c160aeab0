"""Settings, graphs and messages of the paper modes of `SoftLabelMVC`."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from volmar.graphs import make_similarity
from volmar.graphs.graph import Graph, build_graph

# The balance of AISTATS 2011, section 5.
AISTATS_BALANCE = 1e-7
# The similarities of the papers' experiments (JMLR 8.1 and 8.2, AISTATS 5).
PAPER_AFFINITY = MappingProxyType({"paper": "gaussian", "aistats": "cosine_knn"})
PAPER_SIMILARITY: MappingProxyType[str, dict[str, Any]] = MappingProxyType(
    {
        "gaussian": {"sigma": "mean/10", "self_loops": True},
        "local_scaling": {"n_neighbors": 7, "graph": "dense", "self_loops": True},
        "cosine_knn": {"n_neighbors": 7},
        "nearest_neighbors": {"n_neighbors": 7},
    }
)
ILL_DEFINED = (
    "Q is ill-defined (JMLR section 8.1): more than ten of its eigenvalues are within 1e-4 of the "
    "second. Only the ten smallest, starting from the second, are tried. Use a larger sigma or "
    "another affinity, or set n_candidates."
)


def paper_graph(X: Any, mode: str, affinity: Any, *, sigma: Any, n_neighbors: Any) -> Graph:
    """Build the graph of a paper mode, with the papers' settings for affinities given by name."""
    given = {"sigma": sigma, "n_neighbors": n_neighbors}
    affinity = PAPER_AFFINITY[mode] if affinity is None else affinity
    if not isinstance(affinity, str) or affinity not in PAPER_SIMILARITY:
        return build_graph(X, affinity, **given)
    params = {name: value for name, value in given.items() if value is not None}
    defaults = dict(PAPER_SIMILARITY[affinity])
    if "n_neighbors" in defaults:
        defaults["n_neighbors"] = min(defaults["n_neighbors"], X.shape[0] - 1)
    unknown = [name for name in params if name not in defaults]
    if unknown:
        return build_graph(X, affinity, **given)  # raises an error with the reason
    return build_graph(X, make_similarity(affinity, **{**defaults, **params}))


def break_words(n_iter: int, reg: float, *, has_break: bool) -> str:
    """Return a message on why Algorithm 1 stopped early after `n_iter` steps, with a remedy.

    `has_break` is whether the algorithm stops at JMLR's bound on the multiplier. Otherwise it
    stops only if a quadratic program has no minimum.
    """
    if not has_break:
        why = f"the quadratic program of step {n_iter + 1} has no minimum"
    else:
        why = (
            f"the multiplier of step {n_iter + 1} reaches reg times the smallest eigenvalue of Q, "
            "beyond which a quadratic program need not have a minimum"
        )
    what = f"the soft responses of step {n_iter}" if n_iter else "the start"
    return (
        f"{why}, and Algorithm 1 returns {what}. Lower reg={reg:g}, pass init or eta0 (see the "
        "notes of the class), or use mode='default'"
    )
