"""Files written whole or not at all, and names of files as messages show them."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

__all__ = [
    "expanded_path",
    "input_at",
    "open_atomically",
    "printable",
    "real_path",
    "refuse_existing",
    "refuse_input",
    "remove_parts",
    "write_atomically",
]

AnyPath = str | os.PathLike[str]
_Input = TypeVar("_Input", bound=AnyPath)

# Files that are being written. Whatever a signal leaves of them, `remove_parts` removes.
_PARTS: set[Path] = set()
# Control characters, those that change the direction of text or end a line, and surrogates.
_HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: Any, keep: str = "") -> str:
    r"""Return text that cannot steer a terminal: control characters are written as ``\x1b``.

    Names of files, sheets and columns may hold them: codes that move the cursor or hide text, line
    feeds, halves of surrogate pairs. Those in `keep` stay.
    """
    return _HIDDEN.sub(
        lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], str(text)
    )


def expanded_path(path: AnyPath) -> Path:
    """Return a path with the folder of a user in place of ``~``; refuse what is no path."""
    try:
        expanded = Path(path).expanduser()
        with suppress(OSError):
            os.lstat(expanded)
    except (RuntimeError, ValueError) as error:
        # A user that is not known, a NUL, characters that no file system has.
        raise ValueError(
            f"'{printable(path)}' is no path: {printable(error)}. Check its name."
        ) from None
    return expanded


def real_path(path: AnyPath) -> Path:
    """Return where a path leads, through ``~`` and symbolic links."""
    expanded = expanded_path(path)
    try:
        return Path(os.path.realpath(expanded))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{printable(path)} leads nowhere: the folder that this program runs in is gone; "
            "change to another one"
        ) from None


# ---------------------------------------------------------------------- writing


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
        The file. A symbolic link is written through, a pipe or a device is written to. A file
        that is replaced passes on its mode.
    content : bytes or str
        Its content.
    force : bool, default=False
        Whether an existing file may be replaced. Pipes and character devices need no force.
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
    given = expanded_path(path)
    target = real_path(given)
    beside = target.with_name(f".{target.name[:40]}.{secrets.token_hex(6)}.part")
    try:
        found = refuse_existing(given, force)
        if found is not None and not stat.S_ISREG(found.st_mode):
            # Renaming onto a pipe or a device would replace it.
            with os.fdopen(os.open(given, os.O_WRONLY | getattr(os, "O_NOCTTY", 0)), "wb") as file:
                yield file
            return
        _PARTS.add(beside)
        try:
            # What a private file will hold must not be readable on the way.
            mode = 0o666 if found is None else 0o600
            number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(number, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if found is not None:
                _take_over(beside, found)
            _rename(beside, target, force)
        finally:
            _remove(beside)
    except OSError as reason:
        if reason.filename is not None and Path(reason.filename) not in (given, target, beside):
            raise  # of another file, which is read while this one is written
        # A program takes a broken pipe for that of its screen.
        kind = OSError if isinstance(reason, BrokenPipeError) else type(reason)
        raise (error or kind)(_message(target, reason)) from reason


def refuse_existing(path: AnyPath, force: bool) -> os.stat_result | None:
    """Return the status of what is at `path`, or None where there is nothing.

    Raises an `OSError` where it is a folder, or holds what must be kept.
    """
    path = expanded_path(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{printable(path)} is a folder; give the name of a file in it")
    if not force and not stat.S_ISFIFO(found.st_mode) and not stat.S_ISCHR(found.st_mode):
        raise _exists(path)
    return found


def remove_parts() -> None:
    """Remove what is left of files that were being written, before a program ends."""
    for beside in list(_PARTS):
        with suppress(OSError):
            _remove(beside)


def _remove(beside: Path) -> None:
    with suppress(FileNotFoundError):
        beside.unlink()
    _PARTS.discard(beside)


def _take_over(beside: Path, found: os.stat_result) -> None:
    """Give a new file the owner, where that is allowed, and the mode of the one it replaces."""
    with suppress(OSError, AttributeError):
        os.chown(beside, found.st_uid, found.st_gid)
    os.chmod(beside, stat.S_IMODE(found.st_mode))


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
        f"{printable(path)} exists already; give another name, or force=True to replace it"
    )


def _message(target: Path, reason: OSError) -> str:
    if reason.errno is None:
        return str(reason)
    name = printable(target)
    if not os.path.isdir(target.parent):
        folder = printable(target.parent)
        return f"{name} cannot be written: there is no folder {folder}; make it first"
    why = "permission denied" if isinstance(reason, PermissionError) else reason.strerror
    return f"{name} cannot be written: {why or reason}; choose another name or folder"


# ---------------------------------------------------------------------- what is read


def input_at(path: AnyPath, inputs: Iterable[_Input]) -> _Input | None:
    """Return the input that writing to `path` would change, or None.

    That is an input file by any of its names (symbolic and hard links), a folder that `path` is
    in, or a folder that holds the same file by another name.
    """
    real = real_path(path)
    itself = _identity(real)
    places = {itself, *map(_identity, real.parents)} - {None}
    for one in inputs:
        read = real_path(one)
        if _identity(read) in places:
            return one
        if itself is not None and os.path.isdir(read) and itself in map(_identity, read.iterdir()):
            return one
    return None


def refuse_input(path: AnyPath, inputs: Iterable[AnyPath]) -> None:
    """Raise a `ValueError` where writing to `path` would change a file that was read."""
    if input_at(path, inputs) is not None:
        raise ValueError(
            f"{printable(path)} is the table that was read, and that is never written to; give "
            "another name."
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what all names of a file have in common."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
