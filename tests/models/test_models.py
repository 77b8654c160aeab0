"""Saved models are unchanged when they are loaded."""

import importlib
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from helpers.models import NEW, X, fit, similarities
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

import volmar
from volmar import models
from volmar.graphs import similarities as kinds
from volmar.graphs.density_scaling import DensityScalingSimilarity
from volmar.models import ModelError, load_model, save_model
from volmar.tables import Preparation

NEW_4 = np.random.default_rng(1).normal(size=(9, 4))
# `TableClusterer` is tested separately below, with tables.
ESTIMATORS = [*volmar.CLUSTERERS, "MinimaxProbabilityMachine", "VolumeRegularizedClassifier"]


def cases():
    for name in ESTIMATORS:
        parameters = getattr(volmar, name)().get_params()
        counts = (2, 3) if "n_clusters" in parameters else (None,)
        for k in counts:
            yield f"{name}-{k}", name, {"n_clusters": k} if k else {}, X, NEW
        single = X.astype(np.float32), NEW.astype(np.float32)
        yield f"{name}-float32", name, {}, *single
        if getattr(volmar, name)().__sklearn_tags__().input_tags.sparse:
            yield f"{name}-sparse", name, {}, sparse.csr_array(X), sparse.csr_array(NEW)
        if "kernel" in parameters:
            for kernel in ("linear", "rbf", rbf_kernel):
                yield f"{name}-{kernel}", name, {"kernel": kernel}, X, NEW
            given = {"kernel": "precomputed"}
            yield f"{name}-given", name, given, similarities(X), similarities(NEW)
        if "method" in parameters:
            landmarks = {"kernel": "rbf", "method": "nystroem", "n_landmarks": 8}
            yield f"{name}-landmarks", name, landmarks, X, NEW
        if "affinity" in parameters:
            for affinity in (
                "density_scaling",
                "local_scaling",
                "gaussian",
                "cosine_knn",
                "nearest_neighbors",
            ):
                yield f"{name}-{affinity}", name, {"affinity": affinity}, X, NEW
            given = {"affinity": "precomputed"}
            yield f"{name}-given", name, given, similarities(X), similarities(NEW)
    for name, settings in (
        ("CPMMC", {"multiway": "recursive", "n_clusters": 3}),
        ("CPMMC", {"mode": "paper"}),
        ("MSPC", {"solver": "mpm"}),
        ("MSPC", {"solver": "eig", "mode": "paper"}),
        ("SoftLabelMVC", {"mode": "paper"}),
        ("SoftLabelMVC", {"mode": "aistats"}),
        ("SoftLabelMVC", {"Q": "kernel", "n_clusters": 3}),
        ("SDPMMC", {"mode": "paper"}),
        ("SKMMC", {"basis": "single"}),
    ):
        yield f"{name}-{'-'.join(map(str, settings.values()))}", name, settings, X, NEW
    for similarity in (
        kinds.CosineKNNSimilarity(n_neighbors=5),
        DensityScalingSimilarity(),
        kinds.GaussianSimilarity(),
        kinds.LocalScalingSimilarity(),
        kinds.NearestNeighborsSimilarity(n_neighbors=5),
    ):
        case = f"SMIC-{type(similarity).__name__}"
        yield case, "SMIC", {"affinity": similarity}, X, NEW
    yield "MSPC-one", "MSPC", {"n_clusters": 1}, X, NEW
    wide = np.random.default_rng(0).normal(size=(9, 40))
    yield "MSPC-wide", "MSPC", {"n_clusters": 3}, wide, wide
    many = np.vstack([X + 60 * np.eye(3)[i % 3] * (1 + i // 3) for i in range(9)])
    yield "MSPC-deep", "MSPC", {"n_clusters": 25}, many, many[::4]
    yield "NormalizedCut-deep", "NormalizedCut", {"n_clusters": 9}, many, many[::4]


CHILD = """
import pickle, sys, warnings
from volmar.models import load_model
warnings.simplefilter("error")
found = {}
for name, rows in pickle.load(open(sys.argv[1], "rb")).items():
    model = load_model(f"{sys.argv[2]}/{name}.volmar").model
    found[name] = model.decision_function(rows), model.predict(rows), model
pickle.dump(found, open(sys.argv[3], "wb"))
"""


# These are of the training rows.
NOT_SAVED = {"labels_", "transduction_", "embedding_", "scores_", "_fitted"}


def name_of(key):
    return key.partition("-")[0]


def in_a_fresh_process(folder, new):
    """Load and use models in a new process."""
    with (folder / "new.pickle").open("wb") as file:
        pickle.dump(new, file)
    subprocess.run(
        [sys.executable, "-c", CHILD, folder / "new.pickle", folder, folder / "found.pickle"],
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    return pickle.loads((folder / "found.pickle").read_bytes())


def test_every_estimator_comes_back(tmp_path):
    fitted, new = {}, {}
    for case, name, settings, rows, others in cases():
        key = case.replace(" ", "_").replace("<", "").replace(">", "")
        fitted[key] = fit(name, settings, rows)
        new[key] = others
        save_model(tmp_path / f"{key}.volmar", fitted[key])
    assert {type(model).__name__ for model in fitted.values()} == set(ESTIMATORS)
    found = in_a_fresh_process(tmp_path, new)
    assert set(found) == set(fitted)
    for key, model in fitted.items():
        scores, labels, again = found[key]
        # Equal up to rounding: the number of threads may change the order of sums.
        scale = max(1.0, float(np.abs(scores).max()))
        exact = 1e-12 if scores.dtype == np.float64 else 1e-5
        difference = np.abs(scores - model.decision_function(new[key]))
        assert difference.max() <= exact * scale, key
        np.testing.assert_array_equal(labels, model.predict(new[key]), err_msg=key)
        assert again.get_params().keys() == model.get_params().keys()
        assert vars(model).keys() - vars(again).keys() <= NOT_SAVED
        if hasattr(model, "labels_"):
            assert name_of(key) == "HardLabelMVC" or not hasattr(again, "labels_")
            assert getattr(again, "status_", None) is getattr(model, "status_", None)
        if not hasattr(model, "result_"):
            assert key.startswith("AutoClusterer")
            continue
        assert dict(again.result_.residuals) == pytest.approx(
            dict(model.result_.residuals), nan_ok=True
        )
    assert found["MSPC-deep"][2].tree_.n_leaves == 25


@pytest.mark.parametrize("name", ["GMMC", "KernelKMeans", "SDPMMC"])
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf"])
def test_scores_of_the_training_rows_come_back_to_the_last_bit(name, kernel, tmp_path):
    rows = np.random.default_rng(0).normal(size=(36, 4))
    model = fit(name, {"kernel": kernel}, rows)
    save_model(tmp_path / "m", model)
    again = load_model(tmp_path / "m").model
    np.testing.assert_array_equal(again.decision_function(rows), model.decision_function(rows))
    before = model.decision_function(NEW_4)
    rows[:] = 0.0
    np.testing.assert_array_equal(model.decision_function(NEW_4), before)


def test_the_table_of_names_is_right():
    """Every place is that of a class or function, named as skops names it."""
    types = models._types()
    for (loader, module, own), made in types.items():
        if module is None:
            continue
        found = getattr(importlib.import_module(module), own)
        assert (found.__module__, found.__name__) == (module, own)
        assert loader != "ObjectNode" or made["__class__"].partition("/")[0] == own
        assert types[loader, None, made["__class__"]] == {"__module__": module, "__class__": own}
    assert len(types) == 2 * sum(module is None for _, module, _ in types)


def test_a_file_does_not_grow_with_the_rows(tmp_path):
    sizes = []
    for n in (2_000, 20_000):
        rows = np.tile(X, (n // 60, 1)) + np.random.default_rng(0).normal(size=(n // 60 * 60, 3))
        for name, k in (("MSPC", 2), ("MSPC", 3), ("CPMMC", 2), ("SKMMC", 2)):
            save_model(tmp_path / f"{name}-{k}-{n}", fit(name, {"n_clusters": k}, rows))
        save_model(tmp_path / f"table-{n}", volmar.TableClusterer(2, random_state=0).fit(rows))
        sizes.append(max(path.stat().st_size for path in tmp_path.glob(f"*-{n}")))
    assert max(sizes) < 150_000


def test_names_of_columns_come_back(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "größe", "<script>"])
    for name in ESTIMATORS:
        save_model(tmp_path / name, fit(name, {}, frame))
        again = load_model(tmp_path / name).model
        assert again.feature_names_in_.tolist() == list(frame.columns)
        assert again.feature_names_in_.dtype == object
        again.predict(frame)
        with pytest.raises(ValueError, match="feature names"):
            again.predict(frame[["<script>", "a", "größe"]])


def test_the_preparation_of_a_table_comes_back(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X.copy(), columns=["a", "b", "c"])
    frame["kind"] = np.repeat(["x", "y", "<z>"], 20)
    frame["name"] = [f"row {i}" for i in range(60)]
    frame.loc[5, "a"] = np.nan
    preparation = Preparation(id_column="name", missing="impute")
    prepared = preparation.fit_prepare(frame)
    model = fit("MSPC", {}, prepared.X)
    save_model(tmp_path / "m", model, preparation=preparation)
    again = load_model(tmp_path / "m")
    rows = again.preparation.prepare(frame)
    np.testing.assert_array_equal(rows.X, prepared.X)
    assert rows.feature_names == prepared.feature_names
    np.testing.assert_array_equal(again.model.predict(rows.X), model.labels_)


def test_models_fitted_in_blocks_leave_their_labels_behind(tmp_path):
    da = pytest.importorskip("dask.array")
    blocks = da.from_array(X, chunks=(20, 3))
    for name in ("MSPC", "CPMMC", "SKMMC"):
        model = fit(name, {}, blocks)
        save_model(tmp_path / name, model)
        again = load_model(tmp_path / name).model
        assert not hasattr(again, "labels_")
        np.testing.assert_array_equal(again.decision_function(NEW), model.decision_function(NEW))


def test_callbacks_are_left_out(tmp_path):
    callback = pytest.importorskip("sklearn.callback")
    pytest.importorskip("rich")
    model = volmar.KernelKMeans(random_state=0).set_callbacks(callback.ProgressBar())
    model.fit(X)
    save_model(tmp_path / "m", model)
    left = vars(model).keys() - vars(load_model(tmp_path / "m").model).keys()
    assert left == {"_skl_callbacks", "labels_"}


def test_the_same_model_gives_the_same_bytes(model, saved, tmp_path):
    save_model(tmp_path / "n.volmar", model)
    assert (tmp_path / "n.volmar").read_bytes() == saved.read_bytes()
    # Save and load the loaded model again.
    save_model(tmp_path / "o.volmar", load_model(saved).model)
    assert (tmp_path / "o.volmar").read_bytes() == saved.read_bytes()


def test_a_file_is_not_replaced_unasked(model, saved):
    before = saved.read_bytes()
    with pytest.raises(ModelError, match="exists already"):
        save_model(saved, model)
    assert saved.read_bytes() == before
    save_model(saved, fit("CPMMC", {}, X), force=True)
    assert type(load_model(saved).model) is volmar.CPMMC
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_file_that_appears_meanwhile_is_kept(model, tmp_path, monkeypatch):
    path = tmp_path / "m"
    zipped = models._zipped

    def slowly(members):
        path.write_text("mine")
        return zipped(members)

    monkeypatch.setattr(models, "_zipped", slowly)
    with pytest.raises(ModelError, match="exists already"):
        save_model(path, model)
    assert path.read_text() == "mine"


def test_an_interrupted_save_leaves_nothing(model, saved, monkeypatch):
    before = saved.read_bytes()

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "_zipped", stop)
    with pytest.raises(KeyboardInterrupt):
        save_model(saved, model, force=True)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert saved.read_bytes() == before


def test_places_that_cannot_be_written(model, tmp_path):
    with pytest.raises(ModelError, match="is a folder"):
        save_model(tmp_path, model)
    with pytest.raises(ModelError, match=r"cannot be written.*no folder"):
        save_model(tmp_path / "nowhere" / "m", model)


def a_kernel(A, B):
    return A @ B.T


class Mine(volmar.MSPC):
    pass


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("KernelKMeans", {"kernel": a_kernel}, r"model\.kernel is a .*a_kernel"),
        ("KernelKMeans", {"kernel": lambda A, B: A @ B.T}, r"model\.kernel is a .*lambda"),
        ("SMIC", {"affinity": lambda A, B: similarities(A)}, r"model\.affinity is a .*lambda"),
    ],
)
def test_what_cannot_be_saved(name, settings, message, tmp_path):
    model = fit(name, settings, X)
    with pytest.raises(TypeError, match=message):
        save_model(tmp_path / "m", model)
    assert not list(tmp_path.iterdir())


def test_random_states_are_named_with_a_remedy(tmp_path):
    model = volmar.MSPC(random_state=np.random.RandomState(0)).fit(X)
    with pytest.raises(TypeError, match=r"model\.random_state is a .*RandomState.*set_params"):
        save_model(tmp_path / "m", model)
    save_model(tmp_path / "m", model.set_params(random_state=None))
    np.testing.assert_array_equal(load_model(tmp_path / "m").model.predict(X), model.labels_)


def test_what_is_no_model(model, tmp_path):
    with pytest.raises(TypeError, match=r"^model must be an estimator of volmar, .* got dict"):
        save_model(tmp_path / "m", {})
    with pytest.raises(TypeError, match="got Mine"):
        save_model(tmp_path / "m", Mine().fit(X))
    with pytest.raises(ModelError, match="MSPC is not fitted"):
        save_model(tmp_path / "m", volmar.MSPC())
    model.anything = open  # of no parameter
    with pytest.raises(TypeError, match=r"model\.anything is a .*open"):
        save_model(tmp_path / "m", model)
