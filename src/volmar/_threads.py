"""One thread for small work."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["one_thread"]


def one_thread() -> Any:
    """Return a context in which OpenMP and BLAS use one thread.

    For many fits to a few thousand rows: threads wait for each other at the end of each step, in
    a loop that takes a core. Beside other work a small k-means takes many times as long.
    """
    return _controller().limit(limits=1)


@cache
def _controller() -> Any:
    """Return what controls the libraries that are loaded; looking for them takes milliseconds."""
    import sklearn.cluster  # noqa: F401 (loads its OpenMP)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
