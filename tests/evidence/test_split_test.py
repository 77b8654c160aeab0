"""The test of a split, and its stability: known answers, held-out rows, bad input."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
from helpers.groups import blobs
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.datasets import make_moons
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from volmar import CPMMC, MSPC, KernelCPMMC, SoftLabelMVC
from volmar.datasets import make_two_circles
from volmar.diagnostics import stability
from volmar.evidence import held_out, split_test
from volmar.evidence.held_out import DIRECTION, PAIR
from volmar.evidence.humps import HumpTest, deepest_valley

# The function has replaced its module as an attribute of the package.
MODULE = importlib.import_module("volmar.evidence.split_test")


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(3).normal(size=(240, 4))


# ---------------------------------------------------------------------- the test of a split


def test_blobs_are_real():
    result = split_test(blobs(), random_state=0)
    assert result.is_real
    assert result.p_value < 0.01
    # Per split in halves: one p-value of the direction, on which both agree, two of the pair.
    assert len(result.p_values) == 9
    assert result.separation > 0.85
    assert result.disagreement < 0.02
    # Both halves call the same side the upper one, and zero is between the sides.
    moved = np.arange(240) < 120
    side = result.scores > 0
    assert max(np.mean(side == moved), np.mean(side != moved)) > 0.98
    assert 0.8 < abs(result.scores[moved].mean() - result.scores[~moved].mean()) / 2 < 1.2


def test_noise_is_kept(noise):
    result = split_test(noise, random_state=0)
    assert not result.is_real
    assert result.p_value > 0.3
    assert result.separation < 0.75
    assert result.disagreement > 0.1


def test_one_hump_is_rarely_split():
    """Skewed, heavy-tailed and correlated rows; the level is 0.05."""
    rejected = 0
    for seed in range(21):
        rng = np.random.default_rng(seed)
        X = [
            rng.exponential(size=(120, 3)),
            rng.normal(size=(120, 3)),
            rng.standard_t(4, (120, 3)),
        ]
        X = X[seed % 3]
        X[:, 2] += X[:, 1]
        rejected += split_test(X, n_splits=1, random_state=seed).is_real
    assert rejected <= 3


def test_a_small_group_is_real():
    X = blobs(500, share=0.08, distance=7.0)
    result = split_test(X, n_splits=1, random_state=0)
    assert result.is_real
    # The split cuts off the small group, not the rows above the mean.
    above = np.mean(result.scores > deepest_valley(result.scores))
    assert min(above, 1 - above) == pytest.approx(0.08, abs=0.01)


def test_a_kernel_sees_what_no_hyperplane_shows():
    X, _ = make_two_circles(300, noise=0.03, factor=0.3, random_state=0)
    assert not split_test(X, MSPC(), random_state=0).is_real
    assert split_test(X, KernelCPMMC(), random_state=0).is_real


@pytest.mark.parametrize(
    "estimator",
    [
        MSPC(),
        CPMMC(),
        KMeans(2, n_init=2),
        make_pipeline(StandardScaler(), MSPC()),
        make_pipeline(PCA(2), KMeans(2, n_init=2)),
        make_pipeline(KMeans(2, n_init=2)),
    ],
    ids=lambda estimator: str(estimator).replace("\n", ""),
)
def test_estimators_of_every_kind(estimator, noise):
    before = repr(estimator.get_params())
    options = {"n_splits": 1, "random_state": 1}
    first, second = (split_test(blobs(), estimator, **options) for _ in range(2))
    assert first.is_real
    assert first.disagreement < 0.05
    assert first.p_values == second.p_values
    np.testing.assert_array_equal(first.scores, second.scores)
    assert not split_test(noise, estimator, **options).is_real
    assert repr(estimator.get_params()) == before
    assert not hasattr(estimator, "n_features_in_")


class Linear(ClusterMixin, BaseEstimator):
    """Cuts the second feature at 3; which attributes it exposes is a parameter."""

    def __init__(self, coef=(0.0, 1.0, 0.0, 0.0)):
        self.coef = coef

    def fit(self, X, y=None):
        self.coef_, self.intercept_ = np.asarray(self.coef), -3.0
        return self


@pytest.mark.parametrize("coef", [(0.0, 1.0, 0.0, 0.0), ((0.0, 1.0, 0.0, 0.0),)])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_scores_by_coefficients(coef, convert):
    X = blobs()
    result = split_test(convert(X), Linear(coef), n_splits=1, random_state=0)
    np.testing.assert_allclose(
        result.scores, (X[:, 1] - X[:, 1].mean()) / X[:, 1].std(), rtol=1e-9, atol=1e-9
    )
    assert result.disagreement == 0


def test_centres_give_the_side_of_the_nearer_one():
    """A mean far from zero: squared norms in single precision would lose the sides."""
    X = (blobs(distance=8.0) + 3e4).astype(np.float32)
    model = KMeans(2, n_init=2, random_state=0)
    scorer = MODULE._learnt(X, model, np.random.default_rng(0)).scores
    centers = KMeans(2, n_init=2, random_state=0).fit(X).cluster_centers_.astype(np.float64)
    distances = np.linalg.norm(X[:, None].astype(np.float64) - centers, axis=2)
    np.testing.assert_array_equal(scorer(X) > 0, distances[:, 1] < distances[:, 0])
    np.testing.assert_allclose(
        2 * scorer(X), distances[:, 0] ** 2 - distances[:, 1] ** 2, atol=1e-2
    )


def halves_of(n, seed):
    rng = np.random.default_rng(check_random_state(seed).randint(2**31 - 1))
    order = rng.permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


@pytest.mark.parametrize("estimator", [None, MSPC(), KMeans(2, n_init=1)])
def test_a_half_has_no_part_in_its_own_scores(estimator, monkeypatch, noise):
    scorers = []

    def spied(learn):
        def learn_and_keep(*arguments):
            found = learn(*arguments)
            scorers.append(found.scores)
            return found

        return learn_and_keep

    direction = replace(DIRECTION, learn=spied(DIRECTION.learn))
    monkeypatch.setattr(MODULE, "LINEAR", (direction, PAIR))
    monkeypatch.setattr(MODULE, "_learnt", spied(MODULE._learnt))
    X = blobs()
    other = X.copy()
    first_half, second_half = halves_of(len(X), 5)
    other[first_half] = 2 + noise[first_half] @ np.diag([1.0, 4.0, 2.0, 9.0])
    for rows in (X, other):
        split_test(rows, estimator, n_splits=1, random_state=5)
    (of_first, of_second), (of_other, again) = scorers[:2], scorers[2:]
    np.testing.assert_array_equal(of_second(noise), again(noise))
    assert not np.allclose(of_first(noise), of_other(noise))
    # The scores of the first half are those of the second half's scorer, in standard deviations.
    scores = split_test(X, estimator, n_splits=1, random_state=5).scores
    for half, scorer in ((first_half, of_second), (second_half, of_first)):
        expected = (scorer(X[half]) - scorer(X).mean()) / scorer(X).std()
        assert min(abs(scores[half] - expected).max(), abs(scores[half] + expected).max()) < 1e-9


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.astype(np.float32),
        sparse.csr_matrix,
        sparse.csc_array,
        lambda X: X.tolist(),
        lambda X: 1e90 * X,
        lambda X: 1e-90 * X,
        lambda X: np.hstack([X, np.full((len(X), 2), 5.0)]),
        lambda X: X * np.array([1e-8, 1.0, 1e8, 1.0]),
        lambda X: X[:, [1]],
        np.asfortranarray,
        lambda X: np.round(10 * X).astype(int),
    ],
    ids=["f4", "csr", "csc", "list", "huge", "tiny", "constant", "mixed", "one", "F", "int"],
)
def test_rows_of_every_kind(change, noise):
    assert split_test(change(blobs()), n_splits=1, random_state=0).p_value < 0.01
    assert split_test(change(noise), n_splits=1, random_state=0).p_value > 0.05


def test_the_rows_are_left_alone():
    X = blobs()
    before = X.copy()
    X.setflags(write=False)
    split_test(X, n_splits=1, random_state=0)
    split_test(X, KMeans(2, n_init=1), n_splits=1, random_state=0)
    stability(X, KMeans(2, n_init=1), n_resamples=2, random_state=0)
    np.testing.assert_array_equal(X, before)


def test_random_states():
    X = blobs(120, distance=3.0)
    by_number, again, by_state, other = (
        split_test(X, n_splits=1, random_state=seed)
        for seed in (7, 7, np.random.RandomState(7), 8)
    )
    for same in (again, by_state):
        assert same.p_values == by_number.p_values
        np.testing.assert_array_equal(same.scores, by_number.scores)
    assert not np.allclose(abs(other.scores), abs(by_number.scores))
    state = np.random.get_state()[1].copy()
    split_test(X, KMeans(2, n_init=1), n_splits=1, random_state=7)
    np.testing.assert_array_equal(np.random.get_state()[1], state)


class Seeds(Linear):
    """Remembers which seeds it was fitted with."""

    seen: list = []  # noqa: RUF012 -- shared on purpose

    def __init__(self, random_state=None):
        self.random_state = random_state

    coef = (0.0, 1.0, 0.0, 0.0)

    def fit(self, X, y=None):
        self.seen.append(self.random_state)
        return super().fit(X)


def test_a_seed_of_the_estimator_stays():
    Seeds.seen.clear()
    split_test(blobs(), Seeds(random_state=3), n_splits=1, random_state=0)
    assert Seeds.seen == [3, 3]
    split_test(blobs(), make_pipeline(StandardScaler(), Seeds()), n_splits=1, random_state=0)
    assert len(set(Seeds.seen[2:])) == 2
    assert None not in Seeds.seen


def test_splits_and_levels():
    X = blobs()
    few, more = (split_test(X, n_splits=k, random_state=0) for k in (1, 2))
    assert len(few.p_values) == 3
    assert len(more.p_values) == 6
    assert more.p_values[:3] == few.p_values
    np.testing.assert_array_equal(more.scores, few.scores)
    # A level that 2,000 draws could not reach has more of them: the minimum is below a quarter.
    strict = split_test(X, alpha=0.001, n_splits=1, random_state=0)
    assert strict.is_real
    assert strict.p_values[0] == 1 / 5716
    assert strict.p_value == strict.p_minimum == 1 / 5716 / 0.7 <= 0.001 / 4


def test_many_rows_are_split_once(monkeypatch):
    monkeypatch.setattr(MODULE, "LARGE", 240)
    assert len(split_test(blobs(), random_state=0).p_values) == 3


def test_one_row_that_differs_is_no_group():
    X = np.ones((100, 3))
    X[4] = 0.0
    result = split_test(X, random_state=0)
    assert result.p_value == 1.0
    assert np.isfinite(result.scores).all()


def test_words(noise):
    real = split_test(blobs(), n_splits=1, random_state=0)
    assert str(real) == (
        "There is more than one group (p ≤ 0.00072, level 0.05): held-out rows have a gap where "
        "the other half of the rows was split. The two halves disagree about "
        f"{100 * real.disagreement:.0f} % of the rows."
    )
    assert real.p_value == real.p_minimum == pytest.approx(1 / 2001 / 0.7)
    plain = replace(real, p_minimum=0.0)
    assert str(plain).startswith("There is more than one group (p = 0.00071, level 0.05): ")
    kept = split_test(noise, n_splits=1, random_state=0)
    assert str(kept).startswith("No evidence for more than one group (p = ")
    assert "level 0.05" in str(kept)
    assert "scores" not in repr(real)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_splits": 0}, ValueError, "^n_splits .*got 0"),
        ({"n_splits": 1.5}, TypeError, "n_splits must be an integer"),
        ({"alpha": 0}, ValueError, "^alpha .*got 0"),
        ({"alpha": 1.5}, ValueError, "^alpha .*got 1.5"),
        ({"alpha": float("nan")}, ValueError, "alpha"),
        ({"alpha": "small"}, TypeError, "^alpha .*got 'small'"),
        ({"random_state": "zero"}, ValueError, "^random_state"),
        ({"X": blobs(79)}, ValueError, "^X .*least 80"),
        ({"X": np.ones((90, 2))}, ValueError, "all 90 rows of X"),
        ({"X": sparse.csr_array((90, 2))}, ValueError, "all 90 rows of X"),
        ({"X": blobs() * np.nan}, ValueError, "Input X contains NaN"),
        ({"X": np.append(blobs(), [[np.inf] * 4], 0)}, ValueError, "Input X contains infinity"),
        ({"X": 1e160 * blobs()}, ValueError, "^X .*magnitude"),
        ({"X": np.arange(100.0)}, ValueError, "Expected 2D array"),
        ({"estimator": KMeans(3)}, ValueError, "^estimator .*n_clusters=3"),
        ({"estimator": MSPC(1)}, ValueError, "MSPC has n_clusters=1"),
        ({"estimator": MSPC("auto")}, ValueError, "MSPC has n_clusters='auto'"),
        ({"estimator": make_pipeline(PCA(2), MSPC(4))}, ValueError, "MSPC has n_clusters=4"),
        ({"estimator": MSPC}, TypeError, "^estimator .*class MSPC"),
        ({"estimator": "kmeans"}, TypeError, "^estimator .*got str"),
        ({"estimator": MSPC(kernel="precomputed")}, ValueError, "^estimator .*precomputed"),
        (
            {"estimator": StandardScaler()},
            TypeError,
            "^estimator .*decision_function",
        ),
        ({"estimator": GaussianMixture(3)}, ValueError, "^estimator .*GaussianMixture"),
        ({"estimator": Linear(np.eye(4))}, ValueError, "^estimator .*scores"),
        ({"estimator": Linear((np.nan,) * 4)}, ValueError, "Linear returns the score nan"),
    ],
)
def test_bad_input_to_the_split_test(options, error, message):
    options = {"X": blobs(), "random_state": 0, **options}
    with pytest.raises(error, match=message):
        split_test(**options)


# ---------------------------------------------------------------------- curved splits


def bent(n=300, noise=0.1, seed=0):
    """Half a ring: one piece."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, n)
    return np.column_stack([np.cos(angle), np.sin(angle)]) + noise * rng.normal(size=(n, 2))


