"""The available memory, a check before large allocations, and informative memory errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from pathlib import Path, PurePosixPath
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")


# Of the versions 2 and 1 of cgroups: the mount point, the files of limits and usage, and the entry
# of memory.stat with the file pages that the kernel reclaims first.
_CONTROLLERS = (
    ("", ("memory.max", "memory.high"), "memory.current", "inactive_file"),
    ("memory", ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
)


def available_memory() -> int:
    """Return the number of bytes that can be allocated.

    This is the minimum of the system's free memory, of the memory left under the limits of the
    process (``ulimit -v``, ``ulimit -d``), and of that left in its cgroup and in all parents of
    the cgroup (versions 1 and 2).
    """
    free = _system_available()
    return max(min([free, *_process_limits(), *_cgroup_limits(free)]), 0)


def _system_available() -> int:
    if (kilobytes := _entry(_PROC / "meminfo", "MemAvailable:")) is not None:
        return kilobytes * 1024
    try:  # macOS and the BSDs report only the installed memory: half of it is a cautious guess
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30


def _process_limits() -> Iterator[int]:
    """Yield the memory left under each soft limit of this process."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    # Columns of /proc/self/statm, in pages: the address space, and data plus stack.
    for limit, place in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        soft = resource.getrlimit(limit)[0]
        if soft == resource.RLIM_INFINITY:
            continue
        try:
            pages = int((_PROC / "self/statm").read_text().split()[place])
        except OSError:  # macOS has no /proc
            pages = 0
        yield soft - pages * resource.getpagesize()


def _cgroup_limits(free: int) -> Iterator[int]:
    """Yield the memory left in each cgroup of this process, if it is less than `free`."""
    own = {"": "/", "memory": "/"}  # by controller; version 2 has a single tree without a name
    with suppress(OSError, ValueError):
        for line in (_PROC / "self/cgroup").read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            own |= {name: place for name in controllers.split(",") if name in own}
    for root, limits, usage, cache in _CONTROLLERS:
        path = PurePosixPath(own[root])
        # In a container, the container's own cgroup may be mounted as the root. Folders that do
        # not exist there have no limits. ".." denotes a cgroup outside of the mount.
        inside = [path, *path.parents] if ".." not in path.parts else [PurePosixPath("/")]
        for group in (Path(f"{_CGROUP / root}{folder}") for folder in inside):
            for name in limits:
                try:  # "max" (no limit) fails int() and is ignored with a missing file
                    limit = int((group / name).read_text())
                    left = limit - int((group / usage).read_text()) if limit < 2**60 else limit
                except (OSError, ValueError):
                    continue
                if left < free:
                    yield left + (_entry(group / "memory.stat", cache) or 0)


def _entry(file: Path, name: str) -> int | None:
    """Return the number after a name in a file with one entry per line."""
    with suppress(OSError, ValueError):
        for line in file.read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return None


def require_memory(n_bytes: float, what: str, remedy: str) -> None:
    """Raise a `MemoryError` if `what` needs `n_bytes`, more than are available."""
    available = available_memory()
    if n_bytes > available:
        raise MemoryError(
            f"{what} needs {_size(n_bytes)}, but {_size(available)} are available. {remedy}"
        )


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 / 10 else f"{n_bytes / 2**20:.1f} MiB"


def explained_memory(error: MemoryError, what: str) -> MemoryError:
    """Return a memory error whose message names the failed operation and a remedy.

    Only errors of NumPy, which are of a subclass, and of Python, without a message, are replaced.
    """
    if type(error) is MemoryError and str(error):
        return error
    reason = f" ({error})" if str(error) else ""
    return MemoryError(
        f"{what} ran out of memory{reason}: {_size(available_memory())} are available. Use fewer "
        "rows or columns, or float32, or raise the memory limit (ulimit -v, or the container's)."
    )


def explain_memory(call: Callable[Given, Found]) -> Callable[Given, Found]:
    """Decorate a method of an estimator so that its memory errors name it and the shape of X."""

    @wraps(call)
    def wrapped(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        try:
            return call(*args, **kwargs)
        except MemoryError as error:
            explained = explained_memory(error, _described(call.__name__, *args))
            if explained is error:
                raise
            raise explained from error

    return wrapped


def _described(name: str, estimator: Any, *given: Any) -> str:
    """Return a description such as ``MSPC.fit on X of shape (100000, 50)``."""
    shape = getattr(given[0], "shape", None) if given else None
    on_rows = f" on X of shape {tuple(shape)}" if shape is not None else ""
    return f"{type(estimator).__name__}.{name.lstrip('_')}{on_rows}"
