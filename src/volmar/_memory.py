"""What memory is free, a refusal before an allocation, and an error that names what ran out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, ParamSpec, TypeVar

__all__ = ["available_memory", "explain_memory", "explained_memory", "require_memory"]

Given = ParamSpec("Given")
Found = TypeVar("Found")

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")


class _Controller(NamedTuple):
    """Where a version of cgroups is mounted, and the names of its files."""

    root: str
    limits: tuple[str, ...]
    usage: str
    cache: str  # of memory.stat: file pages that the kernel gives up first


_V2 = _Controller("", ("memory.max", "memory.high"), "memory.current", "inactive_file")
_V1 = _Controller(
    "memory", ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"
)


def available_memory() -> int:
    """Bytes that a new allocation may take.

    The smallest of the system's free memory, what the process's limits leave (``ulimit -v``,
    ``ulimit -d``) and what its cgroup and all parents of that leave (versions 1 and 2).
    """
    free = _system_available()
    return max(min([free, *_process_limits(), *_cgroup_limits(free)]), 0)


def _system_available() -> int:
    try:
        for line in (_PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:  # macOS and the BSDs tell only what is installed: half of it is a cautious guess
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30


def _process_limits() -> Iterator[int]:
    """Yield what the soft limits of this process leave; nothing where there are none."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    # Places in /proc/self/statm: the address space, and data with the stack, in pages.
    for limit, place in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        soft = resource.getrlimit(limit)[0]
        if soft == resource.RLIM_INFINITY:
            continue
        try:
            pages = int((_PROC / "self/statm").read_text().split()[place])
        except OSError:  # macOS: the size of a process is not in a file
            pages = 0
        yield soft - pages * resource.getpagesize()


def _cgroup_limits(free: int) -> Iterator[int]:
    """Yield what each cgroup that this process is inside of leaves, where less than `free`."""
    own = {"": "/", "memory": "/"}  # by controller; version 2 has one tree for all, without a name
    try:
        for line in (_PROC / "self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            own |= {name: group for name in controllers.split(",") if name in own}
    except (OSError, ValueError):
        pass
    for controller in (_V2, _V1):
        root, path = _CGROUP / controller.root, PurePosixPath(own[controller.root])
        # In a container the mount may show its own cgroup as the root: a folder that is not
        # there has no limits. ".." is a cgroup outside of what is mounted.
        inside = [path, *path.parents] if ".." not in path.parts else [PurePosixPath("/")]
        for folder in inside:
            yield from _left_in(Path(f"{root}{folder}"), controller, free)


def _left_in(group: Path, names: _Controller, free: int) -> Iterator[int]:
    for name in names.limits:
        try:  # "max" (no limit) fails int() and is ignored with a missing file
            limit = int((group / name).read_text())
            left = limit - int((group / names.usage).read_text()) if limit < 2**60 else limit
        except (OSError, ValueError):
            continue
        if left < free:
            yield left + _cache_of(group, names)


def _cache_of(group: Path, names: _Controller) -> int:
    try:
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith(f"{names.cache} "):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return 0


def require_memory(n_bytes: float, what: str, remedy: str) -> None:
    """Raise `MemoryError` when `n_bytes` for `what` is more than is available.

    Parameters
    ----------
    n_bytes : float
        What the allocation needs, temporaries included.
    what : str
        The thing to be allocated, as the subject of the message.
    remedy : str
        What the user can do instead, as a sentence.
    """
    available = available_memory()
    if n_bytes > available:
        raise MemoryError(
            f"{what} needs {_size(n_bytes)} and {_size(available)} are available. {remedy}"
        )


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 / 10 else f"{n_bytes / 2**20:.1f} MiB"


def explained_memory(error: MemoryError, what: str) -> MemoryError:
    """Return the error of an allocation that failed, naming what was at work and a remedy.

    Errors of `require_memory` are returned as they are. Those of numpy are of a class of their
    own, and those of Python say nothing.
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
    """Return ``MSPC.fit on X of shape (100000, 50)``."""
    shape = getattr(given[0], "shape", None) if given else None
    on_rows = f" on X of shape {tuple(shape)}" if shape is not None else ""
    return f"{type(estimator).__name__}.{name.lstrip('_')}{on_rows}"
