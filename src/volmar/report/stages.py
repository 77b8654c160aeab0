"""The stages of a run: their durations, and reports of progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Progress", "StageTimes"]

Progress = Callable[[str, int, int], None]


class StageTimes:
    """Seconds by stage, in the order of the stages.

    `progress` is called as ``progress(stage, done, total)``: with (0, 0) when a stage begins, and
    after each step if the steps are counted.
    """

    def __init__(self, progress: Progress | None = None):
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[int, int], None]]:
        """Time a stage; the yielded function reports progress as (done, total)."""

        def tell(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(name, done, total)

        tell(0, 0)
        start = time.perf_counter()
        try:
            yield tell
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
