"""The contract of every public call, as one function: `keep_contract`.

A call either returns a valid value, or raises one exception of the documented types whose message
names the problem. It does not modify its input, gives the same bits for the same seed, and gives
only warnings of volmar.
"""

import hashlib
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from itertools import zip_longest
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from volmar.models import ModelError
from volmar.tables import TableError

#: Exceptions that a public call may raise, without subclasses such as LinAlgError.
DOCUMENTED = (ValueError, TypeError, MemoryError, ImportError, NotFittedError)
DOCUMENTED_FILES = (TableError, ModelError, FileNotFoundError, FileExistsError, PermissionError)
#: Categories of volmar's warnings. scikit-learn's warnings about feature names are allowed, too,
#: since the estimators follow scikit-learn's rules on them.
OURS = (UserWarning, ConvergenceWarning)
#: Maximum number of characters of a message.
LONGEST = 2000
#: Prefixes of messages of NumPy, SciPy and compiled code that do not help a user.
FOREIGN = (
    "Internal Error",
    "array must not contain infs or NaNs",
    "Buffer dtype mismatch",
    "buffer source array is read-only",
    "cannot convert float",
    "could not convert",
    "setting an array element",
    "operands could not be broadcast",
    "shapes (",
    "index ",
    "Unknown format code",
    "unsupported operand",
    "negative dimensions",
    "Unable to allocate",
    "zero-size array",
    "attempt to get arg",
    "cannot reshape",
    "object of type",
    "math domain error",
    "unhashable type",
    "matmul:",
    "maximum supported dimension",
    "array is too big",
    "high is out of bounds",
    "low >= high",
    "p < 0",
    "probabilities ",
    "Singular matrix",
)


class BrokenContract(AssertionError):
    """A call that violates the contract."""


@dataclass
class Case:
    """A call with its input and a check of its value.

    Attributes
    ----------
    text : str
        Description of the case for a finding: lines of Python that reproduce it, if possible.
    call : callable
        Runs the case and returns a value. It is called twice.
    inputs : tuple
        Arrays and other containers that must not be modified.
    check : callable
        Raises `BrokenContract` if the value is not valid (see `require`).
    same_bits : bool
        Whether both calls must return the same bits.
    documented : tuple of types
        Exceptions that are documented for this call.
    warned : list of warnings.WarningMessage
        Warnings of the call so far, which `call` and `check` may read.
    """

    text: str
    call: Callable[[], Any]
    inputs: tuple[Any, ...] = ()
    check: Callable[[Any], None] = lambda value: None
    same_bits: bool = True
    documented: tuple[type[BaseException], ...] = DOCUMENTED
    warned: list[warnings.WarningMessage] = field(default_factory=list)


def keep_contract(case: Case) -> str:
    """Run a case and return "value" or the name of its documented exception.

    Raises `BrokenContract` for anything else.
    """
    before = [fingerprint(item) for item in case.inputs]
    outcome = _once(case)
    if [fingerprint(item) for item in case.inputs] != before:
        raise BrokenContract("the input was changed")
    if case.same_bits:
        again = _once(case)
        require(
            fingerprint(outcome) == fingerprint(again),
            "two calls with the same seed gave different results: "
            f"{first_difference(outcome, again)}",
        )
    return outcome[0]


def _once(case: Case) -> tuple[str, Any]:
    with warnings.catch_warnings(record=True) as seen, _authors() as authors:
        warnings.simplefilter("always")
        case.warned = seen
        try:
            value = case.call()
            case.check(value)
            outcome: tuple[str, Any] = ("value", value)
        except BrokenContract:
            raise
        except case.documented as error:
            check_exception(error, case.documented)
            outcome = (type(error).__name__, str(error))
        except Exception as error:
            where = traceback.format_exc(limit=-4)
            raise BrokenContract(
                f"{type(error).__name__} is not documented: {error!s:.300}\n{where}"
            ) from error
    for warning in seen:
        check_warning(warning, authors.get(str(warning.message), "volmar"))
    return outcome


@contextmanager
def _authors() -> Iterator[dict[str, str]]:
    """Record the module that gave each warning; `warnings` records only where it points to."""
    authors: dict[str, str] = {}
    warn = warnings.warn

    def noted(message: Any, category: Any = None, stacklevel: int = 1, *args: Any, **kwargs: Any):
        authors[str(message)] = sys._getframe(1).f_globals.get("__name__", "")
        warn(message, category, stacklevel + 1, *args, **kwargs)

    warnings.warn = noted
    try:
        yield authors
    finally:
        warnings.warn = warn


def check_exception(error: BaseException, documented: tuple[type[BaseException], ...]) -> None:
    """Refuse subclasses of the documented exceptions, and messages that do not help."""
    where = "".join(traceback.format_tb(error.__traceback__)[-3:])
    kind, message = type(error), str(error)
    is_ours = kind.__module__.startswith("volmar")  # for example a subclass of ValueError
    require(
        kind in documented or is_ours,
        f"{kind.__name__} is not documented: {message:.300}\n{where}",
    )
    require(len(message) < LONGEST, f"{kind.__name__} of {len(message)} characters\n{where}")
    require(
        len(message.split()) >= 4, f"{kind.__name__} has no useful message: {message!r}\n{where}"
    )
    require(
        not message.startswith(FOREIGN),
        f"{kind.__name__} with a message of compiled code: {message:.300}\n{where}",
    )


