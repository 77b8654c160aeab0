"""Checks of rows and labels for which scikit-learn and NumPy have unclear messages."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from volmar import (
    CPMMC,
    MSPC,
    KernelCPMMC,
    MinimaxProbabilityMachine,
    SoftLabelMVC,
    VolumeRegularizedClassifier,
)


def test_columns_of_the_same_name_are_refused_by_name():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(9, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match=r"^X .*X.to_numpy\(\)"):
        MSPC(2).fit(X)


def test_a_message_about_complex_rows_does_not_hold_them():
    X = np.random.default_rng(0).normal(size=(200, 20)) + 1j
    with pytest.raises(ValueError, match="Complex data not supported: X must hold real") as caught:
        CPMMC(2).fit(X)
    assert len(str(caught.value)) < 200


def test_many_classes_are_no_reason_for_scikit_learns_warning():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30)
    with warnings.catch_warnings(action="error"):
        VolumeRegularizedClassifier().fit(X, y)
        with pytest.raises(ValueError, match="Only binary classification"):
            MinimaxProbabilityMachine().fit(X, y)


@pytest.mark.parametrize("Q", [True, type, lambda W: None, np.ones(4)])
def test_a_matrix_q_that_is_none_is_named(Q):
    with pytest.raises(ValueError, match=r"^Q .*symmetric"):
        SoftLabelMVC(Q=Q).fit(np.random.default_rng(0).normal(size=(9, 2)))


@pytest.mark.parametrize("kernel", ["chi2", "additive_chi2"])
def test_kernels_without_sparse_support_are_refused(kernel):
    X = sparse.csr_array(np.random.default_rng(0).uniform(size=(12, 2)))
    with pytest.raises(TypeError, match=f"kernel='{kernel}' does not support sparse X"):
        KernelCPMMC(kernel=kernel, gamma=1.0).fit(X)


def test_messages_of_scikit_learn_do_not_hold_all_rows():
    row = np.random.default_rng(0).normal(size=900)
    with pytest.raises(ValueError, match=r"^Expected 2D array") as caught:
        MSPC(2).fit(row)
    assert len(str(caught.value)) < 1000
