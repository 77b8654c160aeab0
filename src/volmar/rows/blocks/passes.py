"""A pass over the blocks: one task for each, a tree that adds their parts up, one barrier."""

from __future__ import annotations

import pickle
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from volmar.rows.blocks.recipes import Recipe, tiles
from volmar.rows.blocks.sums import Partial, Wanted

# Parts that one task adds up.
FAN_IN = 8
# A list of figures beyond this size travels to each worker once, not with every task, and to the
# scheduler in pieces small enough that dask does not warn of them.
LARGE_PROGRAM, PIECE = 2**16, 2**22
# Seconds between looks at the cluster while a pass runs, and without any worker before an error.
GLANCE, PATIENCE = 1.0, 30.0
# Seconds that a worker with tasks of a pass may be paused before others make the pass, and that it
# may be before an error where no other can: while it is, it writes what it holds to disk.
PAUSE, LONG_PAUSE = 10.0, 120.0
# What a look at a future raises that is not there yet: distributed.utils.sync has no result to
# return where the wait was cancelled, as a busy event loop does when its time is up.
UNFINISHED = (TimeoutError, UnboundLocalError)


class LostBlocksError(RuntimeError):
    """Blocks of X are gone, or the cluster is: the pass cannot be finished."""


def block_part(
    program: bytes | Sequence[Wanted], block: Any, start: int, *given: Any
) -> list[Partial | None]:
    """Return the part of a block in each of the wanted figures."""
    wanted = _loaded(program)
    found: list[list[Partial]] = [[] for _ in wanted]
    n_bytes = max(one.tile_bytes for one in wanted)
    for tile in tiles(block, given, start, n_bytes, max(one.widening for one in wanted)):
        for i, one in enumerate(wanted):
            part = one.of_tile(tile)
            if part is None:
                continue
            found[i].append(part)
            if not one.is_listed and len(found[i]) > 1:
                found[i] = [one.joined(found[i])]
    return [one.joined(parts) if parts else None for one, parts in zip(wanted, found, strict=True)]


def merged_parts(
    program: bytes | Sequence[Wanted], found: Sequence[Sequence[Partial | None]]
) -> list[Partial | None]:
    """Return the parts of several blocks together."""
    parts: list[Partial | None] = []
    for one, several in zip(_loaded(program), zip(*found, strict=True), strict=True):
        there = [part for part in several if part is not None]
        parts.append(one.joined(there) if there else None)
    return parts


def block_values(recipe: Recipe, block: Any, start: int, *given: Any) -> np.ndarray:
    """Return what a recipe computes of a block."""
    parts = [tile.value(recipe) for tile in tiles(block, given, start, widening=recipe.widening)]
    if not parts:
        return np.empty((0, *recipe.tail), dtype=recipe.dtype)
    return np.concatenate(parts)


def _loaded(program: bytes | Sequence[Wanted]) -> Sequence[Wanted]:
    return pickle.loads(program) if isinstance(program, bytes) else program  # noqa: S301 -- ours


def _same(value: Any) -> Any:
    return value


def _joined(pieces: Sequence[bytes]) -> bytes:
    return b"".join(pieces)


