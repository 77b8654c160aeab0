"""Results of cells, one per line, robust against interruption."""

from __future__ import annotations

import json
import lzma
import math
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from reproduction.experiment import Cell
from volmar._files import write_atomically

try:
    import fcntl
except ImportError:  # Windows, where an open file is neither renamed nor removed
    fcntl = None  # type: ignore[assignment]

# A cell without data may run later; one that the estimator rejected would be rejected again.
NO_DATA = "no data: "


@dataclass(frozen=True)
class CellResult:
    """Result of a cell.

    Attributes
    ----------
    cell : Cell
        The cell.
    value : float or None
        The metric; None if the cell failed.
    seconds : float
        CPU time of the similarity and the fit, without loading the data.
    status : str
        The solver's status, or the error of a cell that failed.
    versions : mapping of str to str
        Versions of volmar and of its numerical dependencies.
    measures : mapping of str to float
        The cell's measures; empty if it has none or failed.
    """

    cell: Cell
    value: float | None
    seconds: float
    status: str
    versions: Mapping[str, str]
    measures: Mapping[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether there is no value."""
        return self.value is None


class Store:
    """A file of results, one JSON object per line, appended when a cell is complete.

    An incomplete line, for example of a killed process, is ignored and its cell runs again. A
    finished file can be packed: its lines are compressed, and new ones are appended to a new file
    beside it. Several processes may append and pack at the same time.

    Parameters
    ----------
    path : Path
        File of the lines; the packed file has ``.xz`` added to the name.
    """

    def __init__(self, path: Path):
        self.path = path
        self.packed = path.with_name(path.name + ".xz")

    def read(self) -> dict[str, CellResult]:
        """Return the stored results by the key of their cell; the last one of a key is used."""
        results = {}
        for number, line in enumerate(self._lines(), start=1):
            try:
                result = _parse(line)
            except RecursionError:
                raise ValueError(
                    f"{self.path}: line {number} of it and its packed twin is nested too deeply "
                    "to be a result; delete that line."
                ) from None
            if result is not None:
                results[result.cell.key] = result
        return results

    def _lines(self) -> Iterator[str]:
        # Read before the packed file: lines packed meanwhile are in both, not in neither.
        try:
            appended = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            appended = []
        if self.packed.exists():
            try:
                yield from lzma.decompress(self.packed.read_bytes()).decode().splitlines()
            except (lzma.LZMAError, ValueError) as error:
                raise ValueError(
                    f"{self.packed} is damaged ({error}); delete it, and its cells run again."
                ) from error
        yield from appended

    def append(self, result: CellResult) -> None:
        """Add a result; it is on disk when this returns."""
        text = json.dumps(asdict(result), sort_keys=True)
        with self._locked() as file:
            # This line must not be appended to an incomplete last line.
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                text = text if file.read(1) == b"\n" else "\n" + text
            file.write((text + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Open the file of lines with a lock, so that no other process appends or packs."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with self.path.open("a+b") as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX)
                if self._is_current(file):
                    yield file
                    return

    def _is_current(self, file: BinaryIO) -> bool:
        """Return whether the open file still exists, not packed while waiting for the lock."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(file.fileno()), there)

    def pack(self, keep: Collection[str] | None = None) -> None:
        """Put all results into the packed file, in an order that compresses well.

        Parameters
        ----------
        keep : collection of str, optional
            Keys of the cells to keep; others are dropped.
        """
        with self._locked():
            self._pack(keep)
            self.path.unlink(missing_ok=True)

    def _pack(self, keep: Collection[str] | None) -> None:
        found = self.read().items()
        results = sorted((r for key, r in found if keep is None or key in keep), key=_order)
        if not results:
            return
        # Three digits of a time are sufficient, and take half the space.
        lines = [
            json.dumps({**asdict(r), "seconds": float(f"{r.seconds:.3g}")}, sort_keys=True)
            for r in results
        ]
        packed = lzma.compress(("\n".join(lines) + "\n").encode(), preset=9)
        write_atomically(self.packed, packed, force=True)


def _order(result: CellResult) -> tuple[str, ...]:
    cell = result.cell
    setting = json.dumps([cell.parameters, cell.similarity], sort_keys=True)
    place = f"{cell.x or 0:012.4f}"
    return cell.dataset, cell.method, cell.column, setting, place, f"{cell.seed:05d}", cell.key


def _parse(line: str) -> CellResult | None:
    """Return the result of a line, or None if it is invalid."""
    try:
        raw: dict[str, Any] = dict(json.loads(line))
        result = CellResult(cell=Cell(**raw.pop("cell")), **raw)
        dict(result.versions.items())
        numbers = [result.seconds]
        if result.value is not None:
            # A failed cell has no measures.
            numbers += [result.value, *(result.measures[name] for name in result.cell.measures)]
        return result if all(math.isfinite(number) for number in numbers) else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
