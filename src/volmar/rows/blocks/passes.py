"""Passes over blocks: one task per block, a tree that merges partial results, one barrier."""

from __future__ import annotations

import pickle
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from volmar._warn import warn_user
from volmar.rows.blocks.recipes import Recipe, tiles
from volmar.rows.blocks.sums import Partial, Wanted

# Number of partial results that one task merges.
FAN_IN = 8
# A list of requests above the first size is sent to each worker once, not with every task. It is
# sent to the scheduler in pieces of the second size, about which dask does not warn.
LARGE_PROGRAM, PIECE = 2**16, 2**22
# Seconds between checks of the cluster during a pass, and seconds without any worker before an
# error.
GLANCE, PATIENCE = 1.0, 30.0
# Seconds that a worker with tasks of a pass may be paused before the pass is repeated by others,
# and seconds before an error if no other worker can do it. A paused worker spills data to disk.
PAUSE, LONG_PAUSE = 10.0, 120.0
# Exceptions of a future that is not finished. If the wait was cancelled, as a busy event loop does
# on a timeout, distributed.utils.sync has no result to return.
UNFINISHED = (TimeoutError, UnboundLocalError)


class LostBlocksError(RuntimeError):
    """A pass cannot be completed because blocks of X, or the cluster, are lost."""


def block_part(
    program: bytes | Sequence[Wanted], block: Any, start: int, *given: Any
) -> list[Partial | None]:
    """Return the partial result of a block for each request."""
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
    """Merge the partial results of several blocks."""
    parts: list[Partial | None] = []
    for one, several in zip(_loaded(program), zip(*found, strict=True), strict=True):
        there = [part for part in several if part is not None]
        parts.append(one.joined(there) if there else None)
    return parts


def block_values(recipe: Recipe, block: Any, start: int, *given: Any) -> np.ndarray:
    """Return the array of a recipe for a block."""
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
    """Computes requests on the blocks of a dask array, on a cluster or in this process.

    Blocks that workers hold in memory are not moved: a task runs only on the worker that holds its
    block. If that worker is lost, dask recomputes the lost blocks on other workers, and the pass
    is repeated. Blocks that are not held are computed in every pass and released after it. Other
    arrays in the same blocks are added by `add`.
    """

    def __init__(self, X: Any):
        self._arrays = [X]
        self._blocks: list[list[Any]] | None = None

    def add(self, array: Any) -> None:
        """Add an array with the same blocks as X."""
        self._arrays.append(array)
        self._blocks = None

    def delayed(self) -> tuple[list[Any], list[list[Any]]]:
        """Return the blocks of X, and of each added array, as delayed objects."""
        if self._blocks is None:
            self._blocks = [list(array.to_delayed().ravel()) for array in self._arrays]
        return self._blocks[0], self._blocks[1:]

    def run(
        self, wanted: Sequence[Wanted], needed: Sequence[int], bounds: np.ndarray
    ) -> list[Partial | None]:
        """Return the merged result of the needed blocks for each request, with one barrier."""
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
            explained = _explained(client, error)
            if explained is error:
                raise
            raise explained from error

    def _anywhere(
        self, client: Any, program: bytes, needed: Sequence[int], bounds: np.ndarray
    ) -> list[Partial | None]:
        """Compute and use blocks on any workers that the scheduler chooses."""
        watch = _Watch(client)
        while True:
            with _released() as made:
                what = _sent(client, program, uuid.uuid4().hex, made)
                tree = self._tree(what, needed, bounds)
                made.append(client.compute(tree))
                # Names of blocks are included, since a paused worker may have to load one.
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
    """Compute requests on blocks, and the added arrays, at the workers that hold them."""
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
        # A live worker that takes no tasks is paused because it is out of memory.
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
    """Return the future of a pass, and the workers that it needs; append futures to `made`."""
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
        # Partial results are merged on their worker first, so that each worker sends only one.
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
    """Return a recomputable future of a large list of requests; a small list is unchanged."""
    if len(program) <= LARGE_PROGRAM:
        return program
    for i in range(0, len(program), PIECE):
        key = f"volmar-piece-{name}-{i // PIECE}"
        made.append(client.submit(_same, program[i : i + PIECE], key=key))
    pieces = list(made)
    made.append(client.submit(_joined, pieces, key=f"volmar-program-{name}"))
    return made[-1]


@contextmanager
def _released() -> Iterator[list[Any]]:
    """Yield a list of futures, which are released at the end, also after an exception.

    Otherwise the traceback of an interrupted fit would keep them alive, and workers continue.
    """
    made: list[Any] = []
    try:
        yield made
    finally:
        for future in made:
            future.release()