class Passes:
    """Carries figures out on the blocks of a dask array, on a cluster or here.

    Blocks that are held by workers are used where they lie: a task runs on the worker that holds
    its block, and nowhere else. When that worker is gone, the pass is made again, with the lost
    blocks where dask has computed them anew. Blocks that are not held are computed again in every
    pass, and forgotten after it. Arrays beside X follow by `add`.
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
        program = pickle.dumps(list(wanted))
        client = _client_of(self._arrays)
        if client is None:
            import dask

            return dask.compute(self._tree(program, needed, bounds))[0]
        held = [_futures(array) for array in self._arrays]
        try:
            with _off_duty():
                if any(one is None for one in held):
                    return self._anywhere(client, program, needed, bounds)
                blocks = [[one[i] for one in held if one is not None] for i in needed]
                return _where_they_lie(client, program, blocks, [int(bounds[i]) for i in needed])
        except Exception as error:
            told = _explained(client, error)
            if told is error:
                raise
            raise told from error

    def _anywhere(
        self, client: Any, program: bytes, needed: Sequence[int], bounds: np.ndarray
    ) -> list[Partial | None]:
        """Have blocks computed and used where the scheduler likes."""
        watch = _Watch(client)
        while True:
            with _released() as made:
                what = _sent(client, program, uuid.uuid4().hex, made)
                tree = self._tree(what, needed, bounds)
                made.append(client.compute(tree))
                # The names of the blocks too: a paused worker may have to read one of them.
                names = {str(key) for key in tree.__dask_graph__()}
                found = _result(watch, made[-1], names.__contains__)
            if found is not None:
                return found
            watch.warn_of_paused()

    def _tree(self, program: Any, needed: Sequence[int], bounds: np.ndarray) -> Any:
        from dask import delayed

        blocks, beside = self.delayed()
        program = delayed(program, pure=False)
        part, merge = delayed(block_part, pure=False), delayed(merged_parts, pure=False)
        parts = [
            part(program, blocks[i], int(bounds[i]), *(one[i] for one in beside)) for i in needed
        ]
        while len(parts) > 1:
            parts = [merge(program, parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
        return parts[0]


def _where_they_lie(
    client: Any, program: bytes, blocks: Sequence[Sequence[Any]], starts: Sequence[int]
) -> list[Partial | None]:
    """Carry figures out on blocks (with what lies beside each) at the workers that hold them."""
    watch = _Watch(client)
    pinned = True
    while True:
        for beside in blocks:
            for future in beside:
                _settle(watch, future)
        with _released() as made:
            total, holders = _submitted(client, program, blocks, starts, pinned, made)
            found = _result(watch, total, partial(_is_part, total.key.split("-")[2]), holders)
        if found is not None:
            return found
        # A worker that still is there and yet takes no tasks is paused, for want of memory.
        pinned = not holders <= watch.workers
        watch.warn_of_paused()


def _is_part(name: str, key: str) -> bool:
    return name in key


def _submitted(
    client: Any,
    program: bytes,
    blocks: Sequence[Sequence[Any]],
    starts: Sequence[int],
    pinned: bool,
    made: list[Any],
) -> tuple[Any, set[str]]:
    """Return the future of a pass, and the workers that it needs; `made` gets all futures."""
    name = uuid.uuid4().hex
    what = _sent(client, program, name, made)
    at: dict[str, list[int]] = {}
    holding = client.who_has([beside[0] for beside in blocks]) if pinned else {}
    for i, beside in enumerate(blocks):
        holders = holding.get(beside[0].key) or [""]
        at.setdefault(min(holders, key=lambda worker: len(at.get(worker, ()))), []).append(i)
    sums = []
    for number, (worker, those) in enumerate(at.items()):
        only = {"workers": [worker]} if worker else {}
        parts = client.map(
            block_part,
            [what] * len(those),
            [blocks[i][0] for i in those],
            [starts[i] for i in those],
            *([blocks[i][k] for i in those] for k in range(1, len(blocks[0]))),
            key=[f"volmar-part-{name}-{i}" for i in those],
            **only,
        )
        made.extend(parts)
        # Parts are added up where they are first, so that one of each worker travels.
        sums.append(_added(client, what, parts, f"volmar-sum-{name}-{number}", only, made))
    total = _added(client, what, sums, f"volmar-total-{name}", {}, made)
    for future in made:
        if future is not total:
            future.release()
    return total, set(at) - {""}


def _added(
    client: Any, program: Any, parts: list[Any], name: str, only: dict[str, Any], made: list[Any]
) -> Any:
    level = 0
    while len(parts) > 1:
        level += 1
        several = [parts[i : i + FAN_IN] for i in range(0, len(parts), FAN_IN)]
        keys = [f"{name}-{level}-{i}" for i in range(len(several))]
        parts = client.map(merged_parts, [program] * len(several), several, key=keys, **only)
        made.extend(parts)
    return parts[0]


def _sent(client: Any, program: bytes, name: str, made: list[Any]) -> Any:
    """Return a future of a large program, which can be computed again; a small one as it is."""
    if len(program) <= LARGE_PROGRAM:
        return program
    for i in range(0, len(program), PIECE):
        key = f"volmar-piece-{name}-{i // PIECE}"
        made.append(client.submit(_same, program[i : i + PIECE], key=key))
    pieces = list(made)
    made.append(client.submit(_joined, pieces, key=f"volmar-figures-{name}"))
    return made[-1]


@contextmanager
def _released() -> Iterator[list[Any]]:
    """Give a list of futures, which are released at the end, whatever happens.

    Without that the traceback of an interrupted fit would hold them, and workers go on.
    """
    made: list[Any] = []
    try:
        yield made
    finally:
        for future in made:
            future.release()


@contextmanager
def _off_duty() -> Iterator[None]:
    """Give the thread of a task back to its worker, which may have to do a part of the pass."""
    distributed = sys.modules["distributed"]
    try:
        distributed.secede()
    except ValueError:  # not in a task
        yield
        return
    try:
        yield
    finally:
        distributed.rejoin()


# ------------------------------------------------------------------ whose blocks


def _client_of(arrays: Sequence[Any]) -> Any:
    """Return the client that holds blocks, or by which dask computes; None where there is none."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    futures = distributed.futures_of(list(arrays))
    if futures:
        client = futures[0].client
    else:
        import dask

        client = getattr(dask.base.get_scheduler(), "__self__", None)
    if not isinstance(client, distributed.Client):
        return None
    if client.asynchronous:
        raise TypeError(
            "fit waits for the cluster, and cannot do so in the event loop of an asynchronous "
            "Client. Call it in a thread: await asyncio.to_thread(estimator.fit, X)."
        )
    return client


def _futures(array: Any) -> list[Any] | None:
    """Return a future for each block, or None where blocks are still to be computed."""
    future = sys.modules["distributed"].Future
    graph = array.__dask_graph__()
    found: list[Any] = []
    for key in _flat(array.__dask_keys__()):
        block = graph.get(key)
        if not isinstance(block, future):
            return None
        found.append(block)
    return found