def check_warning(warning: warnings.WarningMessage, author: str = "volmar") -> None:
    """Refuse warnings that are not volmar's own."""
    text = str(warning.message)
    where = f"{text:.200} ({warning.filename}:{warning.lineno})"
    require(warning.category in OURS, f"{warning.category.__name__} leaked: {where}")
    is_ours = author.split(".", maxsplit=1)[0] in ("volmar", "fuzz") or "feature names" in text
    require(is_ours, f"a warning of {author} leaked: {where}")


def require(holds: Any, message: str) -> None:
    """Raise `BrokenContract` if a condition does not hold."""
    if not holds:
        raise BrokenContract(message)


def require_finite(name: str, value: Any) -> None:
    """Refuse numbers that are not finite, also in arrays and containers."""
    for array in _arrays(value):
        if array.dtype.kind in "fc":
            require(np.isfinite(array).all(), f"{name} is not finite: {array!r:.200}")


def require_labels(name: str, labels: Any, n_rows: int, n_clusters: int) -> None:
    """Refuse labels that are not integers from 0 to the number of clusters."""
    require(isinstance(labels, np.ndarray), f"{name} is a {type(labels).__name__}")
    require(labels.shape == (n_rows,), f"{name} has shape {labels.shape}, not ({n_rows},)")
    require(labels.dtype.kind == "i", f"{name} has dtype {labels.dtype}")
    inside = labels.size == 0 or (labels.min() >= 0 and labels.max() < n_clusters)
    require(inside, f"{name} are outside 0 to {n_clusters - 1}: {np.unique(labels)}")


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, np.ndarray):
        return [value]
    if hasattr(value, "nnz") and isinstance(getattr(value, "data", None), np.ndarray):
        return [value.data]
    if isinstance(value, Mapping):
        return [array for item in value.values() for array in _arrays(item)]
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in _arrays(item)]
    if isinstance(value, (float, complex, np.floating)):
        return [np.asarray(value)]
    return []


def fingerprint(value: Any) -> str:
    """Return a digest of the bits of arrays, sparse matrices, frames, containers and objects.

    It depends on layout and flags of arrays, and on the order of entries of sparse matrices.
    """
    digest = hashlib.sha256()
    for path, bits in _leaves(value, "", ()):
        digest.update(path.encode())
        digest.update(bits)
    return digest.hexdigest()


def first_difference(one: Any, other: Any) -> str:
    """Return the first place at which two values differ, with both contents."""
    pairs = zip_longest(_leaves(one, "", ()), _leaves(other, "", ()))
    return next((f"{a!r:.300} and {b!r:.300}" for a, b in pairs if a != b), "nowhere")


# Attributes of sparse matrices of all formats.
_SPARSE = ("data", "indices", "indptr", "coords", "row", "col", "offsets", "rows")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_Leaf = tuple[str, bytes]


def _leaves(value: Any, path: str, above: tuple[int, ...]) -> Iterator[_Leaf]:
    """Yield the path and the bits of all parts of a value."""
    yield path, type(value).__name__.encode()
    if id(value) in above or len(above) > 50:
        return
    above = (*above, id(value))
    for name, part in _parts(value):
        if name == "":
            yield path, part
        else:
            yield from _leaves(part, f"{path}.{name}", above)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the bits of a value under an empty name, and its parts by their names."""
    if isinstance(value, np.ma.MaskedArray):
        yield "data", np.asarray(value.data)
        yield "mask", np.asarray(value.mask)
    elif isinstance(value, np.ndarray):
        yield "", f"{value.dtype.str}{value.shape}{value.strides}{value.flags.writeable}".encode()
        if value.dtype == object:
            yield "entries", value.tolist()
        else:
            yield "", np.ascontiguousarray(value).tobytes()
    elif hasattr(value, "nnz") and hasattr(value, "format"):  # scipy.sparse
        yield "", f"{value.format}{value.shape}".encode()
        yield from ((name, getattr(value, name, None)) for name in _SPARSE)
    elif hasattr(value, "to_pandas") and not hasattr(value, "iloc"):  # polars and pyarrow
        yield "", f"{value.schema}".encode()
        yield "rows", value.to_pandas()
    elif hasattr(value, "iloc"):  # pandas
        yield "", repr(value.dtypes).encode()
        yield from ((name, list(getattr(value, name, ()))) for name in ("index", "columns"))
        yield "entries", value.to_numpy(dtype=object).tolist()
    elif isinstance(value, Mapping):
        yield from ((repr(key), item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((str(i), item) for i, item in enumerate(value))
    elif isinstance(value, (float, np.floating)):
        yield "", float(value).hex().encode()
    elif isinstance(value, Enum):
        yield "", str(value).encode()
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((one.name, getattr(value, one.name)) for one in fields(value))
    elif isinstance(value, np.random.RandomState):
        yield "state", value.get_state()
    elif str(getattr(type(value), "__module__", "")).startswith("volmar") and hasattr(
        value, "__dict__"
    ):
        yield from vars(value).items()
    elif callable(value):
        yield "", getattr(value, "__qualname__", "").encode()
    else:
        yield "", plain_repr(value).encode()


def plain_repr(value: Any) -> str:
    """Return the repr of a value without addresses in memory."""
    return _ADDRESS.sub("", repr(value))
