"""Model files with attributes of wrong types, shapes or sizes, or that do not fit together."""

import io
import json
import os
import time
from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest
from helpers.models import NEW, X, edit, find, fit, forge, npy, parts_of, refused

import volmar
from volmar.models import load_model, save_model
from volmar.models.classes import CLASSES, class_named
from volmar.models.rules import RULES
from volmar.tables import Preparation


def table(n=60):
    rng = np.random.default_rng(5)
    group = rng.integers(2, size=n)
    frame = pd.DataFrame(
        {"a": rng.normal(size=n) + 5 * group, "b": np.exp(2 * rng.normal(size=n))}
    )
    for name in "cde":
        frame[name] = np.array(["x", "y", "z"])[(group + (rng.random(n) < 0.1)) % 3]
    frame.loc[3, "a"] = np.nan
    return frame


@pytest.fixture(scope="module")
def clusterer():
    return volmar.TableClusterer(2, random_state=0).fit(table())


@pytest.fixture
def of_table(clusterer, tmp_path):
    save_model(tmp_path / "t.volmar", clusterer)
    return tmp_path / "t.volmar"


def put_first(text, nodes):
    """Insert nodes before all others, and update the references."""
    shift = len(nodes)

    def move(value):
        if isinstance(value, dict) and "ref" in value:
            value["ref"] += shift
        elif isinstance(value, (dict, list)):
            for part in value.values() if isinstance(value, dict) else value:
                move(part)

    move([text["nodes"], text["model"], text["preparation"]])
    text["nodes"][:0] = nodes


def state_of(text, cls):
    return find(text, "object", **{"class": f"{cls}/1"})["state"]


def nest_nodes(depth):
    inner = [{"is": "tuple", "items": ["x", "x"]}]
    inner += [{"is": "tuple", "items": [{"ref": i}, {"ref": i}]} for i in range(depth - 1)]
    return inner, {"ref": depth - 1}


@pytest.mark.parametrize("depth", [20, 60])
def test_a_nest_as_a_category_is_refused_at_once(depth, of_table):
    """Its hash would never end, and could not be interrupted."""

    def change(text):
        nodes, last = nest_nodes(depth)
        put_first(text, nodes)
        place = state_of(text, "Preparation")["categories_"]["ref"]
        values = text["nodes"][place]["items"][0][1]["ref"]
        text["nodes"][values]["items"][0] = last

    edit(of_table, change)
    begin = time.monotonic()
    refused(of_table, "nested more than 50|expanded|categories_")
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("depth", [3, 20, 60])
def test_a_nest_as_a_parameter_or_a_key_is_refused(depth, saved):
    """`repr` and `clone` would never end."""

    def as_parameter(text):
        nodes, last = nest_nodes(depth)
        put_first(text, nodes)
        text["nodes"][text["model"]["ref"]]["state"]["reg"] = last

    def as_key(text):
        nodes, last = nest_nodes(depth)
        put_first(text, nodes)
        find(text, "proxy")["items"].append([last, 1.0])

    content = saved.read_bytes()
    for change, message in ((as_parameter, "parameter 'reg'"), (as_key, "has a key")):
        saved.write_bytes(content)
        edit(saved, change)
        refused(saved, f"nested more than 50|expanded|{message}" if depth == 60 else message)


def test_a_proxy_as_a_parameter_is_refused(saved):
    """`clone` and `copy.deepcopy` cannot copy it."""

    def change(text):
        put_first(text, [{"is": "proxy", "items": []}])
        text["nodes"][text["model"]["ref"]]["state"]["kernel_params"] = {"ref": 0}

    edit(saved, change)
    refused(saved, "parameter 'kernel_params'")


def test_a_nest_as_the_name_of_a_step_is_refused(tmp_path):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    save_model(tmp_path / "p", make_pipeline(StandardScaler(), volmar.MSPC()).fit(X))

    def change(text):
        nodes, last = nest_nodes(20)
        put_first(text, nodes)
        steps = text["nodes"][state_of(text, "Pipeline")["steps"]["ref"]]["items"]
        text["nodes"][steps[0]["ref"]]["items"][0] = last

    edit(tmp_path / "p", change)
    refused(tmp_path / "p", "parameter 'steps'")


@pytest.mark.parametrize("value", ["x", 3, 2.5, True, {"ref": 0}])
def test_a_preparation_that_is_none(value, saved, model, tmp_path):
    edit(saved, lambda text: text.update(preparation=value))
    refused(saved, "as the preparation of a MSPC")
    with pytest.raises(TypeError, match=r"preparation must be a volmar\.tables\.Preparation"):
        save_model(tmp_path / "m", model, preparation=value)


def test_a_preparation_of_other_rows_is_refused(tmp_path):
    preparation = Preparation().fit(table())
    model = fit("MSPC", {}, np.column_stack([X, X]))
    save_model(tmp_path / "m", model, preparation=preparation)
    refused(tmp_path / "m", "for 6 features, and a preparation that makes")