def test_curved_splits_of_noise_are_not_real():
    """Level of the distances to the border; scores of a graph have additional modes."""
    rejected = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = [rng.normal(size=(200, 2)), rng.exponential(size=(200, 3)), bent(200, seed=seed)]
        rejected += split_test(X[seed % 3], SoftLabelMVC(), n_splits=1, random_state=seed).is_real
    assert rejected == 0


def test_moons_are_real():
    X, y = make_moons(400, noise=0.08, random_state=0)
    told = []
    found = split_test(
        X, SoftLabelMVC(), progress=lambda *where: told.append(where), random_state=0
    )
    assert found.is_real
    assert not found.has_way_around
    assert found.disagreement < 0.1
    assert len(found.p_values) == 3
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert max(np.mean((found.scores > 0) == y), np.mean((found.scores < 0) == y)) > 0.95


def rings():
    X, _ = make_two_circles(400, noise=0.03, factor=0.3, random_state=0)
    return X


@pytest.mark.parametrize(
    "estimator",
    [
        SpectralClustering(2, gamma=20.0),
        AgglomerativeClustering(2, linkage="single"),
        DBSCAN(eps=0.3),
        make_pipeline(StandardScaler(), SoftLabelMVC()),
        make_pipeline(make_pipeline(StandardScaler()), make_pipeline(SoftLabelMVC())),
    ],
    ids=["spectral", "single linkage", "DBSCAN", "pipeline", "nested"],
)
def test_every_clusterer_with_labels_is_tested(estimator):
    first, second = (split_test(rings(), estimator, n_splits=1, random_state=0) for _ in range(2))
    assert first.is_real
    np.testing.assert_array_equal(first.scores, second.scores)


