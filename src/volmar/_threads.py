"""Number of threads of a fit: one for BLAS and OpenMP, and joblib jobs on request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ContextDecorator, contextmanager
from functools import cache
from numbers import Integral
from typing import Any, ClassVar, TypeVar

import numpy as np

from volmar._warn import UserMessage, collecting, warn_user

Item = TypeVar("Item")
Found = TypeVar("Found")


class _Inside:
    """Python threads inside `one_thread`, and the numbers of BLAS threads to restore."""

    lock = threading.Lock()
    threads: ClassVar[set[int]] = set()
    before: tuple[tuple[Any, int], ...] = ()


class _Here(threading.local):
    """Nesting depth of the calling Python thread, and its OpenMP threads to restore."""

    depth = 0
    before: tuple[tuple[Any, int], ...] = ()


_INSIDE, _HERE = _Inside(), _Here()


class one_thread(ContextDecorator):  # noqa: N801 -- a context, as contextlib's own
    """A context, or decorator, in which OpenMP and BLAS use one thread.

    NumPy and SciPy each have a pool of BLAS threads that wait in busy loops. A fit that uses both
    in turn is therefore several times *slower* with two threads than with one. OpenMP slows down
    small k-means problems in the same way if other work runs at the same time.

    Contexts can be nested. The number of BLAS threads is set per process: the first Python thread
    to enter saves it, and the last one to leave restores it. Entering and leaving takes a few
    microseconds.
    """

    def __enter__(self) -> None:
        """Limit the threads."""
        _HERE.depth += 1
        if _HERE.depth > 1:
            return
        try:
            blas, openmp = _pools()
            with _INSIDE.lock:
                if not _INSIDE.threads:
                    _INSIDE.before = _threads_of(blas)
                _INSIDE.threads.add(threading.get_ident())
                _set((library, 1) for library in blas)
            _HERE.before = _threads_of(openmp)
            _set((library, 1) for library in openmp)
        except BaseException:  # Ctrl-C
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """Restore the threads."""
        _HERE.depth -= 1
        if _HERE.depth > 0:
            return
        try:
            _restore()
        except BaseException:  # Ctrl-C: repeat from the beginning
            _restore()
            raise


def _restore() -> None:
    """Restore the numbers of threads that this thread changed. Repeating it is harmless."""
    _set(_HERE.before)
    _HERE.before = ()
    with _INSIDE.lock:
        _INSIDE.threads.discard(threading.get_ident())
        if not _INSIDE.threads:
            _set(_INSIDE.before)
            _INSIDE.before = ()


def in_jobs(
    call: Callable[[Item], Found],
    items: Sequence[Item],
    n_jobs: int | None = None,
    *,
    share_rows: bool = False,
) -> Iterator[Found]:
    """Yield the result of a call for each item, in order, from parallel jobs of joblib.

    `n_jobs` is that of `joblib.Parallel`. If None, the number set by ``joblib.parallel_config`` is
    used, or one job by default. With `share_rows` the jobs are Python threads, since processes
    would copy the rows. Warnings of a job are issued here, or collected as those of the caller.
    Each call uses one thread of BLAS and OpenMP, and must not depend on the other calls.
    """
    if n_jobs is not None and (not isinstance(n_jobs, Integral) or n_jobs == 0):
        raise TypeError(f"n_jobs must be None or an integer other than 0, got {n_jobs!r}.")
    if len(items) < 2:
        yield from map(call, items)
        return
    from joblib import Parallel, delayed, effective_n_jobs

    n_jobs = min(effective_n_jobs(n_jobs), len(items))
    if n_jobs == 1:
        yield from map(call, items)
        return
    require = "sharedmem" if share_rows else None
    parallel = Parallel(n_jobs=n_jobs, require=require, return_as="generator")
    errors = np.geterr()
    for result, messages in parallel(delayed(_in_job)(call, item, errors) for item in items):
        for message in messages:
            warn_user(*message)
        yield result


def _in_job(
    call: Callable[[Item], Found], item: Item, errors: Any
) -> tuple[Found, list[UserMessage]]:
    """Return the result of a call and its warnings: other threads and processes collect none."""
    with one_thread(), np.errstate(**errors), collecting() as messages:
        return call(item), messages


@contextmanager
def user_openmp() -> Iterator[None]:
    """Restore the user's number of OpenMP threads inside `one_thread`, for expensive steps."""
    if not _HERE.depth:
        yield
        return
    before = _threads_of(_pools()[1])
    try:
        _set(_HERE.before)
        yield
    finally:
        _set(before)


@cache
def _pools() -> tuple[list[Any], list[Any]]:
    """Return the libraries of BLAS (limits per process) and OpenMP (per thread) that fits use.

    The search takes milliseconds. Later ones (torch) are not used between small steps.
    """
    import sklearn.utils.validation  # noqa: F401 (loads OpenMP and both BLAS)
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().lib_controllers
    blas, openmp = ([one for one in found if one.user_api == api] for api in ("blas", "openmp"))
    return blas, openmp


def _threads_of(libraries: Iterable[Any]) -> tuple[tuple[Any, int], ...]:
    return tuple((library, library.get_num_threads()) for library in libraries)


def _set(numbers: Iterable[tuple[Any, int]]) -> None:
    for library, number in numbers:
        _release(library)
        library.set_num_threads(number)
        _release(library)


def _release(library: Any) -> None:
    # threadpoolctl 3.8 ignores all but one thread, which may not be inside `one_thread`.
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)
