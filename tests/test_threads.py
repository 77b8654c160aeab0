"""A fit uses one thread, and restores the numbers of threads afterwards."""

import os
import subprocess
import sys
import threading
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn import get_config
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info, threadpool_limits

import volmar
from volmar import _threads
from volmar._threads import in_jobs, one_thread, user_openmp
from volmar._warn import collecting, warn_user
from volmar.base.clusterer import Clusterer
from volmar.diagnostics import compare_numbers, describe_clusters, stability
from volmar.evidence import label_test, split_test
from volmar.metrics import msp_score
from volmar.report import save_report

# Libraries that always have one thread.
FIXED = set()


def numbers():
    """Return the numbers of threads of the libraries that fits use, without those of the tests."""
    ours = {library.filepath for pool in _threads._pools() for library in pool}
    return {
        (one["filepath"], one["user_api"]): one["num_threads"]
        for one in threadpool_info()
        if one["filepath"] in ours and one["filepath"] not in FIXED
    }


@pytest.fixture
def two_threads():
    """Set two threads per library, regardless of the environment."""
    with threadpool_limits(2):
        FIXED.update(path for (path, _), n in numbers().items() if n != 2)
        before = numbers()
        assert {api for _, api in before} == {"blas", "openmp"}
        yield before
        assert numbers() == before


def test_all_libraries_have_one_thread(two_threads):
    with one_thread():
        assert set(numbers().values()) == {1}
        with one_thread():
            assert set(numbers().values()) == {1}
        assert set(numbers().values()) == {1}
    assert numbers() == two_threads


def test_a_limit_of_the_user_stays(two_threads):
    with threadpool_limits(1):
        with one_thread():
            pass
        assert set(numbers().values()) == {1}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_restored_after_errors(two_threads, error):
    with pytest.raises(error), one_thread(), one_thread():
        raise error
    assert numbers() == two_threads


@pytest.mark.parametrize("interrupted", range(8))
def test_restored_after_an_interrupt_while_limits_are_set(two_threads, interrupted, monkeypatch):
    """Ctrl-C at any call that sets the threads of a library, on entry and on exit."""
    set_numbers, n_calls = _threads._set, 0

    def stopping(wanted):
        nonlocal n_calls
        for library, number in wanted:
            n_calls += 1
            if n_calls == interrupted + 1:
                raise KeyboardInterrupt
            set_numbers([(library, number)])

    monkeypatch.setattr(_threads, "_set", stopping)
    try:
        with one_thread():
            pass
    except KeyboardInterrupt:
        pass
    assert numbers() == two_threads
    assert not _threads._INSIDE.threads
    assert not _threads._HERE.depth


def test_two_python_threads_share_the_limit_of_blas(two_threads):
    """The first thread to leave keeps the limits that the other needs; the last restores all."""
    is_inside, may_leave = threading.Event(), threading.Event()
    blas = {key for key in two_threads if key[1] == "blas"}

    def other():
        with one_thread():
            is_inside.set()
            may_leave.wait(10)

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert is_inside.wait(10)
    now = numbers()
    assert {now[key] for key in blas} == {1}
    may_leave.set()
    thread.join()
    assert numbers() == two_threads


def test_openmp_of_the_user(two_threads):
    with one_thread():
        with user_openmp():
            assert {n for (_, api), n in numbers().items() if api == "openmp"} == {2}
            assert {n for (_, api), n in numbers().items() if api == "blas"} == {1}
        assert set(numbers().values()) == {1}
    with user_openmp():
        assert numbers() == two_threads


@pytest.mark.parametrize("name", ["MSPC", "CPMMC", "KernelKMeans"])
def test_a_fit_runs_on_one_thread(two_threads, name, monkeypatch):
    seen = []
    validate = Clusterer._validate

    def watched(self, X, *, reset):
        seen.append(set(numbers().values()))
        return validate(self, X, reset=reset)

    monkeypatch.setattr(Clusterer, "_validate", watched)
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = getattr(volmar, name)(random_state=0).fit(X)
    model.predict(X)
    assert all(one == {1} for one in seen)
    assert len(seen) > 1
    with pytest.raises(ValueError, match="NaN"):
        getattr(volmar, name)().fit(np.full((20, 2), np.nan))


def test_functions_leave_no_limit(two_threads):
    X = np.random.default_rng(0).normal(size=(100, 3))
    split_test(X, random_state=0)
    msp_score(X, X[:, 0] > 0)
    y = (X[:, 0] > 0).astype(int)
    volmar.MinimaxProbabilityMachine().fit(X, y)
    assert numbers() == two_threads


