"""Values in model files: what comes back, and what is refused."""

import os
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest
from helpers.models import X
from scipy import sparse

from volmar.graphs.neighbor_backends import FaissBackend, PyNNDescentBackend
from volmar.models import load_model, save_model
from volmar.solvers import Status


def round_trip(value, tmp_path, model):
    save_model(tmp_path / "p", model, preparation=value, force=True)
    return load_model(tmp_path / "p").preparation


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        10**30,
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
def test_plain_values_come_back(value, tmp_path, model):
    again = round_trip(value, tmp_path, model)
    assert type(again) is type(value)
    assert again == value


def test_values_without_equality_come_back(tmp_path, model):
    assert np.isnan(round_trip(float("nan"), tmp_path, model))
    proxy = round_trip(MappingProxyType({"a": 1}), tmp_path, model)
    assert type(proxy) is MappingProxyType
    assert dict(proxy) == {"a": 1}
    assert round_trip(np.str_("a"), tmp_path, model) == "a"
    for array in (
        np.zeros((0, 3)),
        np.array(1.5),
        np.asfortranarray(X),
        X[::2, ::-1],
        np.array(["a", "größe"]),
        np.array([["a", None], [1, 2.5]], dtype=object),
        np.array(["2024-01-01"], dtype="M8[D]"),
        np.array([True, False]),
        X.astype(">f4"),
        X + 1j,
    ):
        again = round_trip(array, tmp_path, model)
        np.testing.assert_array_equal(again, array)
        assert (again.dtype, again.shape) == (array.dtype, array.shape)
        assert again.flags.writeable
        assert again.flags.f_contiguous or not array.flags.f_contiguous


@pytest.mark.parametrize(
    "make",
    [sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array],
)
def test_sparse_matrices_come_back(make, tmp_path, model):
    matrix = make(sparse.random_array((7, 5), density=0.4, rng=0))
    again = round_trip(matrix, tmp_path, model)
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())
    assert isinstance(again, sparse.sparray) == isinstance(matrix, sparse.sparray)
    assert again.format == (matrix.format if matrix.format != "coo" else "csr")


@pytest.mark.parametrize("cls", [FaissBackend, PyNNDescentBackend])
def test_indices_of_neighbours_are_made_again(cls, tmp_path, model):
    backend = cls(X, 0, None)
    backend._index = backend._quantizer = object()
    again = round_trip(backend, tmp_path, model)
    assert again._index is None
    np.testing.assert_array_equal(again._rows, X)


def test_parts_that_are_one_stay_one(tmp_path, model):
    shared = [X, ("a",)]
    first, second = round_trip([shared, {"again": shared, "X": X}], tmp_path, model)
    assert first is second["again"]
    assert first[0] is second["X"]


def test_loops_are_refused(tmp_path, model):
    loop = []
    loop.append({"a": (loop,)})
    with pytest.raises(TypeError, match=r"preparation\[0\].*contains itself"):
        save_model(tmp_path / "m", model, preparation=loop)


def test_nothing_is_too_deep(tmp_path, model):
    deep = ()
    for _ in range(50_000):
        deep = (deep,)
    again = round_trip(deep, tmp_path, model)
    for _ in range(50_000):
        (again,) = again
    assert again == ()


@dataclass
class Outside:
    a: int = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Outside(), "preparation is a .*Outside"),
        ([1, {"x": np.array([Outside()])}], r"preparation\[1\]\['x'\] is an array of objects"),
        (np.zeros(2, dtype="i4,f4"), "is an array of"),
        ({(1, (2,)): 0}, "key of type tuple"),
        (np.random.default_rng(0), "is a Generator"),
        (os.system, "is a function"),
        (print, "is a function"),
        (int, "is a function"),
        (2j, "builtins.complex"),
        (sparse.coo_array(np.ones(3)), "not 2-d"),
        (np.ma.masked_array([1.0]), "MaskedArray"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:30],
)
def test_other_values_are_refused(value, message, tmp_path, model):
    with pytest.raises(TypeError, match=message):
        save_model(tmp_path / "m", model, preparation=value)
