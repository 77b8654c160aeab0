"""Invalid values of every parameter: an error that names the parameter, or a valid fit."""

import inspect
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import volmar
from volmar._checks import check_random_state, shown

ESTIMATORS = (*volmar.CLUSTERERS, "MinimaxProbabilityMachine", "VolumeRegularizedClassifier")
NONSENSE = {
    "object": object(),
    "empty": "",
    "word": "bogus",
    "nan": float("nan"),
    "inf": float("inf"),
    "minus": -1,
    "zero": 0,
    "bool": True,
    "array": np.arange(3.0),
    "matrix": np.ones((2, 2)),
    "list": [1, "a"],
    "dict": {"a": 1},
    "type": int,
    "none": None,
    "numpy int": np.int64(2),
    "numpy float": np.float32(0.5),
    "huge": 10**400,
    "longer": 10**5000,
    "minus huge": -(10**400),
    "complex": 1 + 1j,
    "decimal": Decimal("0.5"),
    "fraction": Fraction(1, 3),
    "tiny": 5e-324,
    "large": 1e308,
    "bytes": b"scale",
}
X = np.random.default_rng(0).normal(size=(24, 2)) + np.repeat([[0.0], [6.0]], 12, axis=0)
Y = np.repeat([0, 1], 12)
PARAMETERS = [
    (name, parameter)
    for name in ESTIMATORS
    for parameter in inspect.signature(getattr(volmar, name)).parameters
]


# Valid values of parameters, with which these rows may have no clusters.
VALID = ("tiny", "large", "numpy int", "numpy float")


def outcome(model):
    """Return the error of a fit with its scores, or None, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, Y)
            assert np.isfinite(model.decision_function(X)).all()
        except (TypeError, ValueError, MemoryError) as error:
            return error, caught
    return None, caught


# With tol=5e-324, semidefinite solvers end at max_iter.
FEW_STEPS = {name: {"max_iter": 100} for name in ("HardLabelMVC", "SDPMMC", "SKMMC")}


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_nonsense_is_an_error_that_names_the_parameter(name, parameter):
    for what, value in NONSENSE.items():
        model = getattr(volmar, name)(
            **{"random_state": 0, **FEW_STEPS.get(name, {}), parameter: value}
        )
        error, caught = outcome(model)
        assert {one.category for one in caught} <= {UserWarning, ConvergenceWarning}, what
        if error is None:
            continue
        assert type(error) in (TypeError, ValueError, MemoryError), what
        assert parameter in str(error) or what in VALID, f"{what}: {error}"
        assert 20 < len(str(error)) < 600, what


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_parameter_that_is_not_used_is_checked_too(name):
    wrong = {"degree": object(), "coef0": "", "gamma": np.nan, "random_state": "bogus"}
    for parameter, value in wrong.items():
        if parameter in inspect.signature(getattr(volmar, name)).parameters:
            with pytest.raises((TypeError, ValueError), match=f"^{parameter} must be"):
                getattr(volmar, name)(**{parameter: value}).fit(X, Y)


def test_a_degree_below_that_of_polynomials_is_named():
    for degree in (0.5, 0, -1):
        with pytest.raises(ValueError, match=r"^degree .*least 1") as caught:
            volmar.KernelKMeans(kernel="poly", degree=degree).fit(X)
        assert caught.type is ValueError  # not an error of scikit-learn


@pytest.mark.parametrize("seed", [-1, 2**32, 10**400, 0.5, np.random.default_rng(0), [0, "a"]])
def test_a_wrong_seed_is_named(seed):
    with pytest.raises(ValueError, match=r"^random_state"):
        check_random_state(seed)


def test_values_of_any_kind_can_be_shown():
    assert shown(10**5000) == "a value of type int"
    assert shown("a\nb" * 100).endswith("...")
    assert len(shown(np.ones((1000, 1000)))) <= 100