@pytest.mark.parametrize(
    ("cls", "name", "value"),
    [
        *(("Preparation", "missing", "anything"), ("Preparation", "scale", 3)),
        *(("Preparation", "id_column", "nobody"), ("Preparation", "id_column", 3)),
        *(("Preparation", "numbers_", 3), ("Preparation", "names_in_", None)),
        *(("Preparation", "n_features_in_", 10**9), ("Preparation", "number_features_", 0.5)),
        *(("Preparation", "categories_", None), ("Preparation", "texts_", "abc")),
        *(("TableClusterer", "n_clusters_", 10**9), ("TableClusterer", "slopes_", None)),
        *(("TableClusterer", "evidence_", "abc"), ("TableClusterer", "model_", "MSPC")),
        *(("TableClusterer", "clusterer", 3), ("TableClusterer", "clusterer", None)),
        *(("ColumnKind", "order", 3), ("ColumnKind", "kind", None), ("Evidence", "value", "a")),
        *(("MSPC", "n_features_in_", 2**62), ("MSPC", "n_features_in_", 4)),
        *(("SeparatingPlanes", "unit", 0), ("SeparatingPlanes", "mean", "a")),
        *(("NumberFeatures", "tails", 1), ("Fills", "donors", None), ("Tails", "lows", 2.5)),
    ],
)
def test_attributes_of_the_wrong_kind_are_refused(cls, name, value, of_table):
    edit(of_table, lambda text: state_of(text, cls).update({name: value}))
    refused(of_table, f"{cls}|model_.n_features_in_|not fit together")


@pytest.mark.parametrize(
    "name", ["notes_", "labels_", "evidence_", "slopes_", "n_clusters_", "seconds_", "_fit_seed"]
)
def test_attributes_that_reports_need_must_be_there(name, of_table):
    edit(of_table, lambda text: state_of(text, "TableClusterer").pop(name))
    refused(of_table, f"lacks '{name}'")


def change_array(path, cls, name, change):
    """Replace the array of an attribute by another one with a correct header."""
    parts = parts_of(path)
    text = json.loads(parts["model.json"])
    file = text["nodes"][state_of(text, cls)[name]["ref"]]["file"]
    array = np.load(io.BytesIO(parts[file]))
    forge(path, {**parts, file: npy(np.asarray(change(array)))})


def with_first(value):
    def change(array):
        array = array.copy()
        array.flat[0] = value
        return array

    return change


TWICE = lambda array: np.concatenate([array, array])  # noqa: E731