BITS = """
import hashlib, warnings
import numpy as np
import volmar
from threadpoolctl import threadpool_info
from volmar.metrics import label_free_scores, msp_score, normalized_cut

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(600, 50)) + 3 * rng.normal(size=(3, 50))[rng.integers(3, size=600)]
new = X + 0.01

def show(name, *arrays):
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in arrays))
    print(name, digest.hexdigest())

for name in (
    *("MSPC", "CPMMC", "KernelCPMMC", "KernelKMeans", "LGMMC", "IterSVR", "LDAKMeans", "SMIC"),
    *("NormalizedSpectralClustering", "SoftLabelMVC", "SKMMC", "SDPMMC", "GMMC"),
):
    rows = X[:200] if name in ("SDPMMC", "GMMC") else X
    model = getattr(volmar, name)(random_state=0).fit(rows)
    own = [getattr(model, one) for one in ("coef_", "dual_coef_") if hasattr(model, one)]
    show(name, model.labels_, np.float64(model.objective_), model.decision_function(new), *own)
labels = X[:, 0] > 0
show("msp_score", np.float64(msp_score(X, labels)))
show("label_free_scores", np.array([score.value for score in label_free_scores(X, labels)]))
W = np.exp(-np.abs(np.subtract.outer(X[:, 0], X[:, 0])))
show("normalized_cut", np.float64(normalized_cut(W, labels)))
print(*sorted({one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}))
"""


@pytest.mark.slow
def test_results_are_the_same_to_the_last_bit_on_one_and_two_threads():
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", BITS],
            env={**os.environ, **dict.fromkeys(names, n)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in "12"
    ]
    one, two = (process.communicate(timeout=120)[0].splitlines() for process in running)
    assert len(one) == 17
    assert one[-1] == "1"
    if two[-1] == "1":
        pytest.skip("BLAS always has one thread")
    assert one[:-1] == two[:-1]


# ---------------------------------------------------------------------- Python threads


def test_calls_on_python_threads_keep_their_order(two_threads):
    def square(i):
        warn_user(f"call {i}")
        inside = {n for (_, api), n in numbers().items() if api == "openmp"}
        return i**2, threading.get_ident(), inside

    with collecting() as messages:
        found = list(in_jobs(square, range(20), 2, share_rows=True))
    assert [one.text for one in messages] == [f"call {i}" for i in range(20)]
    with pytest.warns(UserWarning, match=r"^call [01]$") as issued:
        list(in_jobs(square, range(2), 2, share_rows=True))
    assert {one.filename for one in issued} == {__file__}
    assert [value for value, _, _ in found] == [i**2 for i in range(20)]
    assert threading.get_ident() not in {thread for _, thread, _ in found}
    assert all(inside == {1} for _, _, inside in found)


def test_calls_without_jobs_stay_on_this_thread():
    here = threading.get_ident()
    assert list(in_jobs(lambda _: threading.get_ident(), range(3))) == [here] * 3
    assert list(in_jobs(lambda _: threading.get_ident(), [0], 2)) == [here]
    with joblib.parallel_config(n_jobs=2):
        assert here not in in_jobs(lambda _: threading.get_ident(), range(3), share_rows=True)


def test_errors_of_python_threads_are_raised():
    def fail(i):
        raise ValueError(f"call {i}")

    with pytest.raises(ValueError, match="call"):
        list(in_jobs(fail, range(4), 2, share_rows=True))


@pytest.mark.parametrize("name", ["KernelKMeans", "LDAKMeans", "DiscriminativeKMeans"])
def test_restarts_on_python_threads(name):
    X = np.random.default_rng(0).normal(size=(120, 3))
    make = getattr(volmar, name)
    one = make(3, n_init=6, random_state=0).fit(X)
    with joblib.parallel_config(n_jobs=2):
        two = make(3, n_init=6, random_state=0).fit(X)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.objective_ == two.objective_


def test_stability_on_python_threads(two_threads):
    X = np.random.default_rng(0).normal(size=(150, 3))
    for model in (volmar.MSPC(), KMeans(3, n_init=2)):
        one, two = (stability(X, model, n_jobs=n, random_state=0) for n in (1, 2))
        np.testing.assert_array_equal(one.agreements, two.agreements)
        np.testing.assert_array_equal(one.confidence, two.confidence)


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_parts_of_a_tree_in_several_jobs(backend):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3)) + 8 * rng.standard_normal((4, 3))[rng.integers(4, size=400)]
    recursive = volmar.CPMMC(4, multiway="recursive", random_state=0)
    for model in (volmar.MSPC(4, random_state=0), recursive):
        one = clone(model).fit(X)
        with joblib.parallel_config(backend=backend, n_jobs=2):
            two = clone(model).fit(X)
        np.testing.assert_array_equal(one.labels_, two.labels_)
        assert str(one.tree_) == str(two.tree_)
        assert one.objective_ == two.objective_


# ---------------------------------------------------------------------- fits on several threads


def in_threads(call, items):
    """Return the results of calls that run at the same time, one thread per item."""
    items, interval = list(items), sys.getswitchinterval()
    found, together = [None] * len(items), threading.Barrier(len(items))

    def run(i):
        together.wait(10)
        try:
            found[i] = call(items[i])
        except BaseException as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(items))]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    return found


def test_one_model_fitted_on_two_threads_at_once():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3)) + 8 * rng.standard_normal((4, 3))[rng.integers(4, size=300)]
    alone = volmar.MSPC(4, random_state=0).fit(X)
    shared = volmar.MSPC(4, random_state=0)
    for _ in range(8):
        found = in_threads(lambda rows: shared.fit(rows).predict(X), [X, X])
        for labels in found:
            np.testing.assert_array_equal(labels, alone.labels_)
    assert sorted(vars(shared)) == sorted(vars(alone))


