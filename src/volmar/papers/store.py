"""Results of cells, a line each, safe against being interrupted."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from volmar.papers.experiment import Cell


@dataclass(frozen=True)
class CellResult:
    """What a cell gave.

    Attributes
    ----------
    cell : Cell
        The cell.
    value : float or None
        The metric; None where the cell failed.
    seconds : float
        Time of the similarity and the fit, without loading the data.
    status : str
        The solver's status, or the error of a cell that failed.
    version : str
        volmar's version.
    measures : mapping of str to float
        The cell's measures; empty where it has none or failed.
    """

    cell: Cell
    value: float | None
    seconds: float
    status: str
    version: str
    measures: Mapping[str, float] = field(default_factory=dict)


class Store:
    """A file of results, one JSON object a line, appended to as cells complete.

    A line that is not a whole result (a kill cut it short, say) is ignored and its cell runs
    again; so do cells that failed.
    """

    def __init__(self, path: Path):
        self.path = path

    def read(self) -> dict[str, CellResult]:
        """Results that are there, by the key of their cell; the last of a key stands."""
        if not self.path.exists():
            return {}
        results = {}
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            result = _parse(line)
            if result is not None:
                results[result.cell.key] = result
        return results

    def append(self, result: CellResult) -> None:
        """Add a result; it is on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(result), sort_keys=True)
        with self.path.open("a+b") as file:
            # A cut-off last line must not swallow this one.
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                text = text if file.read(1) == b"\n" else "\n" + text
            file.write((text + "\n").encode())
            file.flush()
            os.fsync(file.fileno())


def _parse(line: str) -> CellResult | None:
    """Read a result from its line, or None where it is not one."""
    try:
        raw: dict[str, Any] = dict(json.loads(line))
        result = CellResult(cell=Cell(**raw.pop("cell")), **raw)
        numbers = [result.seconds]
        if result.value is not None:
            # A failed cell has no measures.
            numbers += [result.value, *(result.measures[name] for name in result.cell.measures)]
        return result if all(math.isfinite(number) for number in numbers) else None
    except (ValueError, TypeError, KeyError):
        return None
