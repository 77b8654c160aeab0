"""The stages of a run: how long each took, and reports of progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Progress", "StageTimes"]

Progress = Callable[[str, int, int], None]


class StageTimes:
    """Seconds by stage, in the order of the stages.

    `progress` is called as ``progress(stage, done, total)``: with (0, 0) when a stage begins, and
    as its steps are done where they are counted. `work` is `seconds` without the time in which
    other programs had the processor.
    """

    def __init__(self, progress: Progress | None = None):
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self.work: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[int, int], None]]:
        """Run a stage; what is yielded takes (done, total)."""

        def tell(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(name, done, total)

        tell(0, 0)
        start = time.perf_counter(), time.process_time()
        try:
            yield tell
        finally:
            spent = time.perf_counter() - start[0]
            # Several threads take more of the processor's time than passes on the clock.
            work = min(spent, time.process_time() - start[1])
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            self.work[name] = self.work.get(name, 0.0) + work
