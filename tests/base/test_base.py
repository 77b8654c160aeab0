"""The estimator base: callbacks, restarts, and messages that name argument, value and remedy."""

import numpy as np
import pytest
from scipy import sparse

import volmar
from volmar._checks import check_choice, check_count, check_number
from volmar._input import check_matrix
from volmar._weights import check_sample_weight
from volmar.base.clusterer import Clusterer, two_column_scores
from volmar.base.outcome import fit_steps
from volmar.base.validation import check_n_clusters, check_start_labels
from volmar.solvers import Result, Status


class Halves(Clusterer):
    """Splits on the sign of the first feature; start j reports an objective of |j - 2|."""

    def __init__(self, n_clusters=2, *, n_init=4, random_state=None):
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, X, y=None, sample_weight=None):
        self._runs = []
        return self._fit(X, sample_weight)

    def _check_parameters(self):
        check_count("n_init", self.n_init)

    def _problem(self, X, weights):
        return X

    def _run(self, problem, seed):
        from dataclasses import make_dataclass

        number = len(self._runs)
        self._runs.append(seed)
        kind = make_dataclass("R", [("labels", object, None)], bases=(Result,), frozen=True)
        return kind(
            objective=abs(number - 2.0), n_iter=number, labels=(problem[:, 0] > 0).astype(int)
        )

    def _scores(self, X):
        return X[:, 0]


@pytest.fixture
def X(rng):
    return rng.standard_normal((30, 2))


def test_the_best_start_is_kept(X):
    model = Halves(random_state=0).fit(X)
    assert model.objective_ == 0.0
    assert model.n_iter_ == 2
    assert len(set(model._runs)) == 4
    assert Halves(random_state=0).fit(X)._runs == model._runs
    assert Halves(random_state=1).fit(X)._runs != model._runs
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.fit_predict(X), model.labels_)


class Recorder:
    """A callback that records its calls and requests a stop after `stop_after` steps."""

    def __init__(self, stop_after=None):
        self.heard = []
        self.stop_after = stop_after

    def setup(self, estimator, context):
        self.heard.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.heard.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context):
        self.heard.append(f"end {context.task_name}")
        n_ended = sum(word.startswith("end start") for word in self.heard)
        return self.stop_after is not None and n_ended >= self.stop_after

    def teardown(self, estimator, context):
        self.heard.append("teardown")


def test_callbacks_hear_every_start(X):
    pytest.importorskip("sklearn.callback", reason="callbacks came with scikit-learn 1.9")
    recorder = Recorder()
    Halves().set_callbacks(recorder).fit(X)
    starts = [f"{word} start {j}" for j in range(4) for word in ("begin", "end")]
    assert recorder.heard == ["setup", "begin fit", *starts, "end fit", "teardown"]


def test_a_callback_can_stop_the_starts(X):
    pytest.importorskip("sklearn.callback", reason="callbacks came with scikit-learn 1.9")
    model = Halves().set_callbacks(Recorder(stop_after=2)).fit(X)
    assert len(model._runs) == 2
    assert model.objective_ == 1.0


