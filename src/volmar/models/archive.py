"""The container of a model file: an uncompressed zip file of a JSON text and arrays."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from volmar._files import open_atomically
from volmar._memory import available_memory
from volmar._npy import read_array

__all__ = ["MAX_TEXT", "Archive", "ModelError", "write_archive"]

TEXT = "model.json"
# Maximum size of the JSON text in bytes: 200 nodes of a tree of splits take about one million.
MAX_TEXT = 64 * 2**20
# Maximum bytes of Python objects per byte of JSON: "{}," takes 64 bytes for 3.
GROWTH = 25
# A fixed time, so that the same model gives the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)
_MEMBER = re.compile(r"arrays/(0|[1-9][0-9]{0,8})\.npy", re.ASCII)


class ModelError(ValueError):
    """A model file that cannot be read or written. The message gives the reason and a remedy."""


class Archive:
    """A model file opened for reading.

    Members are not compressed, so their content is never larger than the file. The size is
    compared with the free memory before anything is read.
    """

    def __init__(self, path: Path):
        self.path = path
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            raise ModelError(f"{path} {what}. Give a file that was written by save_model.")
        with self._refusing("is not a model file written by save_model, or is damaged"):
            self._zip = zipfile.ZipFile(path)
        try:
            self._check_members()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def n_bytes(self) -> int:
        """Size of the file in bytes."""
        return self.path.stat().st_size

    @property
    def n_arrays(self) -> int:
        """Number of arrays in the file."""
        return len(self._zip.infolist()) - 1

    def error(
        self, reason: str, remedy: str = "Copy the file again, or fit and save the model again."
    ) -> ModelError:
        """Return an error that names the file, the reason and a remedy."""
        return ModelError(f"{self.path} {reason}. {remedy}")

    def text(self) -> Any:
        """Return the parsed JSON text."""
        with self._refusing("has a model.json that cannot be read"):
            raw = self._zip.read(TEXT)
            return json.loads(raw.decode("ascii"), parse_constant=_refuse_constant)

    def array(self, name: Any) -> NDArray:
        """Return an array. Its size must agree with its header."""
        if not isinstance(name, str) or not _MEMBER.fullmatch(name):
            raise self.error(f"names an array {name!r:.60}, which is not in a model file")
        with self._refusing(f"has a damaged array {name}"):
            info = self._zip.getinfo(name)
            with self._zip.open(info) as member:
                return read_array(member, info.file_size)

    def _check_members(self) -> None:
        members = self._zip.infolist()
        names = {member.filename for member in members}
        for member in members:
            name = member.filename
            if name != TEXT and not _MEMBER.fullmatch(name):
                raise self.error(f"holds {name!r:.60}, which is not part of a model file")
            # Bit 0 marks an encrypted member.
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                raise self.error(f"holds {name} compressed or encrypted, unlike any model file")
        if len(names) < len(members) or TEXT not in names:
            raise self.error("has a duplicate member, or no model.json")
        total = sum(max(member.file_size, member.compress_size) for member in members)
        if total > self.n_bytes:
            raise self.error("claims to hold more bytes than it has, and is damaged or malicious")
        n_text = self._zip.getinfo(TEXT).file_size
        if n_text > MAX_TEXT:
            raise self.error(f"has a model.json of {n_text} bytes, above the limit of {MAX_TEXT}")
        needed, available = total + GROWTH * n_text, available_memory()
        if needed > available:
            raise self.error(
                f"needs {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB are available",
                "Free some memory, or use a larger machine.",
            )

    @contextmanager
    def _refusing(self, reason: str) -> Iterator[None]:
        try:
            yield
        except ModelError:
            raise
        except Exception as error:  # damaged bytes may raise any error of zip, JSON or NumPy
            detail = " ".join(str(error).split())[:120] or type(error).__name__
            raise self.error(f"{reason} ({detail})") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def write_archive(path: Path, text: Any, arrays: list[NDArray], *, force: bool) -> None:
    """Write a JSON text and arrays, named by their numbers, as a model file."""
    raw = json.dumps(text, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(raw) > MAX_TEXT:
        raise ModelError(
            f"The model needs a model.json of {len(raw)} bytes, above the limit of {MAX_TEXT}. "
            "Fit with fewer clusters."
        )
    with open_atomically(path, force=force, error=ModelError) as file:
        _write_zip(file, raw, arrays)


def _write_zip(file: Any, raw: bytes, arrays: list[NDArray]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_member(TEXT), raw)
        for number, array in enumerate(arrays):
            with archive.open(
                _member(f"arrays/{number}.npy"), "w", force_zip64=array.nbytes > 2**30
            ) as member:
                npy.write_array(member, array, allow_pickle=False)


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIME)
    info.external_attr = 0o644 << 16
    return info
