"""scikit-learn's own checks on every public estimator, with the number that ran asserted."""

import warnings
from collections import Counter

import pytest
from sklearn.utils.estimator_checks import check_estimator

import volmar
from volmar.table_clusterer.estimator import clusterer_names

ESTIMATORS = [name for name in volmar.__all__ if name[0].isupper()]

RACE = (
    "the race of starts draws rows, and a row written twice is not drawn as one of weight 2; from "
    "given labels it is the same, and test_mspc.py checks that"
)

STARTS = (
    "starts are drawn, and a row written twice is not drawn as one of weight 2; from given labels "
    "it is the same, and test_cpmmc.py, test_skmmc.py and test_iter_svr.py check that"
)


# Checks that cannot pass, each with the reason. Anything else that fails fails the suite.
EXPECTED_FAILURES: dict[str, dict[str, str]] = {
    **{
        name: {
            "check_sample_weight_equivalence_on_dense_data": STARTS,
            "check_sample_weight_equivalence_on_sparse_data": STARTS,
        }
        for name in ("CPMMC", "KernelCPMMC", "SKMMC")
    },
    "MSPC": {
        "check_sample_weight_equivalence_on_dense_data": RACE,
        "check_sample_weight_equivalence_on_sparse_data": RACE,
    },
    "VolumeRegularizedClassifier": {
        "check_classifiers_classes": "has a class -1, the mark of an unlabelled row here as in "
        "LabelSpreading, which the check leaves out by its name",
    },
}

# Checks that scikit-learn itself skips, each with the reason why this hides no defect.
EXPECTED_SKIPS = {
    "check_array_api_input": "no estimator claims array API support",
}

# Number of checks of a clusterer in the pinned scikit-learn. A lower number means that checks
# were silently dropped; a higher one is fine.
AT_LEAST = 40


# The same code with fewer iterations or a given width. The defaults are checked every night.
CHEAPER = {
    "HardLabelMVC": {"max_iter": 50},
    "SDPMMC": {"max_iter": 50},
    "KernelCPMMC": {"gamma": "scale"},
    "SKMMC": {"gamma": "scale"},
}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        *((name, CHEAPER.get(name, {})) for name in ESTIMATORS),
        *(pytest.param(name, {}, marks=pytest.mark.nightly) for name in CHEAPER),
    ],
)
def test_scikit_learn_checks(name, given):
    estimator = getattr(volmar, name)(random_state=0, **given)
    with warnings.catch_warnings():
        # Checks fit to noise and constants, for which the methods warn.
        warnings.simplefilter("ignore")
        results = check_estimator(
            estimator,
            expected_failed_checks=EXPECTED_FAILURES.get(name, {}),
            on_skip=None,
            on_fail=None,
        )
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    skipped = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "skipped"}
    assert {k: v for k, v in skipped.items() if k not in EXPECTED_SKIPS} == {}
    expected = set(EXPECTED_FAILURES.get(name, {}))
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == expected
    assert Counter(r["status"] for r in results)["passed"] >= AT_LEAST


@pytest.mark.parametrize("name", clusterer_names())
def test_first_parameter_is_n_clusters_and_the_rest_are_keywords(name):
    import inspect

    parameters = list(inspect.signature(getattr(volmar, name)).parameters.values())
    assert parameters[0].name == "n_clusters"
    assert parameters[0].default == ("auto" if name == "AutoClusterer" else 2)
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters[1:])
    assert "random_state" in {p.name for p in parameters}
