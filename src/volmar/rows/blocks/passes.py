"""A pass over the blocks: one task for each, a tree that adds their parts up, one barrier."""

from __future__ import annotations

import pickle
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np

from volmar.rows.blocks.recipes import Recipe
from volmar.rows.blocks.sums import Partial, Wanted
from volmar.rows.blocks.tile import tiles

__all__ = ["LostBlocksError", "Passes", "block_part", "block_values", "merged_parts"]

# Parts that one task adds up.
FAN_IN = 8
# A list of figures beyond this size travels to each worker once, not with every task.
LARGE_PROGRAM = 2**16
# Seconds between looks at the cluster while a pass runs, and without any worker before an error.
GLANCE, PATIENCE = 1.0, 30.0


class LostBlocksError(RuntimeError):
    """Blocks of X are gone, or the cluster is: the pass cannot be finished."""


def block_part(
    program: bytes | Sequence[Wanted], block: Any, start: int, *given: Any
) -> list[Partial | None]:
    """Return the part of a block in each of the wanted figures."""
    wanted = _loaded(program)
    parts: list[Partial | None] = [None] * len(wanted)
    for tile in tiles(block, given, start, max(one.tile_bytes for one in wanted)):
        for i, one in enumerate(wanted):
            found = one.of_tile(tile)
            if found is not None:
                before = parts[i]
                parts[i] = found if before is None else one.merged(before, found)
    return parts


def merged_parts(
    program: bytes | Sequence[Wanted], found: Sequence[Sequence[Partial | None]]
) -> list[Partial | None]:
    """Return the parts of several blocks together."""
    parts: list[Partial | None] = []
    for one, several in zip(_loaded(program), zip(*found, strict=True), strict=True):
        whole: Partial | None = None
        for part in several:
            if part is not None:
                whole = part if whole is None else one.merged(whole, part)
        parts.append(whole)
    return parts


def block_values(recipe: Recipe, block: Any, start: int, *given: Any) -> np.ndarray:
    """Return what a recipe computes of a block."""
    parts = [tile.value(recipe) for tile in tiles(block, given, start)]
    if not parts:
        return np.empty((0, *recipe.tail), dtype=recipe.dtype)
    return np.concatenate(parts)


def _loaded(program: bytes | Sequence[Wanted]) -> Sequence[Wanted]:
    return pickle.loads(program) if isinstance(program, bytes) else program  # noqa: S301 -- ours


def _same(value: Any) -> Any:
    return value


