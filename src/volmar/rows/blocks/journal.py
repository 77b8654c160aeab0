"""Checkpoints of the results of passes, from which an interrupted fit continues."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from volmar._files import open_atomically, write_atomically
from volmar.rows.blocks.recipes import Given, digest
from volmar.rows.blocks.sums import Picked, Wanted

if TYPE_CHECKING:
    from volmar.rows.blocks.table import Blocks

_JOURNAL: ContextVar[Journal | None] = ContextVar("volmar_journal", default=None)
_LISTENERS: ContextVar[tuple[Callable[[PassReport], None], ...]] = ContextVar(
    "volmar_listeners", default=()
)
# Number of leading rows by which data are identified.
N_WITNESSES = 64


class PassReport(NamedTuple):
    """Report on a completed pass over the data.

    Attributes
    ----------
    number : int
        Number of the pass in this fit, from 1.
    figures : tuple of str
        Kinds of the results that the pass computed.
    n_blocks, n_rows : int
        Number of blocks and rows of the data.
    seconds : float
        Duration of the pass.
    """

    number: int
    figures: tuple[str, ...]
    n_blocks: int
    n_rows: int
    seconds: float


@contextmanager
def report_passes(listener: Callable[[PassReport], None]) -> Iterator[None]:
    """Call a function after each pass over rows in blocks inside this context.

    Parameters
    ----------
    listener : callable
        Function that is called with a `PassReport`.

    Examples
    --------
    >>> import dask.array as da
    >>> from volmar.distributed import report_passes
    >>> from volmar.rows import as_rows
    >>> passes = []
    >>> with report_passes(passes.append):
    ...     mean = as_rows(da.ones((100, 2), chunks=(50, 2))).mean()
    >>> [report.figures for report in passes]
    [('Picked',), ('MomentSum',)]
    """
    token = _LISTENERS.set((*_LISTENERS.get(), listener))
    try:
        yield
    finally:
        _LISTENERS.reset(token)


@contextmanager
def reported(n_before: int, wanted: Sequence[Wanted], X: Any) -> Iterator[None]:
    """Report the pass inside this context to the listeners when it is complete."""
    before = perf_counter()
    yield
    for listener in _LISTENERS.get():
        kinds = tuple(type(one).__name__ for one in wanted)
        seconds = perf_counter() - before
        listener(PassReport(n_before + 1, kinds, X.numblocks[0], X.shape[0], seconds))


@contextmanager
def checkpoint(folder: str | os.PathLike[str]) -> Iterator[Journal]:
    """Save the results of each pass over rows in blocks, and skip passes that are saved already.

    The algorithms are deterministic (with an integer `random_state`) and read the rows only by
    passes, so it suffices to save the results of passes. If an interrupted fit is run again with
    the same data, parameters and folder, it reads the saved results and continues after them. The
    size of the results does not grow with the number of rows.

    Parameters
    ----------
    folder : str or path-like
        Folder for the results, created if it does not exist. Delete it after the fit.

    Yields
    ------
    Journal
        Journal with the attributes `n_read` and `n_written`, the numbers of results read from the
        folder and written to it.

    Examples
    --------
    >>> import tempfile
    >>> import dask.array as da
    >>> from volmar.distributed import checkpoint
    >>> from volmar.rows import as_rows
    >>> X = da.ones((100, 2), chunks=(50, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for _ in range(2):
    ...         with checkpoint(folder) as journal:
    ...             mean = as_rows(X).mean()
    ...         print(journal.n_read, journal.n_written)
    0 2
    2 0
    """
    journal = Journal(Path(folder))
    token = _JOURNAL.set(journal)
    try:
        yield journal
    finally:
        _JOURNAL.reset(token)


def current_journal() -> Journal | None:
    """Return the journal of the current `checkpoint` context, or None outside of any."""
    return _JOURNAL.get()


class Journal:
    """Results of passes in a folder, with one atomically written file per result."""

    def __init__(self, folder: Path):
        if folder.exists() and not folder.is_dir():
            raise ValueError(
                f"checkpoint needs a folder, but {folder} is a file. Give another path."
            )
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.n_read = self.n_written = 0
        self._checked: list[Any] = []

    def check(self, blocks: Blocks) -> None:
        """Raise a ValueError if the folder belongs to other data."""
        if not any(blocks is one for one in self._checked):
            key = digest(blocks.X.shape, blocks.X.dtype.str, _first(blocks, None))
            self._check_mark("data", key, f"other data than this X of shape {blocks.X.shape}")
            self._checked.append(blocks)
        for place, array in enumerate(blocks.given):
            # A user may choose the name of an array, and keep it although the content changes.
            if not any(array is one for one in self._checked):
                given = Given(place, array.dtype, array.name)
                key = digest(array.dtype.str, _first(blocks, given))
                what = f"other weights or labels than those named {array.name!r}"
                self._check_mark(f"beside-{given.key.hex()}", key, what)
                self._checked.append(array)

    def _check_mark(self, name: str, key: bytes, what: str) -> None:
        marker = self.folder / name
        if not marker.exists():
            write_atomically(marker, key.hex(), force=True)
        elif marker.read_bytes() != key.hex().encode():
            raise ValueError(
                f"the checkpoint in {self.folder} belongs to {what}. Give another folder, or "
                "delete it."
            )

    def read(self, key: bytes) -> tuple[Any] | None:
        """Return (result,), or None if the file is missing or damaged."""
        path = self.folder / f"{key.hex()}.npz"
        if not path.exists():
            return None
        try:
            # Opened here, since np.load does not close a file that is not an archive.
            with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
                parts = [file[f"arr_{i}"] for i in range(len(file.files))]
        except (OSError, ValueError, TypeError, EOFError, KeyError, BadZipFile, zlib.error):
            return None
        self.n_read += 1
        return (parts or None,)

    def write(self, found: Mapping[bytes, Any]) -> None:
        """Write the results of a pass, given by their keys."""
        for key, parts in found.items():
            if any(part.dtype.hasobject for part in parts or []):
                continue  # objects need pickles, which are not safe to load from a folder
            with open_atomically(self.folder / f"{key.hex()}.npz", force=True) as file:
                np.savez(file, *(parts or []))
            self.n_written += 1


def _first(blocks: Blocks, given: Given | None) -> np.ndarray:
    """Return the first rows, or the first entries of an array over the rows."""
    few = Picked(np.arange(min(N_WITNESSES, int(blocks.bounds[-1]))), values=given)
    return few.finished(blocks.run([few])[0])
