"""What memory is free, and a refusal before the allocation."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that a new allocation may take: free memory, or less inside a container's limit."""
    candidates = [_system_available()]
    try:  # cgroup v2; "max" (no limit) fails int() and is ignored with a missing file
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        candidates.append(max(limit - used, 0))
    except (OSError, ValueError):
        pass
    return min(candidates)


def _system_available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:  # macOS and the BSDs tell only what is installed: half of it is a cautious guess
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30


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
            f"{what} needs {n_bytes / 2**30:.1f} GiB and {available / 2**30:.1f} GiB are "
            f"available. {remedy}"
        )
