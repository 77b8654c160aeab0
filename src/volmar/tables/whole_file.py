"""Files written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from volmar.tables.errors import TableError

__all__ = ["new_file", "write_atomically"]


def write_atomically(
    path: str | os.PathLike[str], content: bytes | str, *, force: bool = False
) -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : path
        The file.
    content : bytes or str
        The content; text is written as UTF-8.
    force : bool, default=False
        Whether a file that is there may be replaced.

    Raises
    ------
    TableError
        If the file is there and `force` is False, or cannot be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with new_file(path, force) as file:
        file.write(data)


@contextmanager
def new_file(path: str | os.PathLike[str], force: bool) -> Iterator[BinaryIO]:
    """Open a file beside the one wanted, and give it the name when all is written.

    Parameters
    ----------
    path : path
        The file wanted.
    force : bool
        Whether a file that is there may be replaced.

    Yields
    ------
    binary file
        To write to.
    """
    # A link is written through, not replaced.
    target = Path(os.path.realpath(Path(path).expanduser()))
    try:
        mode = _mode_there(target, force)
        if mode is not None and not stat.S_ISREG(mode):
            # A pipe or a device: renaming onto it would replace it.
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
    except OSError as error:
        raise TableError(_why_not(target, error)) from error


def _mode_there(target: Path, force: bool) -> int | None:
    """Return the mode of the file that is there; refuse what must not be replaced."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise TableError(f"{target} is a folder; give the name of a file in it")
    if stat.S_ISREG(mode) and not force:
        raise TableError(_is_there(target))
    return mode


def _rename(beside: Path, target: Path, force: bool) -> None:
    if not force:
        # A link fails where a file has come up since; a rename would replace it.
        try:
            os.link(beside, target)
        except FileExistsError:
            raise TableError(_is_there(target)) from None
        except OSError:
            # A file system without links.
            if target.exists():
                raise TableError(_is_there(target)) from None
        else:
            return
    os.replace(beside, target)


def _is_there(target: Path) -> str:
    return f"{target} is there already; give another name, or --force to replace it"


def _why_not(target: Path, error: OSError) -> str:
    if not target.parent.is_dir():
        return f"{target} cannot be written: there is no folder {target.parent}; make it first"
    if isinstance(error, PermissionError):
        return f"{target} cannot be written: permission denied; choose another folder"
    return f"{target} cannot be written: {error.strerror or error}; choose another folder"
