"""Console output: results on stdout, progress and notes on stderr."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from volmar._files import input_at, printable, real_path, refuse_existing

_OPTIONS = {name: f"--{name}" for name in ("seeds", "columns", "drop", "missing", "scale")}
_OPTIONS |= {"must_link": "--must-link", "id_column": "--id", "kinds": "--kind"}


def as_options(text: str) -> str:
    """Return a message with options in place of arguments: ``--missing drop``, for example."""
    text = re.sub(r"\bkinds=\{'([^']*)': '(\w+)'\}", r"--kind \1=\2", text)
    text = re.sub(r"\b(missing|scale)='(\w+)'", r"--\1 \2", text)
    text = re.sub(r"\b(min|max)_cluster_size=", r"--\1-size ", text)
    text = re.sub(r"\breject(?:=| (?=must be ))", "--reject ", text)
    text = text.replace("force=True", "--force")
    return re.sub(rf"\b({'|'.join(_OPTIONS)})=(?!\w)", lambda found: _OPTIONS[found[1]], text)


class UsageError(ValueError):
    """An invalid option; the message names it, its value and the remedy."""


class Screen(Console):
    """A console that ignores a closed pipe and escapes control characters.

    ``volmar cluster table.csv -o labels.csv | head -1`` must still write the labels, and control
    characters in a column name must not reach the terminal.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Render as rich does, with control characters of texts made visible."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, keep="\n"), style, control)

    def on_broken_pipe(self) -> None:
        """Discard all further output; rich would end the program."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (sys.stderr if self.stderr else sys.stdout).fileno())
        os.close(nowhere)


def screen() -> Console:
    """Return the console for results."""
    return Screen(highlight=False, soft_wrap=True, emoji=False)


def _notes() -> Console:
    return Screen(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def say(text: str, style: str | None = None) -> None:
    """Print a line to stderr, with options in place of argument names."""
    _notes().print(printable(as_options(text)), style=style, markup=False)


def written(path: Path) -> None:
    """Print that a file was written."""
    say(f"wrote {path}")


def print_json(content: dict[str, Any]) -> None:
    """Print a JSON object to stdout."""
    Screen().out(json.dumps(content, allow_nan=False), highlight=False)


def narrow_table(first: str, *others: str) -> Table:
    """Return an empty table for terminals of 80 columns; the other columns hold numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for title in others:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def sizes_text(sizes: Sequence[int] | NDArray) -> str:
    """Return cluster sizes as text, at most twenty of them."""
    return ", ".join(map(str, sizes[:20])) + (", ..." if len(sizes) > 20 else "")


def refuse_files(
    files: Mapping[str, Path | None],
    *sources: str | Path,
    force: bool = False,
    pictures: Path | None = None,
) -> None:
    """Raise an error for output files that cannot be written, before anything is computed.

    `files` maps options to files; `pictures` is a folder. Input files, and files in an input
    folder, are never overwritten, even with `force`.
    """
    inputs = list(_inputs(sources))
    taken: dict[Path, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        name = f"{option} {printable(path)}"
        real = real_path(path)
        _refuse_inputs(name, path, inputs)
        try:
            if os.path.isdir(path):
                raise UsageError(f"{name} is a folder. Give the name of a file in it.")
            if not os.path.exists(path) and not os.path.isdir(real.parent):
                where = f"{name}: there is no folder {printable(path.parent)}"
                raise UsageError(f"{where}. Create it first.")
            if (other := input_at(path, taken)) is not None or real in taken:
                same = f"{name} is the same file as that of {taken[other or real]}"
                raise UsageError(f"{same}. Give another name.")
            found = refuse_existing(path, force)
        except FileExistsError:
            raise UsageError(f"{name} exists already. Give another name, or --force.") from None
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(f"{name} cannot be written: {why}. Give another name.") from error
        if found is not None and not stat.S_ISREG(found.st_mode):
            continue  # a pipe or a device
        if not os.access(real.parent, os.W_OK | os.X_OK):
            raise UsageError(f"{name}: the folder cannot be written to. Choose another one.")
        taken[real] = option
    if pictures is not None:
        _refuse_folder(pictures, inputs, taken, force)


def _refuse_folder(
    folder: Path, inputs: Sequence[str | Path], taken: Mapping[Path, str], force: bool
) -> None:
    """Raise an error for a folder of pictures that is a file, or has other content."""
    name = f"--pictures {printable(folder)}"
    real = real_path(folder)
    try:
        if real.exists() and not real.is_dir():
            raise UsageError(f"{name} is a file. Give the name of a folder.")
        content = list(real.iterdir()) if real.exists() else []
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"{name} cannot be used: {why}. Give another name.") from error
    _refuse_inputs(name, folder, inputs)
    for path, option in taken.items():
        if path == real or (path.parent == real and path.suffix.lower() in (".png", ".svg")):
            raise UsageError(f"{name} would contain the file of {option}. Give another name.")
    if content and not force:
        raise UsageError(f"{name} already contains files. Give another name, or --force.")
    for path in content:
        _refuse_inputs(f"{name}/{printable(path.name)}", path, inputs)


