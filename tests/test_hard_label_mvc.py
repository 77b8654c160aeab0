"""HardLabelMVC: labels, new rows, what it warns of."""

import warnings

import numpy as np
import pytest

from volmar import HardLabelMVC
from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs import gaussian_similarity
from volmar.metrics import clustering_error


def quiet_fit(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X)


@pytest.mark.parametrize("make", [make_two_gaussians, make_two_circles])
def test_balance_and_centred_rounding_save_the_relaxation(make):
    """Ten draws of 50 rows; as printed the relaxation is far worse."""
    errors = {"default": [], "paper": []}
    for seed in range(10):
        X, y = make(50, random_state=seed)
        for mode, found in errors.items():
            model = quiet_fit(HardLabelMVC(mode=mode, random_state=0), X)
            found.append(clustering_error(y, model.labels_))
            assert model.result_.gap <= 1e-3 * abs(model.objective_)
    assert np.mean(errors["default"]) <= 0.05
    assert np.mean(errors["paper"]) > 0.1


def test_new_rows_and_attributes():
    X, y = make_two_moons(120, random_state=0)
    model = HardLabelMVC(random_state=0).fit(X)
    assert clustering_error(y, model.labels_) == 0
    assert clustering_error(model.labels_, model.predict(X)) <= 0.02
    new, truth = make_two_moons(60, random_state=1)
    assert clustering_error(truth, model.predict(new)) <= 0.05
    assert model.alpha_.shape == (120,)
    assert model.result_.rank >= 1
    assert model.result_.spread < 0.5
    assert np.linalg.norm(model.alpha_) == pytest.approx(1.0, abs=1e-6)


def test_given_similarities_and_random_rounding():
    X, y = make_two_moons(60, random_state=0)
    W = gaussian_similarity(X, sigma="mean/10", self_loops=True)
    named = HardLabelMVC(random_state=0).fit(X)
    given = HardLabelMVC(affinity="precomputed", random_state=0).fit(W)
    np.testing.assert_array_equal(named.labels_, given.labels_)
    random = HardLabelMVC(rounding="random", random_state=0).fit(X)
    assert clustering_error(y, random.labels_) == 0


def test_sparse_similarities_are_taken():
    X, y = make_two_moons(300, random_state=0)
    model = quiet_fit(
        HardLabelMVC(affinity="local_scaling", n_neighbors=10, random_state=0, tol=1e-3), X
    )
    assert clustering_error(y, model.labels_) < 0.1
    assert np.isfinite(model.result_.gap)


def test_an_undetermined_matrix_is_warned_of():
    """Without balance and with similarities everywhere, the best M is all ones."""
    X, _ = make_two_moons(40, random_state=0)
    with pytest.warns(UserWarning, match="does not determine two clusters"):
        HardLabelMVC(balance=None, sigma="2*mean", reg=0.05, random_state=0).fit(X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reg": 1e4}, "reg=10000 is too large"),
        ({"reg": -1.0}, "reg must be"),
        ({"C": 0.01}, "C=0.01 leaves no point"),
        ({"balance": -1.0}, "balance must be"),
        ({"mode": "printed"}, "mode must be one of"),
        ({"rounding": "best"}, "rounding must be one of"),
        ({"n_neighbors": 3}, "n_neighbors=3 has no meaning"),
    ],
)
def test_bad_parameters_are_named(settings, message):
    X, _ = make_two_moons(40, random_state=0)
    with pytest.raises(ValueError, match=message):
        HardLabelMVC(**settings).fit(X)
