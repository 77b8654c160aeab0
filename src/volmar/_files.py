"""Files written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_atomically", "refuse_existing", "write_atomically"]

AnyPath = str | os.PathLike[str]


def write_atomically(
    path: AnyPath,
    content: bytes | str,
    *,
    force: bool = False,
    error: type[Exception] | None = None,
) -> None:
    """Write a file whole or not at all; text is written as UTF-8.

    Parameters
    ----------
    path : path
        The file. A symbolic link is written through, a pipe or a device is written to.
    content : bytes or str
        Its content.
    force : bool, default=False
        Whether an existing file may be replaced.
    error : type of exception, default=None
        Raised in place of an `OSError`, with the same message.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with open_atomically(path, force=force, error=error) as file:
        file.write(data)


@contextmanager
def open_atomically(
    path: AnyPath, *, force: bool = False, error: type[Exception] | None = None
) -> Iterator[BinaryIO]:
    """Open a new file beside `path`, and rename it when the context is left without an error.

    Parameters are those of `write_atomically`.
    """
    target = Path(os.path.realpath(Path(path).expanduser()))
    try:
        refuse_existing(target, force)
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            # Renaming onto a pipe or a device would replace it.
            with target.open("wb") as file:
                yield file
            return
        beside = target.with_name(f".{target.name[:80]}.{secrets.token_hex(6)}.part")
        number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(number, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if mode is not None:
                os.chmod(beside, stat.S_IMODE(mode))
            _rename(beside, target, force)
        finally:
            with suppress(FileNotFoundError):
                beside.unlink()
    except OSError as reason:
        raise (error or type(reason))(_message(target, reason)) from reason


def refuse_existing(path: AnyPath, force: bool) -> None:
    """Raise an `OSError` where `path` is a folder, or an existing file that must be kept."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it")
    if path.is_file() and not force:
        raise _exists(path)


def _rename(beside: Path, target: Path, force: bool) -> None:
    if not force:
        # A link fails where a file has appeared since; a rename would replace it.
        try:
            os.link(beside, target)
        except FileExistsError:
            raise _exists(target) from None
        except (AttributeError, OSError):  # no links on this system
            if target.exists():
                raise _exists(target) from None
        else:
            return
    os.replace(beside, target)


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(
        f"{path} exists already; give another name, or force=True to replace it"
    )


def _message(target: Path, reason: OSError) -> str:
    if reason.errno is None:
        return str(reason)
    if not target.parent.is_dir():
        return f"{target} cannot be written: there is no folder {target.parent}; make it first"
    why = "permission denied" if isinstance(reason, PermissionError) else reason.strerror
    return f"{target} cannot be written: {why or reason}; choose another folder"