@contextmanager
def _off_duty() -> Iterator[None]:
    """Return the thread of a task to its worker, which may be needed for the pass."""
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


# ------------------------------------------------------------------ clients and futures


def _client_of(arrays: Sequence[Any]) -> Any:
    """Return the client that holds the blocks, or dask's current client; None without one."""
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
            "fit blocks until the cluster has finished, which is not possible in the event loop "
            "of an asynchronous Client. Call it in a thread: "
            "await asyncio.to_thread(estimator.fit, X)."
        )
    return client


def _futures(array: Any) -> list[Any] | None:
    """Return the future of each block, or None if any block is not held by the cluster."""
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
    """Monitors a cluster during a pass, and raises an error if no worker takes tasks for long."""

    def __init__(self, client: Any):
        self.client = client
        self.workers: set[str] = set()
        self._paused: dict[str, float] = {}  # time at which each worker was first seen paused
        self._next_look = 0.0
        self._alone_since: float | None = None

    def look(self) -> None:
        """Update the lists of workers and of paused workers; raise if none has worked for long."""
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
                "again."
            )
        if self.workers and now - self._alone_since >= LONG_PAUSE:
            raise LostBlocksError(
                f"all {len(self.workers)} workers have been paused for {LONG_PAUSE:g} seconds. "
                f"Dask pauses workers that run out of memory. {_MORE_MEMORY}"
            )

    def look_for_paused(self) -> None:
        """Update the list of workers that are paused because they are out of memory."""
        now = time.monotonic()
        found = self.client.scheduler_info(n_workers=-1)["workers"]
        self._paused = {
            address: self._paused.get(address, now)
            for address, worker in found.items()
            if worker["status"] == "paused"
        }

    def is_idle(self, is_ours: Callable[[str], bool]) -> bool:
        """Return whether no worker has a task of the pass."""
        return not self._are_at(None, is_ours)

    def is_stuck(self, is_ours: Callable[[str], bool], seconds: float) -> bool:
        """Return whether a worker paused for at least `seconds` has tasks of the pass."""
        now = time.monotonic()
        stuck = [worker for worker, since in self._paused.items() if now - since >= seconds]
        return bool(stuck) and self._are_at(stuck, is_ours)

    def _are_at(self, workers: list[str] | None, is_ours: Callable[[str], bool]) -> bool:
        processing = self.client.processing(workers).values()
        return any(is_ours(str(key)) for keys in processing for key in keys)

    def warn_of_paused(self) -> None:
        """Warn that other workers repeat the pass because some are paused."""
        self.look_for_paused()
        if self._paused:
            warn_user(
                f"{len(self._paused)} of {len(self.workers)} workers are paused "
                f"({', '.join(sorted(self._paused)[:3])}). Dask pauses workers that run out of "
                f"memory. The pass is repeated by the other workers. {_MORE_MEMORY}",
            )


def _settle(watch: _Watch, future: Any) -> None:
    """Wait until a block is computed or recomputed; raise if it is lost."""
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
    """Return the result of a future, or None if workers that it needs are lost or take no tasks.

    `is_ours` returns whether a task, given by its name, belongs to this pass.
    """
    seconds, idle = GLANCE, 0
    while True:
        try:
            return future.result(timeout=seconds)
        except UNFINISHED:
            if future.status == "error":  # it may be the error of a block
                return future.result()
        if future.status == "finished":  # a large result that is still being transferred
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
    "Use smaller chunks (X.rechunk), fewer threads per worker, workers with more memory, or do "
    "not persist X."
)
_NO_SCHEDULER = "the connection to the scheduler is lost. Restart the scheduler and fit again."


def _explained(client: Any, error: Exception) -> Exception:
    """Return an error with a remedy, or the given error if it comes from a block."""
    name = type(error).__name__
    if name in ("CommClosedError", "ClosedClientError"):
        return LostBlocksError(_NO_SCHEDULER)
    if name in ("FutureCancelledError", "FuturesCancelledError", "CancelledError"):
        if client.status != "running":
            return LostBlocksError(_NO_SCHEDULER)
        return LostBlocksError(
            "blocks of X were lost with the worker that held them and cannot be computed again "
            f"({error}). Create X from files or other recomputable blocks, persisted or not "
            "(dask.array.from_delayed, read_parquet), rather than from scattered data."
        )
    if name == "KilledWorker":
        return LostBlocksError(
            f"workers died repeatedly at the same block ({error}). The usual reason is too little "
            "memory. Use smaller chunks (X.rechunk), fewer threads per worker, or workers with "
            "more memory."
        )
    return error