def _refuse_inputs(name: str, path: Path, inputs: Sequence[str | Path]) -> None:
    source = input_at(path, inputs)
    if source is None:
        return
    if os.path.isdir(real_path(source)):
        raise UsageError(
            f"{name} is in the input folder {printable(source)}, or is one of its files. Write "
            "to another folder."
        )
    raise UsageError(f"{name} is the input file {printable(source)}. Give another name.")


def _inputs(sources: Sequence[str | Path]) -> Iterator[str | Path]:
    """Yield the input paths: files, and the file of a sheet."""
    for source in sources:
        if not str(source).strip():
            continue  # the reader reports it; `Path` would take it for the current folder
        yield source
        path = real_path(source)
        if os.path.exists(path):
            continue
        file = path.name.partition("#")[0]
        if file and file != path.name:
            yield path.with_name(file)


class Stages:
    """The stages of a command, each shown as a line of progress.

    Nothing is shown if stderr is not a terminal. Stages are numbered ("stage 2 of 5") by their
    place in `planned`; some of these may be skipped.
    """

    def __init__(self, planned: Sequence[str] = ()) -> None:
        self.planned = list(planned)

    def stage(self, name: str) -> AbstractContextManager[Callable[..., None]]:
        """Run a stage; the yielded function reports progress as (done, total)."""
        return counted(self._numbered(name))

    @contextmanager
    def watching(self) -> Iterator[Callable[[str, int, int], None]]:
        """Show stages that are reported by calls of ``progress(stage, done, total)``."""
        with ExitStack() as shown:
            current = ""
            tell: Callable[[int, int], None] = _quiet

            def progress(name: str, done: int, total: int) -> None:
                nonlocal current, tell
                if name != current:
                    shown.close()
                    current, tell = name, shown.enter_context(counted(self._numbered(name)))
                tell(done, total)

            yield progress

    def _numbered(self, name: str) -> str:
        if name not in self.planned:
            return name
        return f"stage {self.planned.index(name) + 1} of {len(self.planned)}: {name}"


class _TimeLeft(ProgressColumn):
    """Estimated remaining time of a stage, if its steps are counted."""

    def render(self, task: Task) -> Text:
        """Return the remaining time as text, empty if unknown or below one second."""
        if not task.total or not task.completed or task.elapsed is None:
            return Text("")
        left = task.elapsed * (task.total - task.completed) / task.completed
        return Text(f"about {_time_text(left)} left" if left >= 1 else "")


def _time_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def counted(name: str) -> Iterator[Callable[..., None]]:
    """Show a line of progress; the yielded function takes (done, total)."""
    console = _notes()
    if not console.is_terminal or console.is_dumb_terminal:
        yield _quiet
        return
    text, bar = TextColumn("{task.description}"), BarColumn()
    columns = (SpinnerColumn(), text, bar, TimeElapsedColumn(), _TimeLeft())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)

        yield lambda done, total: progress.update(task, completed=done, total=total or None)


def _quiet(done: int, total: int) -> None:
    """Ignore progress: stderr is not a terminal."""
    del done, total