class Passes:
    """Carries figures out on the blocks of a dask array, on a cluster or here.

    Blocks that are held by workers are used where they lie: a task is pinned to the worker that
    holds its block, and goes elsewhere only when that worker is gone. Blocks that are not held
    are computed again in every pass, and forgotten after it.

    Parameters
    ----------
    X : dask array
        The rows; arrays beside it follow by `add`.
    """

    def __init__(self, X: Any):
        self._arrays = [X]
        self._blocks: list[list[Any]] | None = None

    def add(self, array: Any) -> None:
        """Take an array whose blocks lie beside those of X."""
        self._arrays.append(array)
        self._blocks = None

    def delayed(self) -> tuple[list[Any], list[list[Any]]]:
        """Return the blocks of X, and of each array beside it, as delayed objects."""
        if self._blocks is None:
            self._blocks = [list(array.to_delayed().ravel()) for array in self._arrays]
        return self._blocks[0], self._blocks[1:]

    def run(
        self, wanted: Sequence[Wanted], needed: Sequence[int], bounds: np.ndarray
    ) -> list[Partial | None]:
        """Return the part of all needed blocks in each figure: one barrier."""
        if not needed:
            return [None] * len(wanted)
        client = _client_of(self._arrays[0])
        if client is None:
            return self._here(wanted, needed, bounds)
        held = [_futures(array) for array in self._arrays]
        try:
            if all(one is not None for one in held):
                total = self._on_holders(client, held, wanted, needed, bounds)
            else:
                total = client.compute(self._tree(wanted, needed, bounds))
            return _wait(client, total)
        except Exception as error:
            raise _explained(error) from error

    def _here(
        self, wanted: Sequence[Wanted], needed: Sequence[int], bounds: np.ndarray
    ) -> list[Partial | None]:
        import dask

        return dask.compute(self._tree(wanted, needed, bounds))[0]

    def _tree(self, wanted: Sequence[Wanted], needed: Sequence[int], bounds: np.ndarray) -> Any:
        from dask import delayed

        blocks, beside = self.delayed()
        program = delayed(pickle.dumps(list(wanted)), pure=False)
        part, merge = delayed(block_part, pure=False), delayed(merged_parts, pure=False)
        parts = [
            part(program, blocks[i], int(bounds[i]), *(one[i] for one in beside)) for i in needed
        ]
        while len(parts) > 1:
            parts = [merge(program, parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
        return parts[0]

    def _on_holders(
        self,
        client: Any,
        held: Sequence[Any],
        wanted: Sequence[Wanted],
        needed: Sequence[int],
        bounds: np.ndarray,
    ) -> Any:
        program: Any = pickle.dumps(list(wanted))
        name = f"volmar-{uuid.uuid4().hex[:12]}"
        if len(program) > LARGE_PROGRAM:
            program = client.submit(_same, program, key=f"{name}-figures")
        holders = client.who_has([held[0][i] for i in needed])
        parts: dict[str, list[Any]] = {}
        for i in needed:
            block = held[0][i]
            worker = next(iter(holders.get(block.key, ())), "")
            part = client.submit(
                block_part,
                program,
                block,
                int(bounds[i]),
                *(one[i] for one in held[1:]),
                key=f"{name}-part-{i}",
                **_at(worker),
            )
            parts.setdefault(worker, []).append(part)
        # Parts are added up where they are first, so that one of each worker travels.
        sums = [
            _added(client, program, those, f"{name}-sum-{i}", worker)
            for i, (worker, those) in enumerate(parts.items())
        ]
        return _added(client, program, sums, f"{name}-total", "")


def _at(worker: str) -> dict[str, Any]:
    """Return where a task should run: on a worker, unless that is gone."""
    return {"workers": [worker], "allow_other_workers": True} if worker else {}


def _added(client: Any, program: Any, parts: list[Any], name: str, worker: str) -> Any:
    level = 0
    while len(parts) > 1:
        level += 1
        parts = [
            client.submit(
                merged_parts,
                program,
                parts[i : i + FAN_IN],
                key=f"{name}-{level}-{i}",
                **_at(worker),
            )
            for i in range(0, len(parts), FAN_IN)
        ]
    return parts[0]


def _client_of(X: Any) -> Any:
    """Return the client that holds X or that is the default; None where there is none."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    futures = distributed.futures_of(X)
    if futures:
        return futures[0].client
    try:
        return distributed.get_client()
    except ValueError:
        return None


def _futures(array: Any) -> list[Any] | None:
    """Return a future for each block, or None where blocks are still to be computed."""
    distributed = sys.modules["distributed"]
    by_key = {future.key: future for future in distributed.futures_of(array)}
    keys = _flat(array.__dask_keys__())
    if not by_key or any(key not in by_key for key in keys):
        return None
    return [by_key[key] for key in keys]


def _flat(keys: Any) -> list[Any]:
    found: list[Any] = []
    for key in keys:
        found.extend(_flat(key) if isinstance(key, list) else [key])
    return found


def _wait(client: Any, future: Any) -> Any:
    """Wait for a future; a cluster without workers is given up after a while."""
    alone_since = None
    while True:
        try:
            return future.result(timeout=GLANCE)
        except TimeoutError:
            pass
        except BaseException:
            future.cancel()
            raise
        if client.status != "running":
            raise LostBlocksError(_NO_SCHEDULER)
        if client.nthreads():
            alone_since = None
            continue
        alone_since = alone_since or time.monotonic()
        if time.monotonic() - alone_since > PATIENCE:
            future.cancel()
            raise LostBlocksError(
                f"the cluster has had no worker for {PATIENCE:g} seconds. Start workers and fit "
                "again, inside volmar.distributed.checkpoint if passes should not be lost."
            )


_NO_SCHEDULER = (
    "the connection to the scheduler is lost. Start it again and fit again; passes made inside "
    "volmar.distributed.checkpoint are not repeated."
)


def _explained(error: Exception) -> Exception:
    """Return an error that tells what to do, or the error of a block as it is."""
    name = type(error).__name__
    if name in ("FutureCancelledError", "CancelledError"):
        return LostBlocksError(
            f"blocks of X were lost with the worker that held them and cannot be computed again "
            f"({error}). Make X from files or other recomputable blocks (dask.array.from_delayed, "
            "read_parquet), persisted if it fits, rather than from scattered data."
        )
    if name == "KilledWorker":
        return LostBlocksError(
            f"workers died again and again at the same block ({error}). Often they had too little "
            "memory: use smaller chunks (X.rechunk), fewer threads a worker, or larger workers."
        )
    if name in ("CommClosedError", "ClosedClientError"):
        return LostBlocksError(_NO_SCHEDULER)
    return error
