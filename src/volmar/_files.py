"""Atomic writes of files, and names of files for messages."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

AnyPath = str | os.PathLike[str]
_Input = TypeVar("_Input", bound=AnyPath)

# Temporary files that are being written. After a signal, `remove_parts` removes them.
_PARTS: set[Path] = set()
# Control characters, characters that change the text direction or end a line, and surrogates.
_HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: Any, keep: str = "") -> str:
    r"""Return text with control characters escaped, as in ``\x1b``.

    Names of files, sheets and columns may contain codes that move the cursor or hide text, line
    feeds and unpaired surrogates. Characters in `keep` are not escaped.
    """
    return _HIDDEN.sub(
        lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], str(text)
    )


def expanded_path(path: AnyPath) -> Path:
    """Return a path with ``~`` replaced by the home folder; refuse an invalid path."""
    try:
        expanded = Path(path).expanduser()
        with suppress(OSError):
            os.lstat(expanded)
    except (RuntimeError, ValueError) as error:
        # An unknown user, a NUL, or characters that no file system allows.
        raise ValueError(
            f"'{printable(path)}' is not a valid path: {printable(error)}. Check the name."
        ) from None
    return expanded


def real_path(path: AnyPath) -> Path:
    """Return the target of a path, with ``~`` and symbolic links resolved."""
    expanded = expanded_path(path)
    try:
        return Path(os.path.realpath(expanded))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{printable(path)} cannot be resolved: the current working directory was removed. "
            "Change to another directory."
        ) from None


# ---------------------------------------------------------------------- writing


def write_atomically(path: AnyPath, content: bytes | str, *, force: bool = False) -> None:
    """Write a file completely or not at all, as `open_atomically` does; text as UTF-8."""
    with open_atomically(path, force=force) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def open_atomically(
    path: AnyPath, *, force: bool = False, error: type[Exception] | None = None
) -> Iterator[BinaryIO]:
    """Open a temporary file next to `path`, and rename it if the context exits without an error.

    Symbolic links are followed. Pipes and devices are written to directly. The mode of a replaced
    file is kept. With `force`, an existing file may be replaced. `error` is the type of the
    exception that is raised in place of an `OSError`, with the same message.
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
            # The temporary file must not expose the content of a private file.
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
            raise  # the error of another file, which is read while this one is written
        # A program would take a BrokenPipeError for a closed standard output.
        kind = OSError if isinstance(reason, BrokenPipeError) else type(reason)
        raise (error or kind)(_message(target, reason)) from reason


def refuse_existing(path: AnyPath, force: bool) -> os.stat_result | None:
    """Return the status of the file at `path`, or None if there is none.

    Raises an `OSError` if `path` is a folder, or an existing file and `force` is False.
    """
    path = expanded_path(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{printable(path)} is a folder. Give the name of a file in it.")
    if not force and not stat.S_ISFIFO(found.st_mode) and not stat.S_ISCHR(found.st_mode):
        raise _exists(path)
    return found


def remove_parts() -> None:
    """Remove the temporary files of unfinished writes, before a program ends."""
    for beside in list(_PARTS):
        with suppress(OSError):
            _remove(beside)


def _remove(beside: Path) -> None:
    with suppress(FileNotFoundError):
        beside.unlink()
    _PARTS.discard(beside)


def _take_over(beside: Path, found: os.stat_result) -> None:
    """Give a new file the mode and, if permitted, the owner of the file that it replaces."""
    with suppress(OSError, AttributeError):
        os.chown(beside, found.st_uid, found.st_gid)
    os.chmod(beside, stat.S_IMODE(found.st_mode))


def _rename(beside: Path, target: Path, force: bool) -> None:
    if not force:
        # A link fails if a file has appeared in the meantime; a rename would replace it.
        try:
            os.link(beside, target)
        except FileExistsError:
            raise _exists(target) from None
        except (AttributeError, OSError):  # hard links are not supported here
            if target.exists():
                raise _exists(target) from None
        else:
            return
    os.replace(beside, target)


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(
        f"{printable(path)} exists already. Give another name, or force=True to replace it."
    )


def _message(target: Path, reason: OSError) -> str:
    if reason.errno is None:
        return str(reason)
    name = printable(target)
    if not os.path.isdir(target.parent):
        folder = printable(target.parent)
        return f"{name} cannot be written: there is no folder {folder}. Create it first."
    why = "permission denied" if isinstance(reason, PermissionError) else reason.strerror
    return f"{name} cannot be written: {why or reason}. Choose another name or folder."


# ---------------------------------------------------------------------- inputs


def input_at(path: AnyPath, inputs: Iterable[_Input]) -> _Input | None:
    """Return the input that writing to `path` would change, or None.

    Such an input is the file itself (also through symbolic or hard links), a folder that contains
    `path`, or a folder that contains the same file under another name.
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
    """Raise a `ValueError` if writing to `path` would change a file that was read."""
    if input_at(path, inputs) is not None:
        raise ValueError(
            f"{printable(path)} is the table that was read. Input files are never written to. "
            "Give another name."
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, which all its names share."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