def _flat(keys: Any) -> list[Any]:
    found: list[Any] = []
    for key in keys:
        found.extend(_flat(key) if isinstance(key, list) else [key])
    return found


# ------------------------------------------------------------------ waiting


class _Watch:
    """Looks at a cluster while a pass runs, and gives up when no worker takes tasks for long."""

    def __init__(self, client: Any):
        self.client = client
        self.workers: set[str] = set()
        self._paused: dict[str, float] = {}  # and since when
        self._next_look = 0.0
        self._alone_since: float | None = None

    def look(self) -> None:
        """See who is there, and who is paused."""
        if self.client.status != "running":
            raise LostBlocksError(_NO_SCHEDULER)
        self.workers = set(self.client.nthreads())
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + PAUSE / 4
            self.look_for_paused()
        if self.workers - set(self._paused):
            self._alone_since = None
            return
        if self._alone_since is None:
            self._alone_since = now
        if not self.workers and now - self._alone_since >= PATIENCE:
            raise LostBlocksError(
                f"the cluster has had no worker for {PATIENCE:g} seconds. Start workers and fit "
                "again, inside volmar.distributed.checkpoint if passes should not be lost."
            )
        if self.workers and now - self._alone_since >= LONG_PAUSE:
            raise LostBlocksError(
                f"all {len(self.workers)} workers have been paused for {LONG_PAUSE:g} seconds, "
                f"which dask does when they run out of memory. {_MORE_MEMORY}"
            )

    def look_for_paused(self) -> None:
        """See which workers take no tasks because they are short of memory."""
        now = time.monotonic()
        found = self.client.scheduler_info(n_workers=-1)["workers"]
        self._paused = {
            address: self._paused.get(address, now)
            for address, worker in found.items()
            if worker["status"] == "paused"
        }

    def is_idle(self, is_ours: Callable[[str], bool]) -> bool:
        """Tell whether no worker has a task of the pass."""
        return not self._are_at(None, is_ours)

    def is_stuck(self, is_ours: Callable[[str], bool], seconds: float) -> bool:
        """Tell whether a worker that has been paused for so long has tasks of the pass."""
        now = time.monotonic()
        stuck = [worker for worker, since in self._paused.items() if now - since >= seconds]
        return bool(stuck) and self._are_at(stuck, is_ours)

    def _are_at(self, workers: list[str] | None, is_ours: Callable[[str], bool]) -> bool:
        processing = self.client.processing(workers).values()
        return any(is_ours(str(key)) for keys in processing for key in keys)

    def warn_of_paused(self) -> None:
        """Warn that other workers do the work of those that are paused."""
        self.look_for_paused()
        if self._paused:
            warnings.warn(
                f"{len(self._paused)} of {len(self.workers)} workers are paused, which dask does "
                f"when they run out of memory ({', '.join(sorted(self._paused)[:3])}): the pass "
                f"is made again by the others. {_MORE_MEMORY}",
                stacklevel=2,
            )


def _settle(watch: _Watch, future: Any) -> None:
    """Wait for a block that is being computed, or computed again; raise if it is lost."""
    while not future.done():
        try:
            future.exception(timeout=GLANCE)
        except UNFINISHED:
            watch.look()
        if watch.is_stuck(partial(_is_part, str(future.key)), LONG_PAUSE):
            raise LostBlocksError(
                f"a worker that has been paused for {LONG_PAUSE:g} seconds has a block of X to "
                f"compute. Dask pauses workers that run out of memory. {_MORE_MEMORY}"
            )
    if future.cancelled():
        future.result()


def _result(
    watch: _Watch, future: Any, is_ours: Callable[[str], bool], holders: set[str] | None = None
) -> Any:
    """Return what a future brings; None if workers that it needs are gone, or take no tasks.

    `is_ours` tells by its name whether a task is of this pass.
    """
    seconds, idle = GLANCE, 0
    while True:
        try:
            return future.result(timeout=seconds)
        except UNFINISHED:
            if future.status == "error":  # it may be the error of a block
                return future.result()
        if future.status == "finished":  # large, and still on its way to us
            seconds *= 2
        watch.look()
        if watch.is_stuck(is_ours, PAUSE):
            return None
        if not holders:
            continue
        idle = idle + 1 if watch.is_idle(is_ours) else 0
        if not holders <= watch.workers or idle > 1:
            return None


_MORE_MEMORY = (
    "Use smaller chunks (X.rechunk), fewer threads a worker, larger workers, or rows that are not "
    "persisted."
)
_NO_SCHEDULER = (
    "the connection to the scheduler is lost. Start it again and fit again; passes made inside "
    "volmar.distributed.checkpoint are not repeated."
)


def _explained(client: Any, error: Exception) -> Exception:
    """Return an error that tells what to do, or the error of a block as it is."""
    name = type(error).__name__
    if name in ("CommClosedError", "ClosedClientError"):
        return LostBlocksError(_NO_SCHEDULER)
    if name in ("FutureCancelledError", "FuturesCancelledError", "CancelledError"):
        if client.status != "running":
            return LostBlocksError(_NO_SCHEDULER)
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
    return error
