"""What is said on the way: progress and notes on the error stream, results on the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["Stages", "UsageError", "counted", "say", "screen", "written"]


class UsageError(ValueError):
    """A wrong option, in a line that names it, its value and the remedy."""


def screen() -> Console:
    """Return where results are printed."""
    return Console(highlight=False, soft_wrap=True)


def _notes() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str, style: str | None = None) -> None:
    """Print a line of news, which is no result."""
    _notes().print(text, style=style, markup=False)


def written(path: Path) -> None:
    """Say that a file is there."""
    say(f"wrote {path}")


class Stages:
    """The stages of a command: a line that moves while one runs, and how long each took.

    Nothing moves where the error stream is no terminal, nor for less than a moment.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[int, int], None]]:
        """Run a stage; what it yields can be told (done, wanted)."""
        start = time.perf_counter()
        with counted(name) as tell:
            yield tell
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@contextmanager
def counted(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a line for something that takes long; it is told (done, wanted), or nothing."""
    console = _notes()
    if not console.is_terminal:
        yield _quiet
        return
    columns: list[Any] = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)

        def tell(done: int, wanted: int) -> None:
            progress.update(task, completed=done, total=wanted or None)

        yield tell


def _quiet(done: int, wanted: int) -> None:
    """Say nothing."""
    del done, wanted