@pytest.mark.parametrize(
    ("name", "settings", "cls", "attribute", "change"),
    [
        ("CPMMC", {}, "LinearHyperplane", "coef", TWICE),
        ("CPMMC", {}, "LinearHyperplane", "coef", with_first(np.nan)),
        ("CPMMC", {}, "LinearHyperplane", "coef", lambda array: array.astype("f2")),
        ("CPMMC", {}, "LinearHyperplane", "coef", lambda array: array.astype("U8")),
        ("CPMMC", {}, "CPMMC", "labels_", with_first(10**12)),
        ("CPMMC", {}, "CPMMC", "labels_", lambda array: array.astype(float)),
        ("MSPC", {"n_clusters": 3}, "SeparatingPlanes", "coefficients", lambda array: array[:2]),
        ("KernelKMeans", {}, "KernelKMeans", "_mean_weights", lambda array: array[1:]),
        ("KernelKMeans", {}, "KernelExpansion", "rows", lambda array: array[1:]),
        ("KernelKMeans", {}, "KernelExpansion", "rows", lambda array: array[:, :2]),
        ("GMMC", {}, "GMMC", "dual_coef_", TWICE),
        ("LDAKMeans", {}, "LDAKMeans", "components_", lambda array: array[:, 1:]),
        ("SMIC", {}, "SMICResult", "divisors", with_first(0.0)),
        ("SMIC", {}, "SMICResult", "shares", lambda array: array[1:]),
        ("HardLabelMVC", {}, "HardLabelMVC", "alpha_", lambda array: array[1:]),
        ("SoftLabelMVC", {}, "Copies", "point", with_first(10**6)),
        ("SoftLabelMVC", {}, "Copies", "counts", with_first(10**6)),
        ("SoftLabelMVC", {}, "LocalScales", "radius", with_first(0.0)),
        ("SoftLabelMVC", {}, "NeighborSearch", "rows", TWICE),
        ("SoftLabelMVC", {}, "SoftLabelMVC", "field_", lambda array: array[1:]),
        ("NormalizedCut", {}, "EigenPairs", "vectors", lambda array: array[:, :1]),
        ("NormalizedSpectralClustering", {}, "SpectralResult", "centers", lambda a: a[:, :1]),
        ("SKMMC", {}, "BasisExpansion", "vectors", lambda array: array[:, :2]),
        ("MinimaxProbabilityMachine", {}, "MinimaxProbabilityMachine", "coef_", TWICE),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(name, settings, cls, attribute, change, tmp_path):
    path = tmp_path / "m"
    save_model(path, fit(name, settings, X))
    change_array(path, cls, attribute, lambda array: array)
    load_model(path)
    change_array(path, cls, attribute, change)
    refused(path, f"{cls}|{name}|Extension|SpectralGraph|not fit together")


@pytest.mark.parametrize(
    ("cls", "attribute", "change"),
    [
        ("NumberFeatures", "scales", with_first(0.0)),
        ("NumberFeatures", "scales", with_first(1e-320)),
        ("NumberFeatures", "offsets", TWICE),
        ("Tails", "shifts", with_first(-1e9)),
        ("Fills", "medians", lambda array: array[1:]),
        ("Fills", "donors", with_first(1e308)),
        ("CategoryScores", "widths", TWICE),
    ],
)
def test_arrays_of_a_preparation_that_do_not_fit_are_refused(cls, attribute, change, of_table):
    change_array(of_table, cls, attribute, lambda array: array)
    load_model(of_table)
    change_array(of_table, cls, attribute, change)
    refused(of_table, f"{cls}|not fit together")


def test_threads_are_those_of_this_machine(tmp_path):
    """A model must not start three thousand threads."""
    path = tmp_path / "m"
    save_model(path, fit("SMIC", {}, X))
    for given, expected in ((3000, os.cpu_count()), (-3000, -1), (1, 1), (None, None)):

        def change(text, given=given):
            find(text, "search")["n_jobs"] = given
            state_of(text, "NeighborSearch")["_n_jobs"] = given

        edit(path, change)
        search = load_model(path).model._row_weights.__self__.search
        assert search._n_jobs == search._backend.n_jobs == expected


def test_what_cached_properties_have_found_is_found_again(tmp_path):
    """Row numbers of distinct points in a file could be out of range."""
    path = tmp_path / "m"
    model = fit("SoftLabelMVC", {}, X)
    before = model.decision_function(NEW)  # fills the caches
    save_model(path, model)

    def change(text):
        state = state_of(text, "Copies")
        assert "first" in state
        state["first"] = state["counts"]

    edit(path, change)
    np.testing.assert_array_equal(load_model(path).model.decision_function(NEW), before)


def test_trees_that_name_no_clusters_or_features(saved):
    content = saved.read_bytes()

    def leaf(text):
        nodes = [n["state"] for n in text["nodes"] if n.get("class") == "SplitNode/1"]
        return next(state for state in nodes if state["label"] is not None)

    def far_feature(text):
        nodes = [n["state"] for n in text["nodes"] if n.get("class") == "SplitNode/1"]
        split = next(state for state in nodes if state["label"] is None)
        pair = text["nodes"][split["leading"]["ref"]]["items"][0]["ref"]
        text["nodes"][pair]["items"][0] = -5

    for change, message in (
        (lambda text: leaf(text).update(label=7), "clusters are not numbered"),
        (lambda text: leaf(text).update(label=None), "clusters are not numbered"),
        (lambda text: leaf(text).update(label="a"), "str as 'label'"),
        (lambda text: leaf(text).update(warnings="a"), "str as 'warnings'"),
        (far_feature, "splits with unknown features"),
    ):
        saved.write_bytes(content)
        edit(saved, change)
        refused(saved, message)


def test_a_trial_does_not_refuse_rows_far_from_zero(tmp_path):
    """A model may not be able to score zeros, but can score its training rows."""
    rows = X * 1e10 + 1e12
    for name in ("MSPC", "SoftLabelMVC", "KernelKMeans", "NormalizedCut", "SKMMC"):
        model = fit(name, {}, rows)
        save_model(tmp_path / name, model)
        again = load_model(tmp_path / name).model
        np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


@pytest.mark.parametrize("n_clusters", [2, 3])
@pytest.mark.parametrize("name", ["NormalizedCut", "HardLabelMVC", "SMIC"])
def test_a_trial_does_not_refuse_directions_away_from_ones(tmp_path, name, n_clusters):
    """Zeros have no cosine and ones may have negative cosines, unlike training rows."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 3)) * 0.1 - np.array([[1.0, 1, 9], [9, 1, 1]])[[0, 1] * 15]
    params = {"affinity": "cosine_knn", "n_clusters": n_clusters}
    model = fit(name, params, rows)
    save_model(tmp_path / name, model)
    again = load_model(tmp_path / name).model
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


@pytest.mark.parametrize("name", ["MSPC", "KernelKMeans"])
def test_a_clusterer_that_was_given_is_not_fitted(tmp_path, name):
    """The clusterer is a parameter, and has no fitted attributes."""
    given = getattr(volmar, name)(random_state=0)
    model = volmar.TableClusterer(2, clusterer=given, random_state=0).fit(table())
    save_model(tmp_path / "t.volmar", model)
    again = load_model(tmp_path / "t.volmar").model
    np.testing.assert_array_equal(again.predict(table()), model.predict(table()))


@pytest.mark.parametrize("name", sorted(RULES))
def test_rules_are_those_of_classes(name):
    assert f"{name}/1" in CLASSES


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_annotations_of_classes_can_be_read(name):
    get_type_hints(class_named(name))
