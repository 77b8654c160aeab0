"""Values in model files: which are saved and loaded, and which raise errors."""

import os
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest
from helpers.models import X, edit, find, load_value, refused_value, save_value
from scipy import sparse

from volmar.graphs.neighbors import FaissBackend, PyNNDescentBackend
from volmar.models import ModelError, limits, save_model
from volmar.solvers import Status


def round_trip(value, tmp_path):
    save_value(tmp_path / "p", value)
    return load_value(tmp_path / "p")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**64 - 1,
        -(2**63),
        -0.1,
        float("inf"),
        float("-inf"),
        "ä\ud800\0\n",
        [],
        (1, ("a", [2.5])),
        {"a": 1, 2: "b", 3.5: None, None: [], (1, "x"): {}, True: 0, Status.CONVERGED: 1},
        {1, "a"},
        np.float32(0.1),
        np.int64(-3),
        np.bool_(True),
        np.bytes_(b"ab"),
        np.datetime64("2024-01-01"),
        np.dtype("<f4"),
        Status.MAX_ITER,
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_plain_values_come_back(value, tmp_path):
    again = round_trip(value, tmp_path)
    assert type(again) is type(value)
    assert again == value


def test_values_without_equality_come_back(tmp_path):
    assert np.isnan(round_trip(float("nan"), tmp_path))
    proxy = round_trip(MappingProxyType({"a": 1}), tmp_path)
    assert type(proxy) is MappingProxyType
    assert dict(proxy) == {"a": 1}
    assert round_trip(np.str_("a"), tmp_path) == "a"
    for array in (
        np.zeros((0, 3)),
        np.array(1.5),
        np.asfortranarray(X),
        X[::2, ::-1],
        np.array(["a", "größe"]),
        np.array([["a", None], [1, 2.5]], dtype=object),
        np.array(["2024-01-01"], dtype="M8[D]"),
        np.array([True, False]),
        X + 1j,
    ):
        again = round_trip(array, tmp_path)
        np.testing.assert_array_equal(again, array)
        assert (again.dtype, again.shape) == (array.dtype, array.shape)
        assert again.flags.writeable
        assert again.flags.f_contiguous or not array.flags.f_contiguous


def test_arrays_of_other_machines_come_back_as_this_one_has_them(tmp_path):
    again = round_trip(X.astype(">f4"), tmp_path)
    np.testing.assert_array_equal(again, X.astype(np.float32))
    assert again.dtype.isnative


@pytest.mark.parametrize(
    "make",
    [sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array],
)
def test_sparse_matrices_come_back(make, tmp_path):
    matrix = make(sparse.random_array((7, 5), density=0.4, rng=0))
    again = round_trip(matrix, tmp_path)
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())
    assert isinstance(again, sparse.sparray) == isinstance(matrix, sparse.sparray)
    assert again.format == (matrix.format if matrix.format != "coo" else "csr")


@pytest.mark.parametrize("cls", [FaissBackend, PyNNDescentBackend])
def test_indices_of_neighbours_are_made_again(cls, tmp_path):
    backend = cls(X, 0, None)
    backend._index = backend._quantizer = object()
    again = round_trip(backend, tmp_path)
    assert again._index is None
    np.testing.assert_array_equal(again._rows, X)


def test_parts_that_are_one_stay_one(tmp_path):
    shared = [X, ("a",)]
    first, second = round_trip([shared, {"again": shared, "X": X}], tmp_path)
    assert first is second["again"]
    assert first[0] is second["X"]


def test_loops_are_refused(tmp_path):
    loop = []
    loop.append({"a": (loop,)})
    with pytest.raises(TypeError, match=r"value\[0\].*contains itself"):
        save_value(tmp_path / "m", loop)


def test_values_that_are_nested_too_deep_are_refused(tmp_path, model):
    """To hash, print or clone them would overflow the stack."""
    deep = ()
    for _ in range(limits.MAX_DEPTH - 1):
        deep = (deep,)
    assert round_trip(deep, tmp_path) == deep
    for _ in range(50_000):
        deep = (deep,)
    save_value(tmp_path / "p", deep)
    refused_value(tmp_path / "p", "nested more than 50 levels deep")
    model.reg = deep
    with pytest.raises(ModelError, match=r"nested more than 50 levels deep.*Check its parameters"):
        save_model(tmp_path / "m", model)


def test_values_that_are_larger_than_their_file_are_refused(tmp_path):
    """Sixty tuples, each with the previous one twice, expand to 2^60 values."""
    value = "x" * 10**5
    for _ in range(6):
        value = (value, value)
    assert round_trip(value, tmp_path) == value
    for _ in range(12):
        value = (value, value)
    save_value(tmp_path / "p", value)
    refused_value(tmp_path / "p", r"holds more than 16,777,216 values")
    shared = ["a"] * 1000
    save_value(tmp_path / "p", dict.fromkeys(range(17_000), shared))
    refused_value(tmp_path / "p", r"holds more than 16,777,216 values")


def test_parts_that_nothing_holds_count_as_well(tmp_path):
    save_value(tmp_path / "p", ["x" * 10**6])

    def repeat(text):
        text["nodes"] += [{"is": "list", "items": [{"ref": 0}]}] * 200

    edit(tmp_path / "p", repeat)
    refused_value(tmp_path / "p", r"holds more than 16,777,216 values")


def test_integers_are_of_64_bits(tmp_path):
    for value in (2**64, -(2**63) - 1, [10**400]):
        with pytest.raises(TypeError, match=r"value.* an integer of more than 64 bits"):
            save_value(tmp_path / "m", value)
    save_value(tmp_path / "m", [1])
    edit(tmp_path / "m", lambda text: find(text, "list").update(items=[10**400]))
    refused_value(tmp_path / "m", "integer of more than 64 bits")


@dataclass
class Outside:
    a: int = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Outside(), "value is a .*Outside"),
        ([1, {"x": np.array([Outside()])}], r"value\[1\]\['x'\] is an array of objects"),
        (np.zeros(2, dtype="i4,f4"), "is an array of"),
        ({(1, (2,)): 0}, "key of type tuple"),
        ({(1, 2, 3): 0}, "key of type tuple"),
        (np.random.default_rng(0), "is a Generator"),
        (os.system, "is a function"),
        (print, "is a function"),
        (int, "is a function"),
        (2j, "builtins.complex"),
        (sparse.coo_array(np.ones(3)), "of 1 dimensions"),
        (np.ma.masked_array([1.0]), "MaskedArray"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:30],
)
def test_other_values_are_refused(value, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        save_value(tmp_path / "m", value)