def test_a_mixture_is_tested_by_its_predictions():
    """It has no labels_, and a curved border between a narrow and a wide component."""
    X = blobs(400, distance=8.0, d=2)
    X[:200] *= [3.0, 1.0]
    assert split_test(X, GaussianMixture(2), n_splits=1, random_state=0).is_real
    noise = np.random.default_rng(0).normal(size=(300, 2))
    assert not split_test(noise, GaussianMixture(2), n_splits=1, random_state=0).is_real


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.astype(np.float32),
        sparse.csr_array,
        lambda X: 1e50 * X,
        lambda X: 1e-50 * X,
        lambda X: np.hstack([X, np.full((len(X), 2), 5.0)]),
    ],
    ids=["f4", "csr", "huge", "tiny", "constant"],
)
def test_curved_splits_of_rows_of_every_kind(change):
    result = split_test(change(rings()), SoftLabelMVC(2), n_splits=1, random_state=0)
    plain = split_test(rings(), SoftLabelMVC(2), n_splits=1, random_state=0)
    assert result.is_real
    agreement = np.mean((result.scores > 0) == (plain.scores > 0))
    assert max(agreement, 1 - agreement) > 0.98
    assert not split_test(
        change(np.random.default_rng(1).normal(size=(200, 2))),
        SoftLabelMVC(2),
        n_splits=1,
        random_state=0,
    ).is_real


