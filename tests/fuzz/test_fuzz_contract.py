"""The contract itself: what it lets pass, and what it finds."""

import os
import time
import warnings

import numpy as np
import pytest

import fuzz.runner
from fuzz.contract import BrokenContract, Case, keep_contract, require_finite
from fuzz.domains import draw_case


def _raise(error):
    raise error


def _warn(category):
    warnings.warn("something about the input", category, stacklevel=2)


def test_a_value_and_a_documented_exception_keep_it():
    assert keep_contract(Case("", lambda: 1)) == "value"
    error = ValueError("n_clusters must be at least 1, got 0.")
    assert keep_contract(Case("", lambda: _raise(error))) == "ValueError"
    assert keep_contract(Case("", lambda: _warn(UserWarning))) == "value"


@pytest.mark.parametrize(
    "call",
    [
        lambda: _raise(ZeroDivisionError("division by zero in a place")),
        lambda: _raise(np.linalg.LinAlgError("Singular matrix of some kind")),
        lambda: _raise(ValueError("")),
        lambda: _raise(ValueError("array must not contain infs or NaNs")),
        lambda: _warn(RuntimeWarning),
        lambda: np.random.default_rng().random(),
    ],
    ids=["undocumented", "subclass", "empty", "foreign", "foreign warning", "other bits"],
)
def test_everything_else_breaks_it(call):
    with pytest.raises(BrokenContract):
        keep_contract(Case("", call))


def test_a_changed_input_breaks_it():
    X = np.zeros(3)
    with pytest.raises(BrokenContract, match="input was changed"):
        keep_contract(Case("", lambda: X.fill(1.0), (X,)))


def test_numbers_that_are_not_finite_break_it():
    check = lambda value: require_finite("scores", value)  # noqa: E731
    with pytest.raises(BrokenContract, match="scores is not finite"):
        keep_contract(Case("", lambda: {"a": [np.array([1.0, np.nan])]}, check=check))


def test_a_case_is_drawn_from_its_number_alone():
    assert draw_case("estimators", 7).text == draw_case("estimators", 7).text
    assert draw_case("estimators", 7).text != draw_case("estimators", 8).text


@pytest.mark.slow
def test_a_crash_and_a_hang_are_findings(monkeypatch):
    monkeypatch.setattr(fuzz.runner, "_serve", _serve_badly)
    monkeypatch.setattr(fuzz.runner, "LIMIT", 1.0)
    monkeypatch.setattr(fuzz.runner, "START", 20.0)
    findings, outcomes = fuzz.runner.run_cases(
        [("kept", 1), ("crash", 2), ("kept", 3), ("hang", 4)]
    )
    assert [(found.kind, found.number) for found in findings] == [("crash", 2), ("hang", 4)]
    assert outcomes == {"value": 2}


def _serve_badly(pipe):
    while True:
        what, _ = pipe.recv()
        if what == "crash":
            os._exit(139)
        if what == "hang":
            time.sleep(60)
        pipe.send(("kept", "value"))