def warnings_state():
    """Return what decides which warnings of the process are shown."""
    return (
        list(warnings.filters),
        warnings.showwarning,
        warnings._showwarnmsg_impl,
        warnings.formatwarning,
        np.random.get_state()[1].tobytes(),
        get_config(),
        np.geterr(),
    )


def blobs(n=90):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 3)) + 7 * np.eye(3)[np.arange(n) % 3]


def labels_of(name):
    """Return a function that fits an estimator to three clusters and returns its labels."""
    X = blobs(48 if name in ("SDPMMC", "GMMC", "HardLabelMVC") else 90)
    seeds = (np.arange(len(X)) % 3 > 0).astype(int)

    def call(_):
        model = getattr(volmar, name)(random_state=0)
        if name in volmar.CLUSTERERS:
            return model.set_params(n_clusters=3).fit(X).labels_
        return model.fit(X, seeds).predict(X)

    return call


def table_labels(_):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(blobs(150), columns=list("abc"))
    table["word"] = rng.choice(["a", "b", "c"], 150)
    return volmar.TableClusterer(random_state=0).fit(table).labels_


def saved_page(path):
    model = volmar.MSPC(3, random_state=0).fit(blobs())
    save_report(path, model, blobs(), title="Page", force=True)
    return len(path.read_text()) > 10_000


FITS = {
    **{name: labels_of(name) for name in (*volmar.CLUSTERERS, "MinimaxProbabilityMachine")},
    "VolumeRegularizedClassifier": labels_of("VolumeRegularizedClassifier"),
    "auto": lambda _: volmar.AutoClusterer(random_state=0).fit(blobs()).labels_,
    "seeds": lambda _: (
        volmar.MSPC(3, random_state=0).fit(blobs(), y=np.r_[0, 1, 2, np.full(87, -1)]).labels_
    ),
    "equal rows": lambda _: volmar.MSPC(3, random_state=0).fit(np.eye(3).repeat(9, 0)).labels_,
    "TableClusterer": table_labels,
    "split_test": lambda _: split_test(blobs(), random_state=0).p_value,
    "label_test": lambda _: label_test(blobs(), np.arange(90) % 3, random_state=0).merged_labels,
    "describe_clusters": lambda _: str(
        describe_clusters(
            blobs(), np.arange(90) % 3, estimator=volmar.MSPC(3, random_state=0), random_state=0
        )
    ),
    "compare_numbers": lambda _: np.array(
        [
            one.labels
            for one in compare_numbers(
                blobs(), volmar.MSPC(random_state=0), [2, 3], random_state=0
            ).found
        ]
    ),
    "stability": lambda _: (
        stability(
            blobs(), volmar.MSPC(3, random_state=0), n_resamples=3, random_state=0
        ).agreements
    ),
}
# scikit-learn and pandas set filters of these for the microseconds of a conversion.
OF_OTHERS = ("ComplexWarning", "VisibleDeprecationWarning", "DeprecationWarning")


def assert_same_state(before):
    now = warnings_state()
    own, expected = (
        [one for one in filters if one[2].__name__ not in OF_OTHERS]
        for filters in (now[0], before[0])
    )
    assert own == expected
    assert now[1:] == before[1:]
    with pytest.warns(UserWarning, match="hello"):
        warnings.warn("hello", UserWarning, stacklevel=1)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_fits_in_threads_leave_the_warnings_of_the_process_alone(name, monkeypatch):
    call, before, entered = FITS[name], warnings_state(), []
    enter = warnings.catch_warnings.__enter__

    def watched(self):
        entered.append(sys._getframe(1).f_globals["__name__"])
        return enter(self)

    with monkeypatch.context() as patch:
        patch.setattr(warnings.catch_warnings, "__enter__", watched)
        alone = call(None)
    assert not [one for one in entered if one.startswith("volmar")]
    for found in in_threads(call, range(3)):
        np.testing.assert_array_equal(found, alone)
    assert_same_state(before)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_reports_in_threads_leave_the_warnings_of_the_process_alone(tmp_path):
    before = warnings_state()
    assert in_threads(saved_page, [tmp_path / "a.html", tmp_path / "b.html"]) == [True, True]
    assert_same_state(before)


def test_warnings_of_a_fit_reach_the_user_and_those_of_its_splits_do_not():
    X = np.eye(3).repeat(9, 0)
    with pytest.warns(ConvergenceWarning, match="n_clusters=5") as issued:
        volmar.MSPC(5, random_state=0).fit(X)
    assert [one.filename for one in issued] == [__file__]
    with collecting() as messages:
        volmar.MSPC(5, random_state=0).fit(X)
    assert [one.text for one in messages] == [str(one.message) for one in issued]
    with pytest.raises(ZeroDivisionError), collecting():
        1 / 0  # noqa: B018
    with pytest.warns(UserWarning, match="after"):
        warn_user("after")