def test_distances_of_a_pipeline_are_those_of_its_last_step():
    """Two groups in a column of small numbers, beside a column of large ones."""
    X = blobs(300, distance=8.0, d=2) * [1e6, 1.0]
    pipeline = make_pipeline(StandardScaler(), SoftLabelMVC())
    assert split_test(X, pipeline, n_splits=1, random_state=0).is_real


def test_a_ring_has_a_way_around(monkeypatch):
    """A curved split of one piece is not real, even if its scores are bimodal."""
    monkeypatch.setattr(held_out, "hump_test", lambda *_, **__: HumpTest(0.1, 0.01))
    found = split_test(bent(600), SoftLabelMVC(), n_splits=1, random_state=0)
    assert found.p_values == (1.0,)
    assert found.has_way_around
    assert not found.is_real
    assert "rows connect the two sides around the gap" in str(found)
    monkeypatch.setattr(held_out, "has_way_around", lambda *_: False)
    found = split_test(bent(600), SoftLabelMVC(), n_splits=1, random_state=0)
    assert found.is_real
    assert not found.has_way_around


def test_one_cluster_is_no_split():
    """An estimator that puts all rows of a half into one cluster, or a single row apart."""
    X = np.random.default_rng(0).normal(size=(100, 2))
    found = split_test(X, DBSCAN(eps=50), n_splits=1, random_state=0)
    assert found.p_values == (1.0,)
    np.testing.assert_array_equal(found.scores, 0.0)
    X[3] = 30.0
    single = AgglomerativeClustering(2, linkage="single")
    assert not split_test(X, single, n_splits=1, random_state=0).is_real


def test_an_estimator_that_finds_only_noise_is_named(noise):
    with pytest.raises(ValueError, match=r"^estimator .*labelled"):
        split_test(noise, DBSCAN(eps=1e-9, min_samples=2), random_state=0)