class ParameterRecorder(Recorder):
    """A callback that records the parameters of the estimator that it is called with."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_fit_task_begin(self, estimator, context):
        self.seen.append((estimator, estimator.get_params(deep=False)))


@pytest.mark.parametrize(
    "model",
    [
        volmar.CPMMC(init=volmar.MSPC(random_state=0), random_state=0),
        volmar.KernelCPMMC(3, gamma="auto", random_state=0),
        volmar.SKMMC(gamma="auto", random_state=0),  # fits again with the chosen width
    ],
    ids=["init", "adopted width", "width"],
)
def test_parameters_never_change_during_a_fit(model, rng):
    pytest.importorskip("sklearn.callback", reason="callbacks came with scikit-learn 1.9")
    X = rng.standard_normal((120, 2)) + np.repeat([[0.0, 9.0], [9.0, 0.0], [9.0, 9.0]], 40, axis=0)
    if isinstance(getattr(model, "init", None), volmar.MSPC):
        model.init.fit(X)
    before, recorder = model.get_params(deep=False), ParameterRecorder()
    model.set_callbacks(recorder).fit(X)
    assert recorder.seen
    for seen, params in recorder.seen:
        assert seen is model
        assert {name: id(value) for name, value in params.items()} == {
            name: id(value) for name, value in before.items()
        }
    private = {name for name in vars(model) if name.startswith("_") and name != "_skl_callbacks"}
    assert not private & {"_user_model", "_previous", "_keeps_sizes", "_callback_fit_ctx"}


def test_a_fit_replaces_the_previous_one_only_when_it_is_complete(X):
    model = Halves(random_state=0).fit(X)
    labels, seen = model.labels_, []

    def score_during_the_fit(problem, seed):
        seen.append(model.labels_ is labels)
        return run(problem, seed)

    run = model._run
    model._run = score_during_the_fit
    model.fit(X)
    assert seen == [True] * 4
    assert model.labels_ is not labels
    del model._run
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((20, 2), np.nan))
    assert not hasattr(model, "labels_")  # no fit of other rows under the new parameters


def test_without_callback_support_steps_are_a_plain_range():
    assert list(fit_steps(object(), None, 3)) == [0, 1, 2]


def test_numbers_of_clusters_that_are_refused(X):
    with pytest.raises(ValueError, match=r"^n_clusters=5"):
        check_n_clusters(5, 4)
    with pytest.raises(ValueError, match=r"^n_clusters .*got 0"):
        Halves(0).fit(X)
    with pytest.raises(TypeError, match=r"^n_clusters .*integer"):
        Halves(2.0).fit(X)


def test_one_cluster_is_all_rows(X):
    model = Halves(1).fit(X)
    assert not model.labels_.any()
    assert not model.predict(X).any()
    assert model.decision_function(X).shape == (30,)
    assert model.objective_ == 0.0
    assert not model._runs


def test_two_columns_become_a_sign():
    scores = np.array([[1.0, 3.0], [2.0, 0.5]])
    np.testing.assert_array_equal(two_column_scores(scores), [2.0, -1.5])
    assert two_column_scores(np.ones((4, 3))).shape == (4, 3)
    np.testing.assert_array_equal(two_column_scores(np.ones((4, 1))), np.zeros(4))


@pytest.mark.parametrize("name", volmar.CLUSTERERS)
def test_scores_of_one_cluster_are_one_column(name, rng):
    X = rng.standard_normal((20, 2))
    model = getattr(volmar, name)(1, random_state=0).fit(X)
    assert model.decision_function(X).shape == (20,)
    np.testing.assert_array_equal(model.predict(X), np.zeros(20))


@pytest.mark.parametrize("name", volmar.CLUSTERERS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_clusters_do_not_depend_on_the_order_in_memory_or_a_common_unit(name):
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        groups = 2.0 * rng.standard_normal((3, 4))[rng.integers(3, size=60)]
        X = groups + rng.standard_normal((60, 4)) * rng.uniform(0.5, 2.0, 4)
        one = getattr(volmar, name)(random_state=0).fit(X)
        for same in (np.asfortranarray(X), 64.0 * X, np.asfortranarray(X / 1024.0)):
            labels = getattr(volmar, name)(random_state=0).fit(same).labels_
            np.testing.assert_array_equal(labels, one.labels_)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: check_choice("how", "x", ["a", "b"]), ValueError, "how must be one of 'a', 'b'"),
        (lambda: check_choice("how", 3, ["a"]), ValueError, "got 3"),
        (lambda: check_count("n", True), TypeError, "n must be an integer"),
        (lambda: check_count("n", 0), ValueError, "n must be at least 1, got 0"),
        (lambda: check_count("n", 9, high=5), ValueError, "^n .*got 9"),
        (lambda: check_number("C", "1"), TypeError, "C must be a number, got '1'"),
        (lambda: check_number("C", 0, low=0, open_low=True), ValueError, "greater than 0, got 0"),
        (lambda: check_number("C", 3, low=0, high=2), ValueError, "at least 0 and at most 2"),
        (lambda: check_number("C", np.nan), ValueError, "C must be finite, got nan"),
        (lambda: check_number("C", np.inf, low=0), ValueError, "got inf"),
        (lambda: check_sample_weight([1, 2], 3), ValueError, r"shape \(3,\), got shape \(2,\)"),
        (lambda: check_sample_weight([1, -1], 2), ValueError, "finite and not negative"),
        (lambda: check_sample_weight([1, np.nan], 2), ValueError, "finite and not negative"),
        (lambda: check_sample_weight([0, 0], 2), ValueError, "positive entry"),
        (lambda: check_start_labels("init", [0, 1], 3, 2), ValueError, "init must hold one label"),
        (
            lambda: check_start_labels("init", [0, 0], 2, 2),
            ValueError,
            "2 different labels, got 1",
        ),
    ],
)
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_values_that_pass():
    assert check_number("C", 2, low=0) == 2.0
    assert check_count("n", np.int64(3)) == 3
    assert check_sample_weight(None, 3) is None
    np.testing.assert_array_equal(check_sample_weight(2, 3), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(check_start_labels("init", ["b", "a", "b"], 3, 2), [1, 0, 1])


def test_result_certifies_itself():
    good = Result(objective=10.0, gap=1e-9, residuals={"kkt": 1e-9})
    assert good.is_certified(1e-8)
    assert not Result(objective=10.0, gap=1e-3).is_certified(1e-8)
    assert not Result(objective=10.0, gap=0.0, residuals={"kkt": 1.0}).is_certified(1e-8)
    assert not Result(objective=10.0, gap=0.0, residuals={"kkt": np.nan}).is_certified(1e-8)
    assert not Result(objective=10.0, gap=0.0, status=Status.MAX_ITER).is_certified(1e-8)
    with pytest.raises(TypeError):
        good.residuals["kkt"] = 0.0
    with pytest.raises(AttributeError):
        good.objective = 0.0


def test_what_is_undefined_is_not_proved():
    assert not Result(objective=5.0).is_certified(0.0)
    assert not Result(objective=5.0, residuals={"kkt": 0.0}).is_certified(1.0)
    assert not Result(objective=5.0).is_stationary(1.0)
    assert not Result(objective=5.0, gap=0.0).is_stationary(1.0)
    assert not Result(objective=5.0, residuals={"a": 0.0, "b": np.nan}).is_stationary(1.0)
    stationary = Result(objective=5.0, residuals={"kkt": 1e-9}, status=Status.MAX_ITER)
    assert stationary.is_stationary(1e-8)
    assert not stationary.is_stationary(1e-10)


def test_a_result_without_a_problem_cannot_be_checked():
    with pytest.raises(TypeError, match="Result does not support check"):
        Result(objective=5.0).check(None)


def test_result_is_short_on_screen():
    from volmar.baselines.kernel_kmeans import KernelKMeansResult

    result = KernelKMeansResult(
        objective=1.0, residuals={"moves": 0.0}, history=(4.0, 3.0, 2.0, 1.0), labels=np.zeros(9)
    )
    text = repr(result)
    assert len(text) < 250
    assert "labels=<array of shape (9,)>" in text
    assert "history=<4 values, last 1>" in text
    assert "status=CONVERGED" in text


def test_nan_is_refused_by_name(X):
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        Halves().fit(X)


def test_nan_is_no_start_label():
    with pytest.raises(ValueError, match="init holds NaN"):
        check_start_labels("init", [0.0, 1.0, np.nan], 3, 2)


def test_a_refused_parameter_leaves_no_old_fit(X):
    model = volmar.IterSVR(random_state=0).fit(X)
    with pytest.raises(ValueError, match="tol"):
        model.set_params(tol=-1.0).fit(X)
    assert not hasattr(model, "labels_")


# ------------------------------------------------------------------ sparse input

TAKES_SPARSE = [
    name
    for name in (*volmar.CLUSTERERS, "MinimaxProbabilityMachine", "VolumeRegularizedClassifier")
    if getattr(volmar, name)().__sklearn_tags__().input_tags.sparse
]


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("name", TAKES_SPARSE)
def test_64_bit_indices_are_taken(name, kind, rng):
    X = np.abs(rng.standard_normal((60, 6)))
    X[:30, :3] = X[30:, 3:] = 0.0
    y = np.repeat([0, 1], 30)
    short = kind(X)
    long = kind(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    here = getattr(volmar, name)(random_state=0).fit(short, y)
    there = getattr(volmar, name)(random_state=0).fit(long, y)
    np.testing.assert_array_equal(there.predict(long), here.predict(short))
    assert long.indices.dtype == long.indptr.dtype == np.int64  # the user's matrix is not touched


def test_more_entries_than_32_bits_can_count_stay():
    wide = sparse.csr_array((np.ones(2), np.array([0, 2**31]), np.array([0, 1, 2])))
    assert check_matrix(wide) is wide
