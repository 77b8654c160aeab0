"""Files written whole or not at all."""

from __future__ import annotations

import gzip
import math
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from volmar.tables.errors import TableError

__all__ = ["open_labels", "write_atomically", "write_labels"]

_ROWS = 1 << 16  # rows put into text at once
_SPECIAL = (",", '"', "\n", "\r")


def write_labels(
    path: str | os.PathLike[str],
    ids: Any,
    id_name: str,
    labels: Any,
    scores: Any,
    *,
    force: bool = False,
) -> None:
    """Write a CSV file with the columns id (or row), label and score.

    Parameters
    ----------
    path : path
        The file; compressed if it ends with .gz.
    ids : array of shape (n,)
        Names or numbers of the rows.
    id_name : str
        Name of the first column; "id" is written where it is "label" or "score".
    labels : array of int, shape (n,)
        The labels.
    scores : array of shape (n,) or (n, k)
        The decision function. Of k columns the largest minus the second largest is written:
        how far the row is from another label.
    force : bool, default=False
        Whether a file that is there may be replaced.

    Raises
    ------
    TableError
        If the file is there and `force` is False, or cannot be written.
    """
    with open_labels(path, id_name, force=force) as write:
        write(ids, labels, scores)


@contextmanager
def open_labels(
    path: str | os.PathLike[str], id_name: str, *, force: bool = False
) -> Iterator[Callable[[Any, Any, Any], None]]:
    """Open a file as `write_labels` makes it, for rows that come in blocks.

    Parameters
    ----------
    path, id_name, force
        As for `write_labels`.

    Yields
    ------
    callable
        Takes ids, labels and scores of further rows. The file is there when all is written.

    Raises
    ------
    TableError
        If the file is there and `force` is False, or cannot be written.
    """
    name = "id" if id_name in ("label", "score") else id_name
    with _new_file(path, force) as file, _packed(path, file) as target:
        target.write(f"{_quoted(name)},label,score\n".encode())

        def write(ids: Any, labels: Any, scores: Any) -> None:
            target.writelines(_lines(*_checked(ids, labels, scores)))

        yield write


def _packed(path: str | os.PathLike[str], file: BinaryIO) -> Any:
    if str(path).lower().endswith(".gz"):
        return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
    return nullcontext(file)


def _checked(ids: Any, labels: Any, scores: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids, labels, scores = np.asarray(ids), np.asarray(labels), np.asarray(scores, dtype=float)
    if scores.ndim == 2:
        scores = _lead(scores)
    if not ids.shape == labels.shape == scores.shape or labels.ndim != 1:
        raise ValueError(
            f"ids, labels and scores must have one entry a row, got the shapes {ids.shape}, "
            f"{labels.shape} and {scores.shape}."
        )
    return ids, labels, scores


def write_atomically(
    path: str | os.PathLike[str], content: bytes | str, *, force: bool = False
) -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : path
        The file.
    content : bytes or str
        What it shall hold; text is written as UTF-8.
    force : bool, default=False
        Whether a file that is there may be replaced.

    Raises
    ------
    TableError
        If the file is there and `force` is False, or cannot be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    with _new_file(path, force) as file:
        file.write(data)


def _lead(scores: np.ndarray) -> np.ndarray:
    if scores.shape[1] < 2:
        return scores[:, 0]
    top = np.partition(scores, -2, axis=1)
    return top[:, -1] - top[:, -2]


def _lines(ids: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> Iterator[bytes]:
    for start in range(0, len(ids), _ROWS):
        rows = slice(start, start + _ROWS)
        names = _as_fields(ids[rows])
        entries = zip(names, labels[rows].tolist(), scores[rows].tolist(), strict=True)
        text = "\n".join([f"{name},{label},{score!r}" for name, label, score in entries])
        yield text.encode("utf-8", errors="surrogateescape") + b"\n"


def _as_fields(ids: np.ndarray) -> list[Any]:
    """Return ids as they stand in a CSV file."""
    if ids.dtype.kind in "biu":
        return ids.tolist()
    values = ids.tolist() if ids.dtype.kind != "M" else ids.astype(str).tolist()
    fields = ["" if _is_missing(value) else str(value) for value in values]
    joined = "".join(fields)
    if any(sign in joined for sign in _SPECIAL):
        fields = [_quoted(field) for field in fields]
    return fields


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _quoted(text: str) -> str:
    if any(sign in text for sign in _SPECIAL):
        return '"' + text.replace('"', '""') + '"'
    return text


@contextmanager
def _new_file(path: str | os.PathLike[str], force: bool) -> Iterator[BinaryIO]:
    """Open a file beside the one wanted, and give it the name when all is written."""
    # A link is written through, not replaced.
    target = Path(os.path.realpath(Path(path).expanduser()))
    try:
        mode = _mode_there(target, force)
        if mode is not None and not stat.S_ISREG(mode):
            # A pipe or a device: renaming onto it would take its place.
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
