"""Saved pipelines and `TableClusterer` are unchanged when they are loaded."""

import warnings

import numpy as np
import pytest
from helpers.models import NEW, X, edit, find, plain, state_of
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

import volmar
from volmar.models import ModelError, load_model, save_model


def pipelines():
    return {
        "scaled": make_pipeline(StandardScaler(), volmar.MSPC(3, random_state=0)),
        "reduced": make_pipeline(
            SimpleImputer(add_indicator=True),
            MinMaxScaler(),
            PCA(2, random_state=0),
            volmar.CPMMC(2, random_state=0),
        ),
        "sparse": make_pipeline(
            MaxAbsScaler(), TruncatedSVD(2, random_state=0), volmar.MSPC(3, random_state=0)
        ),
        "robust": make_pipeline(
            RobustScaler(), "passthrough", Normalizer(), volmar.SoftLabelMVC(2, random_state=0)
        ),
        "named": make_pipeline(StandardScaler().set_output(transform="default"), volmar.MSPC(1)),
    }


@pytest.mark.parametrize("name", list(pipelines()))
def test_pipelines_come_back(name, tmp_path):
    pandas = pytest.importorskip("pandas")
    rows, new = X.copy(), NEW.copy()
    if name == "reduced":
        rows[3, 1] = new[0, 1] = np.nan
    if name == "sparse":
        rows, new = sparse.csr_array(rows), sparse.csr_array(new)
    if name == "named":
        rows, new = (pandas.DataFrame(one, columns=list("abc")) for one in (rows, new))
    model = pipelines()[name].fit(rows)
    save_model(tmp_path / "m.volmar", model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = load_model(tmp_path / "m.volmar").model
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    np.testing.assert_array_equal(again.decision_function(new), model.decision_function(new))
    assert again.fit(rows).predict(rows).tolist() == model.predict(rows).tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: make_pipeline(PowerTransformer(), volmar.MSPC()),
            r"model\.steps\[0\]\[1\] is a .*PowerTransformer",
        ),
        (
            lambda: make_pipeline(FunctionTransformer(np.log1p), volmar.MSPC()),
            "is a .*FunctionTransformer .*, which no model file holds",
        ),
        (lambda: make_pipeline(StandardScaler(), KMeans(2)), "KMeans"),
        (
            lambda: make_pipeline(StandardScaler(), volmar.MSPC(), memory="/tmp/somewhere"),
            "set_params",
        ),
        (
            lambda: make_pipeline(SimpleImputer(strategy=np.nanmax), volmar.MSPC()),
            "nanmax",
        ),
    ],
)
def test_pipelines_that_cannot_be_saved(make, message, tmp_path):
    model = make()
    memory, model.memory = model.memory, None
    model.fit(X)
    model.memory = memory
    with pytest.raises(TypeError, match=message):
        save_model(tmp_path / "m.volmar", model)
    assert not (tmp_path / "m.volmar").exists()


@pytest.mark.parametrize("name", ["FunctionTransformer/1", "Pipeline/1", "KMeans/1", "PCA/2"])
def test_forged_steps_are_refused(name, tmp_path):
    path = tmp_path / "m.volmar"
    save_model(path, pipelines()["scaled"].fit(X))
    edit(path, lambda text: find(text, **{"class": "StandardScaler/1"}).update(__class__=name))
    with pytest.raises(ModelError, match="which no model file holds"):
        load_model(path)


def test_forged_pipelines_are_refused(tmp_path):
    """The memory of a pipeline would be unpickled in its next fit."""
    path = tmp_path / "m.volmar"
    for change in ({"memory": plain("/tmp/somewhere")}, {"steps": plain(3)}):
        save_model(path, pipelines()["scaled"].fit(X), force=True)
        edit(path, lambda text, change=change: state_of(text, "Pipeline").update(change))
        with pytest.raises(ModelError):
            load_model(path)


def test_a_pipeline_of_another_scikit_learn_is_reported(tmp_path):
    path = tmp_path / "m.volmar"
    save_model(path, pipelines()["scaled"].fit(X))
    older = {"_sklearn_version": plain("0.99")}
    edit(path, lambda text: state_of(text, "StandardScaler").update(older))
    with pytest.warns(UserWarning, match=r"StandardScaler from version 0\.99"):
        load_model(path)


def test_a_table_clusterer_has_its_own_preparation(tmp_path):
    clusterer = volmar.TableClusterer(3).fit(X)
    path = tmp_path / "m.volmar"
    with pytest.raises(ValueError, match="has its own"):
        save_model(path, clusterer, preparation=clusterer.preparation_)
    save_model(path, clusterer)
    again = load_model(path)
    np.testing.assert_array_equal(again.model.predict(NEW), clusterer.predict(NEW))
    rows = again.preparation.prepare(NEW)
    np.testing.assert_array_equal(again.clusterer.predict(rows.X), clusterer.predict(NEW))
    for name in ("model_", "preparation_"):
        save_model(path, clusterer, force=True)
        edit(path, lambda text, name=name: state_of(text, "TableClusterer").pop(name))
        with pytest.raises((ModelError, AttributeError)):
            load_model(path).model.predict(NEW)


def test_table_clusterers_that_cannot_be_saved(tmp_path):
    with pytest.raises(ModelError, match="not fitted"):
        save_model(tmp_path / "m", volmar.TableClusterer())
    means = volmar.TableClusterer(2, clusterer=KMeans(n_init=1)).fit(X)
    with pytest.raises(
        TypeError, match=r"model\.clusterer is a sklearn|model\.model_ is a sklearn"
    ):
        save_model(tmp_path / "m", means)
    inside = make_pipeline(StandardScaler(), volmar.TableClusterer()).fit(X)
    with pytest.raises(TypeError, match="TableClusterer"):
        save_model(tmp_path / "m", inside)
