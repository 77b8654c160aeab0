"""Times of several contenders, taken in turns so that other load affects all of them equally."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat, and the return value of the last one."""

    seconds: tuple[float, ...]
    value: Any

    @property
    def median(self) -> float:
        """Median of the repeats."""
        return median(self.seconds)

    @property
    def spread(self) -> str:
        """Fastest and slowest repeat, as text."""
        return f"{min(self.seconds):.3g}-{max(self.seconds):.3g}"


def in_turns(
    contenders: dict[str, Callable[[], Any]], repeats: int = 5, budget: float = 60.0
) -> dict[str, Timing]:
    """Run every contender `repeats` times, round by round, within about `budget` seconds.

    The first round warms caches and imports and is not counted, unless it used up the budget.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    values: dict[str, Any] = {}
    begin = time.perf_counter()
    for _ in range(repeats + 1):
        for name, call in contenders.items():
            start = time.perf_counter()
            values[name] = call()
            seconds[name].append(time.perf_counter() - start)
        if time.perf_counter() - begin > budget:
            break
    return {name: Timing(tuple(s[1:] or s), values[name]) for name, s in seconds.items()}


@contextmanager
def time_limit(seconds: float, *, of_cpu: bool = False) -> Iterator[None]:
    """Raise TimeoutError in the body once it has run for `seconds`; main thread, POSIX only.

    `of_cpu` counts CPU time of the process instead of wall time, so that other load on the machine
    does not affect the outcome.
    """
    timer, number = (
        (signal.ITIMER_PROF, signal.SIGPROF) if of_cpu else (signal.ITIMER_REAL, signal.SIGALRM)
    )

    def stop(*_):
        raise TimeoutError(f"stopped after {seconds:g} s")

    before = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)
