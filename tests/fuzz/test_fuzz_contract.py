"""Tests of the contract: valid calls pass, and violations are found."""

import os
import re
import time
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans

import fuzz.runner
from fuzz.__main__ import NUMBERS, cases_of, main
from fuzz.contract import BrokenContract, Case, fingerprint, keep_contract, require_finite
from fuzz.domains import SHARES, draw_case
from fuzz.domains.functions import ARGUMENTS, FUNCTIONS
from fuzz.parameters import ESTIMATORS, GOOD, names_of


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
        lambda: _raise(ValueError("a message that is long " * 100)),
        lambda: _warn(RuntimeWarning),
        lambda: KMeans(2, n_init=1).fit(np.zeros((4, 1))),
        lambda: np.random.default_rng().random(),
    ],
    ids=[
        *("undocumented", "subclass", "empty", "foreign", "long"),
        *("category of a warning", "author of a warning", "other bits"),
    ],
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


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.sort_indices(),
        lambda X: X.data.setflags(write=False),
        lambda X: setattr(X, "indices", X.indices.astype(np.int64)),
        lambda X: X.data.__setitem__(0, -0.0),
    ],
    ids=["order", "flag", "dtype", "bit"],
)
def test_what_is_inside_of_a_sparse_matrix_is_input_too(change):
    X = sparse.csr_array((np.r_[0.0, 1.0], np.array([1, 0], "i4"), np.array([0, 2], "i4")), (1, 2))
    with pytest.raises(BrokenContract, match="input was changed"):
        keep_contract(Case("", lambda: change(X), (X,)))


def test_objects_are_compared_by_what_they_hold():
    assert fingerprint({"a": [np.ones(2)]}) == fingerprint({"a": [np.ones(2)]})
    assert fingerprint({"a": [np.ones(2)]}) != fingerprint({"a": [np.ones(2) + 1e-16 + 2e-16]})
    assert fingerprint(object()) == fingerprint(object())


def test_a_call_sees_what_it_warned_of():
    case = Case("", lambda: (_warn(UserWarning), len(case.warned))[1], same_bits=False)
    case.check = lambda value: fuzz.contract.require(value == 1, "it saw no warning")
    assert keep_contract(case) == "value"


@pytest.mark.parametrize("domain", SHARES)
def test_a_case_is_drawn_from_its_number_alone(domain):
    assert draw_case(domain, 7).text == draw_case(domain, 7).text
    assert len({draw_case(domain, number).text for number in range(7, 12)}) == 5


def test_a_case_can_be_run_by_its_text():
    case = draw_case("estimators", 7)
    names = {}
    with warnings.catch_warnings(action="ignore"):
        exec(case.text.partition("\nmodel =")[0], names)
    assert fingerprint(names["X"]) == fingerprint(case.inputs[0])


def test_every_parameter_of_an_estimator_is_drawn():
    names = {name for estimator in ESTIMATORS for name in names_of(estimator)} - {"n_clusters"}
    assert names == set(GOOD)
    arguments = {name for text in FUNCTIONS.values() for name in text.split()}
    assert arguments == set(ARGUMENTS)


@pytest.mark.parametrize("n_cases", [1, 7, 500, 20_000])
def test_a_run_has_as_many_cases_as_were_asked_for(n_cases):
    cases = cases_of(3, n_cases)
    assert len(cases) == len(set(cases)) == n_cases


def test_runs_with_different_seeds_share_no_case():
    one, other = (cases_of(seed, NUMBERS, {"estimators": 1.0}) for seed in (4, 5))
    assert len({*one, *other}) == 2 * NUMBERS
    with pytest.raises(ValueError, match="at most 1000000 cases"):
        cases_of(4, NUMBERS + 1)


@pytest.mark.slow
def test_a_crash_and_a_hang_are_findings(monkeypatch):
    monkeypatch.setattr(fuzz.runner, "_serve", _serve_badly)
    monkeypatch.setattr(fuzz.runner, "LIMIT", 1.0)
    monkeypatch.setattr(fuzz.runner, "START", 20.0)
    findings, outcomes = fuzz.runner.run_cases(
        [("kept", 1), ("crash", 2), ("kept", 3), ("hang", 4)]
    )
    assert [(found.kind, found.number) for found in findings] == [("crash", 2), ("hang", 4)]
    assert all("rows = crash" in str(found) for found in findings[:1])
    assert outcomes == {"value": 2}


@pytest.mark.slow
def test_the_command_of_a_finding_repeats_it(monkeypatch, capsys):
    monkeypatch.setattr(fuzz.runner, "_serve", _serve_badly)
    monkeypatch.setitem(SHARES, "broken", 1.0)
    assert main(["--cases", "1", "--seed", "3", "--domain", "broken", "--jobs", "1"]) == 1
    found = capsys.readouterr().out
    command = re.search(r"make fuzz CASE=(\S+)", found)
    assert "labels_ are outside" in found
    assert main(["--case", command[1]]) == 1
    again = capsys.readouterr().out
    assert again.strip() in found
    assert main(["--case", "kept:1"]) == 0


def _serve_badly(pipe):
    while True:
        what, _ = pipe.recv()
        pipe.send(("text", f"rows = {what}"))
        if what == "broken":
            pipe.send(("broken", "labels_ are outside 0 to 1"))
            continue
        if what == "crash":
            os._exit(139)
        if what == "hang":
            time.sleep(60)
        pipe.send(("kept", "value"))
