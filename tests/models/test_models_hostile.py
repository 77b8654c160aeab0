"""Damaged, old and malicious model files: no code is executed."""

import json
import os
import pickle
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from helpers.models import (
    X,
    edit,
    find,
    fit,
    forge,
    npy,
    parts_of,
    refused,
    refused_value,
    save_value,
)
from scipy import sparse

import volmar
from volmar.base import SplitTree
from volmar.models import ModelError, SavedModel, archive, load_model, save_model
from volmar.models.classes import class_named
from volmar.models.decode import Decoder
from volmar.models.encode import Encoder


def test_forged_files_would_load_if_they_were_right(saved):
    edit(saved, lambda text: None)
    assert isinstance(load_model(saved), SavedModel)


def test_files_that_are_none(tmp_path, saved):
    refused(tmp_path / "nothing", "does not exist")
    refused(tmp_path, "is not a file")
    (tmp_path / "x").write_bytes(b"")
    refused(tmp_path / "x", "is not a model file")
    (tmp_path / "x").write_bytes(pickle.dumps(Bomb()))
    refused(tmp_path / "x", "is not a model file")
    content = saved.read_bytes()
    for length in (1, 100, len(content) // 2, len(content) - 1):
        (tmp_path / "x").write_bytes(content[:length])
        refused(tmp_path / "x", "is not a model file|damaged|claims")
    forge(tmp_path / "x", {"a.txt": "a"})
    refused(tmp_path / "x", "holds 'a.txt'")
    forge(tmp_path / "x", {})
    refused(tmp_path / "x", "no model.json")


def test_bytes_that_have_changed(tmp_path, saved):
    """A wrong byte gives a message of one line, or does not change the model."""
    content = bytearray(saved.read_bytes())
    rng = np.random.default_rng(0)
    n_refused = 0
    for position in rng.choice(len(content), 300, replace=False):
        wrong = content.copy()
        wrong[position] ^= 1 << int(rng.integers(8))
        (tmp_path / "x").write_bytes(wrong)
        try:
            load_model(tmp_path / "x")
        except ModelError:  # any other error fails the test
            n_refused += 1
    assert n_refused > 200


def test_names_that_lead_out(saved, tmp_path):
    parts = parts_of(saved)
    for name in ("../evil.npy", "/etc/evil", "arrays/../../evil.npy", "arrays/00.npy", "arrays/"):
        forge(tmp_path / "x", {**parts, name: b"x"})
        refused(tmp_path / "x", "not part of a model file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.volmar", "x"]
    edit(saved, lambda text: find(text, "array").update(file="../../etc/passwd"))
    refused(saved, "names the array '../../etc/passwd'")


def test_compressed_members_are_refused(saved, tmp_path):
    """The content of a file cannot be larger than the file."""
    forge(tmp_path / "x", {**parts_of(saved), "arrays/99.npy": bytes(10**7)}, zipfile.ZIP_DEFLATED)
    refused(tmp_path / "x", "compressed")


def test_sizes_that_are_claimed(saved, tmp_path, monkeypatch):
    with zipfile.ZipFile(saved) as file:
        size = file.getinfo("arrays/0.npy").file_size
    content = saved.read_bytes()
    directory = content.rindex(b"arrays/0.npy") - 46 + 20
    assert content[directory : directory + 8] == 2 * size.to_bytes(4, "little")
    huge = (2**31).to_bytes(4, "little")
    (tmp_path / "x").write_bytes(content[:directory] + 2 * huge + content[directory + 8 :])
    refused(tmp_path / "x", "claims to hold more bytes than it has")
    monkeypatch.setattr(archive, "available_memory", lambda: 10_000)
    refused(saved, "GiB are available")
    monkeypatch.undo()
    monkeypatch.setattr(archive, "MAX_TEXT", 100)
    refused(saved, "above the limit")


def test_a_part_that_is_there_twice(saved, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(saved, "a") as file:
        file.writestr("model.json", "{}")
    refused(saved, "duplicate member")


class Bomb:
    """Creates a file when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_arrays_that_are_wrong(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = npy(np.zeros(3))
    head = good[: len(good) - 24]
    wrong = {
        "objects": npy(np.array([Bomb()]), allow_pickle=True),
        "records": npy(np.zeros(2, dtype="i4,f4")),
        "longer": good + b"x",
        "shorter": good[:-1],
        "huge": good.replace(b"(3,), }" + b" " * 12, b"(3000000000000,), }"),
        "negative": good.replace(b"(3,), } ", b"(-3,), }"),
        "no header": b"\x93NUMPY\x01\x00",
        "other version": good[:6] + b"\x03" + good[7:],
        "code": head.replace(b"(3,)", b"f() ") + bytes(24),
        "truth": npy(np.array([True])).replace(b"\n\x01", b"\n\x02"),
        "text": npy(np.array(["ab"]))[:-4] + b"\xff" * 4,
        "empty": b"",
    }
    assert wrong["huge"] != good
    assert wrong["negative"] != good
    assert len(wrong["truth"]) == len(npy(np.array([True])))
    parts = parts_of(saved)
    for content in wrong.values():
        forge(tmp_path / "x", {**parts, "arrays/0.npy": content})
        refused(tmp_path / "x", "damaged array arrays/0.npy")
    assert not (tmp_path / "ran").exists()
    forge(tmp_path / "x", {**parts, "arrays/999.npy": good})
    refused(tmp_path / "x", "unused arrays")
    del parts["arrays/0.npy"]
    forge(tmp_path / "x", parts)
    refused(tmp_path / "x", "damaged array arrays/0.npy")


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "posix.system", "builtins.eval", "subprocess.Popen", "numpy.ndarray"),
        *("volmar.base.blocks._BlockCall", "volmar.rows.blocks.table.Blocks", "volmar.MSPC"),
        *("volmar.separation.mspc.np", "volmar.separation.mspc.Clusterer", "antigravity.x"),
        *("volmar.separation.mspc.MSPC.fit", "volmar.cli.app.app", "", ".", "evil.Evil"),
        *("volmar.graphs.neighbors.check_neighbors", "volmar.models.store.SavedModel"),
        *("MSPC", "MSPC/0", "MSPC/2", "MSPC/1/", "volmar.MSPC/1", "Clusterer/1", "load_model/1"),
    ],
)
def test_classes_that_are_not_on_the_list(name, saved, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("open('ran', 'w')\nclass Evil: pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    assert class_named(name) is None
    edit(saved, lambda text: find(text, "object").update({"class": name}))
    refused(saved, "names a class .* does not know")
    edit(saved, lambda text: find(text, "enum").update({"class": name}))
    refused(saved, "names a class .* does not know")
    assert not {"evil", "antigravity"} & (set(sys.modules) - before)
    assert not (tmp_path / "ran").exists()


def append(text, node):
    text["nodes"].append(node)
    text["preparation"] = {"ref": len(text["nodes"]) - 1}


RESULT = "SeparationResult/1"


PAIRS = "EigenPairs/1"


STATUS = "Status/1"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"is": "function", "name": "os.system"}, "names a function 'os.system'"),
        ({"is": "function", "name": "kernel eval"}, "names a function"),
        ({"is": "weights", "of": {"ref": 0}}, "has the weights"),
        ({"is": "reduce", "name": "os.system"}, "unknown kind, 'reduce'"),
        ({"is": ["list"], "items": []}, "unknown kind"),
        ({"is": "list", "items": [], "more": 1}, "malformed"),
        ({"is": "list"}, "malformed"),
        ({"is": "list", "items": {}}, "in place of a list"),
        ({"is": "list", "items": [[1]]}, "in place of a value or a reference"),
        ({"is": "list", "items": [{"ref": 10**6}]}, "in place of a value or a reference"),
        ({"is": "list", "items": [{"ref": -1}]}, "in place of a value or a reference"),
        ({"is": "list", "items": [{"ref": True}]}, "in place of a value or a reference"),
        ({"is": "list", "items": [{"ref": "0"}]}, "in place of a value or a reference"),
        ({"is": "list", "items": [{"float": "1"}]}, "in place of a value or a reference"),
        ({"is": "dict", "items": [[1]]}, "not a key and a value"),
        ({"is": "dict", "items": [[{"ref": 0}, 1]]}, "has a key"),
        ({"is": "set", "items": [{"ref": 0}]}, "has a key"),
        ({"is": "array", "file": 3}, "names the array 3 out of order"),
        ({"is": "array", "file": "arrays/0.npy"}, "out of order"),
        ({"is": "object array", "shape": [2], "items": [1]}, "whose items do not fit the shape"),
        ({"is": "object array", "shape": [-1], "items": []}, "whose items do not fit the shape"),
        ({"is": "object array", "shape": [1], "items": [{"ref": 0}]}, "not plain values"),
        ({"is": "scalar", "dtype": "|O8", "bytes": "00" * 8}, "unknown dtype"),
        ({"is": "scalar", "dtype": "i4,i4", "bytes": "00" * 8}, "unknown dtype"),
        ({"is": "scalar", "dtype": "<f8", "bytes": "00"}, "malformed number"),
        ({"is": "scalar", "dtype": "<f8", "bytes": "zz" * 8}, "malformed number"),
        ({"is": "scalar", "dtype": "|b1", "bytes": "02"}, "malformed number"),
        ({"is": "dtype", "name": "O"}, "unknown dtype"),
        ({"is": "search", "rows": 1, "n_jobs": None}, "without valid rows"),
        ({"is": "enum", "class": STATUS, "name": "mro"}, "unknown value of"),
        ({"is": "enum", "class": RESULT, "name": "x"}, "unknown value of"),
        ({"is": "object", "class": RESULT, "state": {}}, "SeparationResult that lacks"),
        ({"is": "object", "class": 3, "state": {}}, "in place of a str"),
        ({"is": "object", "class": PAIRS, "state": {}}, "EigenPairs that lacks"),
        (
            {"is": "object", "class": STATUS, "state": {}},
            "an enumeration with attributes",
        ),
        (3, "in place of a dict"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_parts_that_are_wrong(node, message, saved):
    edit(saved, lambda text: append(text, node))
    refused(saved, message)


@pytest.mark.parametrize(
    "name", ["predict", "__class__", "__dict__", "_scores", "unknown", "not a name", "_validate"]
)
def test_attributes_that_are_wrong(name, saved):
    def add(text):
        text["nodes"][text["model"]["ref"]]["state"][name] = 1

    edit(saved, add)
    refused(saved, "attribute")


def test_sparse_matrices_that_are_wrong(tmp_path):
    """Compiled code would read outside of the arrays."""
    matrix = sparse.csr_array(np.eye(4))
    path = tmp_path / "m"
    for name in ("indices", "indptr", "data"):
        for wrong in (np.array([0, 1, 2, 10**6]), np.array([-5, 1, 2, 3]), np.zeros(2), X):
            save_value(path, matrix)
            parts = parts_of(path)
            text = json.loads(parts["model.json"])
            place = find(text, "sparse")[name]["ref"]
            if name == "data":  # any data of the right length would be accepted
                array = wrong.astype("U") if wrong.shape == (4,) else wrong
            else:
                array = wrong.astype(np.int32)
            forge(path, {**parts, text["nodes"][place]["file"]: npy(array)})
            refused_value(path, "do not fit together")
    for shape in ([4, 3], [4, -4], [4], [2**63, 4], [4.0, 4]):
        save_value(path, matrix)

        def change(text, shape=shape):
            text["nodes"][find(text, "sparse")["shape"]["ref"]]["items"] = shape

        edit(path, change)
        refused_value(path, "do not fit together")


@pytest.mark.parametrize(
    "change", [{"array": []}, {"array": 1}, {"format": {}}, {"format": "coo"}, {"shape": None}]
)
def test_sparse_matrices_of_no_kind(change, tmp_path):
    save_value(tmp_path / "m", sparse.csr_array(np.eye(4)))
    edit(tmp_path / "m", lambda text: find(text, "sparse").update(change))
    refused_value(tmp_path / "m", "do not fit together")


def test_copies_of_one_matrix_do_not_fill_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "m"
    save_value(path, [sparse.csr_array(np.eye(50))])

    def repeat(text):
        text["nodes"] += [find(text, "sparse")] * 1000

    edit(path, repeat)
    monkeypatch.setattr("volmar.models.decode.available_memory", lambda: 100_000)
    refused_value(path, "needs more memory")


def test_rows_that_cannot_be_searched(tmp_path):
    path = tmp_path / "m"
    save_model(path, fit("SMIC", {}, X))
    for wrong in ("all", 0, True, 2.0):
        edit(path, lambda text, wrong=wrong: find(text, "search").update(n_jobs=wrong))
        refused(path, "invalid n_jobs")
    save_model(path, fit("SMIC", {}, X), force=True)
    parts = parts_of(path)
    text = json.loads(parts["model.json"])
    file = text["nodes"][find(text, "search")["rows"]["ref"]]["file"]
    forge(path, {**parts, file: npy(np.full(X.shape, np.nan))})
    refused(path, "without valid rows")


def test_trees_deeper_than_the_stack_come_back(model, tmp_path):
    node = leaf = next(iter(model.tree_.leaves()))
    for rank in range(2000, 0, -1):
        other = replace(leaf)
        node = type(node)(n_rows=1, weight=1.0, rank=rank, children=(other, node))
    model.tree_ = SplitTree(node)
    save_model(tmp_path / "deep", model)
    assert len(load_model(tmp_path / "deep").model.tree_.splits()) == 2000
    for rank in range(2000):
        node = type(node)(n_rows=1, weight=1.0, rank=rank, children=(replace(leaf), node))
    model.tree_ = SplitTree(node)
    save_model(tmp_path / "deep", model, force=True)
    refused(tmp_path / "deep", "splits that is too deep")


def test_files_older_than_a_field_take_its_default(saved):
    """Older files have tree nodes without a level."""

    def forget(text):
        nodes = [n for n in text["nodes"] if n.get("class") == "SplitNode/1"]
        assert len(nodes) > 2
        for node in nodes:
            for name in ("level", "p_minimum", "has_way_around"):
                del node["state"][name]

    edit(saved, forget)
    tree = load_model(saved).model.tree_
    assert all(np.isnan(node.level) and node.p_minimum == 0 for node in tree.nodes())
    assert "cluster 0" in str(tree)
    save_model(saved, load_model(saved).model, force=True)
    load_model(saved)
    name = {"class": "SplitNode/1"}
    edit(saved, lambda text: find(text, "object", **name)["state"].pop("weight"))
    refused(saved, "SplitNode that lacks 'weight'")


def test_trees_that_meet_again(saved, model, tmp_path):
    """Ten nodes, each of which is both children of the previous one, have 1,024 paths."""
    node = next(iter(model.tree_.leaves()))
    for _ in range(10):
        node = type(node)(n_rows=1, weight=1.0, children=(node, node))
    model.tree_ = SplitTree(node)
    save_model(tmp_path / "x", model)
    refused(tmp_path / "x", "tree of splits that is not a binary tree")
    for _ in range(50):
        node = type(node)(n_rows=1, weight=1.0, children=(node, node))
    model.tree_ = SplitTree(node)
    with pytest.raises(ModelError, match="holds more than"):
        save_model(tmp_path / "x", model, force=True)


@pytest.mark.parametrize(
    "content",
    [
        *("", "null", "[]", "{", "[" * 10**6, '{"format": 2, "volmar": "x"}', "9" * 5000, "NaN"),
        *('{"format": true, "volmar": ""}', '{"format": 0, "volmar": ""}', '{"format": "1"}'),
        *('{"format": 2}', "\ud800"),
    ],
    ids=lambda value: ascii(value[:20]),
)
def test_texts_that_are_wrong(content, saved):
    forge(saved, {**parts_of(saved), "model.json": content.encode("utf-8", "surrogatepass")})
    refused(saved, r"model\.json")


def test_what_is_saved_must_be_a_fitted_model(saved):
    def unfit(text):
        del text["nodes"][text["model"]["ref"]]["state"]["n_features_in_"]

    for change, message in (
        (lambda text: text.update(model=None), "holds a NoneType, not an estimator"),
        (lambda text: text.update(model={"ref": 0}), "not an estimator"),
        (lambda text: text.update(nodes={}), "in place of a list"),
        (lambda text: text.update(more=1), "malformed"),
    ):
        content = saved.read_bytes()
        edit(saved, change)
        refused(saved, message)
        saved.write_bytes(content)
    edit(saved, unfit)
    refused(saved, "MSPC that is not fitted")


def test_other_versions(saved):
    assert load_model(saved).version == volmar.__version__
    edit(saved, lambda text: text.update(volmar="0.0.1"))
    with pytest.warns(UserWarning, match=r"written by volmar 0\.0\.1.*Fit and save the model"):
        assert load_model(saved).version == "0.0.1"
    edit(saved, lambda text: text.update(format=1))
    refused(saved, r"has format 1.*Fit and save the model")
    edit(saved, lambda text: text.update(format=3, volmar="99.0", unheard=[]))
    refused(saved, r"has format 3, written by volmar '99\.0'.*Install the newer version")


def test_loading_calls_nothing_of_the_classes(saved, monkeypatch):
    """Neither constructors nor pickle methods are called."""

    def refuse(*_, **__):
        raise AssertionError("called")

    for cls in (volmar.MSPC, SplitTree, type(load_model(saved).model.result_)):
        for name in ("__init__", "__setstate__", "__reduce_ex__", "__post_init__", "__setattr__"):
            monkeypatch.setattr(cls, name, refuse, raising=False)
    assert load_model(saved).model.tree_.n_leaves == 3


def test_an_encoder_keeps_what_it_has_numbered(tmp_path):
    """A reference belongs to one object, even if its address is reused after deletion."""
    encoder = Encoder()
    for i in range(200):
        encoder.add([[i]], "x")
    forge(tmp_path / "x", {"model.json": "{}"})
    with archive.Archive(tmp_path / "x") as file:
        decoder = Decoder(file, encoder.nodes)
    assert decoder.value({"ref": len(encoder.nodes) - 1}) == [[199]]


def test_files_older_than_a_parameter_take_its_default(tmp_path):
    path = tmp_path / "model.volmar"
    model = volmar.NormalizedCut(3, alpha=0.2, random_state=0).fit(X)
    save_model(path, model)

    def forget(text):
        for name in ("alpha", "max_clusters"):
            del text["nodes"][text["model"]["ref"]]["state"][name]

    edit(path, forget)
    again = load_model(path).model
    assert again.alpha == 0.05
    assert again.max_clusters is None
    np.testing.assert_array_equal(again.predict(X), model.labels_)
    np.testing.assert_array_equal(again.fit(X).labels_, model.labels_)
