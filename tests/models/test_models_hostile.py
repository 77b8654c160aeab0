"""Damaged, old and malicious model files: no code is executed, and nothing crashes or hangs."""

import io
import json
import os
import pickle
import sys
import zipfile
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from helpers.models import (
    NEW,
    X,
    edit,
    find,
    fit,
    forge,
    nodes,
    npy,
    parts_of,
    plain,
    refused,
    state_of,
)
from scipy import sparse

import volmar
from volmar import models
from volmar.base import SplitTree
from volmar.models import ModelError, SavedModel, load_model, save_model


class Bomb:
    """Creates a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


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
    refused(tmp_path / "x", r"lacks schema\.json")
    forge(tmp_path / "x", {})
    refused(tmp_path / "x", r"lacks schema\.json")


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
    for name in ("../evil.npy", "/etc/evil", "0.npy/../../evil.npy", "00.npy", "x/", "0.bin"):
        forge(tmp_path / "x", {**parts, name: b"x"})
        refused(tmp_path / "x", "unused arrays")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.volmar", "x"]
    for name in ("../../etc/passwd", "schema.json", 3, None):
        forge(saved, parts)
        edit(saved, lambda text, name=name: find(text, loader="NdArrayNode").update(file=name))
        refused(saved, "is damaged|unused arrays")


def test_compressed_members_are_refused(saved, tmp_path):
    """The content of a file cannot be larger than the file."""
    forge(tmp_path / "x", {**parts_of(saved), "99.npy": bytes(10**7)}, zipfile.ZIP_DEFLATED)
    refused(tmp_path / "x", "compressed")


def test_sizes_that_are_claimed(saved, tmp_path, monkeypatch):
    with zipfile.ZipFile(saved) as file:
        size = file.getinfo("0.npy").file_size
    content = saved.read_bytes()
    starts = [i for i in range(len(content)) if content.startswith(b"PK\x01\x02", i)]
    directory = next(i for i in starts if content.startswith(b"0.npy", i + 46)) + 20
    assert content[directory : directory + 8] == 2 * size.to_bytes(4, "little")
    huge = (2**31).to_bytes(4, "little")
    (tmp_path / "x").write_bytes(content[:directory] + 2 * huge + content[directory + 8 :])
    refused(tmp_path / "x", "claims to hold more bytes than it has")
    monkeypatch.setattr(models, "available_memory", lambda: 10_000)
    refused(saved, "more memory than is available")


def test_one_array_of_many_nodes_does_not_fill_the_memory(saved, monkeypatch):
    parts = parts_of(saved)
    forge(saved, {**parts, "0.npy": npy(np.zeros(20_000))})

    def repeat(text):
        array = find(text, loader="NdArrayNode", **{"class": "ndarray"}) | {"file": "0.npy"}
        many = {"__loader__": "ListNode", "__class__": "list", "content": [array] * 10_000}
        state_of(text, "MSPC")["reg"] = many

    edit(saved, repeat)
    monkeypatch.setattr(models, "available_memory", lambda: saved.stat().st_size * 26)
    refused(saved, "more memory than is available")


def test_a_part_that_is_there_twice(saved, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(saved, "a") as file:
        file.writestr("schema.json", "{}")
    refused(saved, "a part twice")


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
    parts = parts_of(saved)
    for content in wrong.values():
        forge(tmp_path / "x", {**parts, "0.npy": content})
        refused(tmp_path / "x", "is damaged")
    assert not (tmp_path / "ran").exists()
    forge(tmp_path / "x", {**parts, "999.npy": good})
    refused(tmp_path / "x", "unused arrays")
    del parts["0.npy"]
    forge(tmp_path / "x", parts)
    refused(tmp_path / "x", "lacks arrays")


LOADERS = (
    *("ObjectNode", "FunctionNode", "TypeNode", "ConstructorFromReduceNode", "PartialNode"),
    *("OperatorFuncNode", "RandomStateNode", "RandomGeneratorNode", "TreeNode", "LossNode"),
    *("DefaultDictNode", "SetNode", "SliceNode", "BytesNode", "CachedNode", "MaskedArrayNode"),
    *("MethodNode", "ReduceNode", "BytearrayNode", "_DictWithDeprecatedKeysNode"),
)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("os", "system"), ("builtins", "eval"), ("subprocess", "Popen"), ("numpy", "save")),
        *(("evil", "Evil"), ("antigravity", "x"), ("volmar.separation.mspc", "MSPC")),
        *(("sklearn.cluster", "KMeans"), ("sklearn.preprocessing", "FunctionTransformer")),
        *(("sklearn.tree._tree", "Tree"), ("functools", "partial"), ("operator", "methodcaller")),
        *(("", "MSPC"), ("", "MSPC/0"), ("", "MSPC/2"), ("", "Clusterer/1"), ("", "")),
        *((None, None), (3, []), ("volmar.models", "load_model/1"), ("scipy.special", "expit")),
    ],
)
def test_types_that_are_not_on_the_list(module, name, saved, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("open('ran', 'w')\nclass Evil: pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    content = saved.read_bytes()
    for loader in LOADERS:
        node = {"__loader__": loader, "__module__": module, "__class__": name, "content": {}}
        saved.write_bytes(content)
        edit(saved, lambda text, node=node: state_of(text, "MSPC").update(reg=node))
        refused(saved, "which no model file holds|is damaged")
    assert not {"evil", "antigravity"} & (set(sys.modules) - before)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("loader", LOADERS)
def test_classes_of_the_list_are_not_called(loader, saved):
    """Other loaders of skops call the class with values of the file."""
    if loader == "ObjectNode":
        return
    cls = {"__module__": "volmar.graphs.neighbors", "__class__": "NeighborSearch/1"}
    node = {"__loader__": loader, **cls, "content": {"__loader__": "JsonNode"}, "file": "0.npy"}
    edit(saved, lambda text: state_of(text, "MSPC").update(reg=node))
    refused(saved, "which no model file holds")


@pytest.mark.parametrize(
    "node",
    [
        {"__loader__": "FunctionNode", "__class__": "eval"},
        {"__loader__": "TypeNode", "__class__": "type"},
        {
            "__loader__": "JsonNode",
            "__class__": "str",
            "content": "[[1], [2], [3], [4], [5], [6]]",
        },
        {"__loader__": "JsonNode", "__class__": "str", "content": "9" * 400},
        {"__loader__": "JsonNode", "__class__": "str", "content": "9" * 5000},
        {"__loader__": "JsonNode", "__class__": "str", "content": "{"},
        {"__loader__": "JsonNode", "__class__": "str", "content": None},
        {"__loader__": "JsonNode", "__class__": "str"},
        {"__loader__": "ListNode", "__class__": "list", "content": 3},
        {"__loader__": "ListNode", "__class__": "list", "content": [3]},
        {"__loader__": "ListNode", "__class__": "list", "content": [{}]},
        {"__loader__": "ListNode", "__class__": "tuple", "content": []},
        {"__loader__": "DictNode", "__class__": "dict", "content": {}},
        {"__loader__": "NdArrayNode", "__class__": "ndarray", "type": "pickle", "file": "0"},
        {
            "__loader__": "NdArrayNode",
            "__class__": "ndarray",
            "type": "numpy",
            "file": "99999.npy",
        },
        {"__loader__": "SparseMatrixNode", "__class__": "csr_array", "file": "0.npy"},
        {
            "__loader__": "ConstructorFromReduceNode",
            "__class__": "Status/1",
            "content": plain("x"),
        },
        {"__loader__": "ObjectNode", "__class__": "Status/1", "content": plain("x")},
        {"__loader__": "ObjectNode", "__class__": "Graph/1", "content": plain("x")},
        {"__loader__": "ObjectNode", "__class__": "Graph/1", "content": None},
        {"__loader__": "MethodNode", "content": {"func": "fit", "obj": plain(1)}},
        {"__loader__": ["ListNode"], "__class__": "list", "content": []},
        {"__id__": 1},
        *([], 3, None, "x"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_nodes_that_are_wrong(node, saved):
    edit(saved, lambda text: state_of(text, "MSPC").update(reg=node))
    refused(saved, "is damaged|which no model file holds|lacks arrays")


def tupled(*content):
    return {"__loader__": "TupleNode", "__class__": "tuple", "content": list(content)}


def test_values_that_are_nested_too_deep_are_refused(saved, model, tmp_path):
    deep = plain(1)
    for _ in range(300):
        deep = tupled(deep)
    edit(saved, lambda text: state_of(text, "MSPC").update(reg=deep))
    refused(saved, "is damaged.*recursion")
    raw = parts_of(saved)["schema.json"].decode()
    for depth in (3000, 10**6):
        wrong = raw.replace('"format"', '"x":' + "[" * depth + "]" * depth + ',"format"', 1)
        forge(saved, {**parts_of(saved), "schema.json": wrong})
        refused(saved, "is damaged")
    for depth in (400, 5000):
        model.reg = ()
        for _ in range(depth):
            model.reg = (model.reg,)
        with pytest.raises(TypeError, match="nested"):
            save_model(tmp_path / "m", model)


def test_references_between_nodes_are_not_followed(saved):
    """Sixty tuples, each with the previous one twice, would expand to 2^60 values."""

    def change(text):
        inner = {**plain("x"), "__id__": 1}
        for number in range(2, 40):
            inner = {**tupled(inner, {"__id__": number - 1}), "__id__": number}
        state_of(text, "MSPC")["reg"] = inner

    edit(saved, change)
    refused(saved, "is damaged")


def forged_npz(**parts):
    file = io.BytesIO()
    np.savez_compressed(file, **parts)
    return file.getvalue()


def test_sparse_matrices_that_are_wrong(tmp_path):
    """Compiled code would read outside of the arrays."""
    path = tmp_path / "m"
    model = fit("KernelCPMMC", {}, sparse.csr_array(X))
    save_model(path, model)
    parts = parts_of(path)
    name = next(name for name in parts if name.endswith(".npz"))
    good = dict(np.load(io.BytesIO(parts[name])))
    forge(path, {**parts, name: forged_npz(**good)})
    np.testing.assert_array_equal(load_model(path).model.predict(X), model.labels_)
    for part, wrong in (
        ("indices", good["indices"] + 10**6),
        ("indices", good["indices"] - 5),
        ("indptr", good["indptr"][::-1].copy()),
        ("indptr", good["indptr"] * 1000),
        ("data", good["data"][:-1]),
        ("data", good["data"].astype("U8")),
        ("shape", np.array([2**62, 2**62])),
        ("shape", np.array([3, -3])),
        ("format", np.array(b"evil")),
        ("format", np.array(b"coo")),
    ):
        forge(path, {**parts, name: forged_npz(**{**good, part: wrong})})
        try:  # data of another kind may be accepted
            load_model(path).model.predict(NEW)
        except ModelError:
            continue
        except (TypeError, ValueError):
            pass
        assert part == "data"
    del good["indptr"]
    forge(path, {**parts, name: forged_npz(**good)})
    refused(path, "is damaged")
    forge(path, {**parts, name: b"PK"})
    refused(path, "is not a model file|is damaged")


def test_a_bomb_in_a_sparse_matrix_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "m"
    save_model(path, fit("KernelCPMMC", {}, sparse.csr_array(X)))
    parts = parts_of(path)
    name = next(name for name in parts if name.endswith(".npz"))
    forge(path, {**parts, name: forged_npz(data=np.zeros(10**8, np.int8))})
    monkeypatch.setattr(models, "available_memory", lambda: 5 * 10**7)
    refused(path, "more memory than is available")


def test_trees_deeper_than_the_stack_come_back(model, tmp_path):
    node = leaf = next(iter(model.tree_.leaves()))
    for rank in range(1100, 0, -1):
        node = type(node)(n_rows=1, weight=1.0, rank=rank, children=(replace(leaf), node))
    model.tree_ = SplitTree(node)
    save_model(tmp_path / "deep", model)
    assert len(load_model(tmp_path / "deep").model.tree_.splits()) == 1100


@pytest.mark.parametrize(
    "wrong", [[[0, 0]], [[0, 1]], [[1, 1]], [[1]], [[1, 2], [0, 3]], [[9, 1]]]
)
def test_trees_that_meet_again_are_refused(wrong, saved):
    """A walk over the nodes would never end."""

    def change(text):
        children = state_of(text, "SplitTree")["children"]["content"]
        for own, two in zip(children, wrong, strict=False):
            own["content"] = [plain(number) for number in two]

    edit(saved, change)
    refused(saved, "not a binary tree")


@pytest.mark.parametrize(
    "content",
    [
        *("", "null", "[]", "{", "[" * 10**6, '{"format": 4, "volmar": "x"}', "9" * 5000, "NaN"),
        *('{"format": true, "volmar": ""}', '{"format": 4}', "\ud800"),
    ],
    ids=lambda value: ascii(value[:20]),
)
def test_texts_that_are_wrong(content, saved):
    forge(saved, {**parts_of(saved), "schema.json": content.encode("utf-8", "surrogatepass")})
    refused(saved, "is damaged")


def test_what_is_saved_must_be_a_fitted_model(saved):
    content = saved.read_bytes()
    for change in (
        lambda text: text["content"].update(model=plain(None)),
        lambda text: text["content"].update(model=find(text, loader="TupleNode")),
        lambda text: text["content"].pop("preparation"),
        lambda text: text["content"].update(preparation=plain("x")),
        lambda text: text.update(plain(1)),
        lambda text: text.pop("volmar"),
    ):
        saved.write_bytes(content)
        edit(saved, change)
        refused(saved, "unused arrays|is damaged|as the preparation")


def test_other_versions(saved):
    assert load_model(saved).version == volmar.__version__
    edit(saved, lambda text: text.update(volmar="0.0.1"))
    with pytest.warns(UserWarning, match=r"written by volmar 0\.0\.1.*Fit and save the model"):
        assert load_model(saved).version == "0.0.1"
    for change in ({"format": 5}, {"format": 0}, {"protocol": 0}, {"protocol": 3}):
        edit(saved, lambda text, change=change: text.update(change, volmar="99.0"))
        refused(saved, r"written by volmar 99\.0.*Install a newer version")
    edit(saved, lambda text: text.update(format=True))
    refused(saved, "has format")


def test_files_of_earlier_formats_are_refused(saved):
    forge(saved, {"model.json": '{"format": 2, "volmar": "0.1.0"}', "arrays/0.npy": b""})
    refused(saved, "files of earlier versions.*fit and save")


def test_threads_are_those_of_this_machine(tmp_path):
    """A model must not start three thousand threads."""
    path = tmp_path / "m"
    save_model(path, fit("SMIC", {}, X))
    for given, expected in ((3000, os.cpu_count()), (-3000, -1), (1, 1), (None, None)):

        def change(text, given=given):
            state_of(text, "ExactSearch")["n_jobs"] = plain(given)
            state_of(text, "NeighborSearch")["_n_jobs"] = plain(given)

        edit(path, change)
        search = load_model(path).model._extension.search
        assert search._n_jobs == search._search.n_jobs == expected


def test_what_cached_properties_have_found_is_found_again(tmp_path):
    """Row numbers of distinct points in a file could be out of range."""
    path = tmp_path / "m"
    model = fit("SoftLabelMVC", {}, X)
    before = model.decision_function(NEW)  # fills the caches
    save_model(path, model)
    assert "first" not in state_of(json.loads(parts_of(path)["schema.json"]), "Copies")

    def change(text):
        copies = find(text, loader="ObjectNode", **{"class": "Copies/1"})["content"]
        copies["content"]["first"] = copies["content"]["counts"]
        copies["key_types"]["content"] *= 2

    edit(path, change)
    np.testing.assert_array_equal(load_model(path).model.decision_function(NEW), before)


WRONG = (None, True, 0, -1, 10**9, 2**63 - 1, 1e308, 1e-320, float("nan"), "", "x", "precomputed")


@pytest.mark.parametrize("name", ["MSPC", "CPMMC", "KernelCPMMC", "SKMMC", "SoftLabelMVC", "SMIC"])
def test_wrong_values_end_in_an_error_or_in_numbers(name, tmp_path):
    """No crash and no hang: any ordinary exception is allowed after loading."""
    path = tmp_path / "m"
    save_model(path, fit(name, {"n_clusters": 3}, X))
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    n = len(list(nodes(json.loads(parts_of(path)["schema.json"]))))
    n_loaded = 0
    for place in rng.choice(n, 40, replace=False):
        path.write_bytes(content)
        value = WRONG[rng.integers(len(WRONG))]

        def change(text, place=place, value=value):
            node = list(nodes(text))[place]
            node.clear()
            node.update(plain(value))

        edit(path, change)
        try:
            model = load_model(path).model
        except ModelError:
            continue
        n_loaded += 1
        with suppress(Exception):
            model.predict(NEW)
    assert n_loaded > 5


@pytest.mark.parametrize("name", ["MSPC", "CPMMC", "KernelCPMMC", "SKMMC", "SoftLabelMVC", "SMIC"])
def test_wrong_arrays_end_in_an_error_or_in_numbers(name, tmp_path):
    path = tmp_path / "m"
    save_model(path, fit(name, {"n_clusters": 3}, X))
    parts = parts_of(path)
    for member in [one for one in parts if one.endswith(".npy")][::2]:
        array = np.load(io.BytesIO(parts[member]))
        numbers = array if array.dtype.kind in "biuf" else np.zeros(array.shape)
        for wrong in (
            array.ravel()[:-1],
            np.concatenate([array.ravel(), array.ravel()]),
            np.full(array.shape, np.nan),
            (numbers.astype(float) * 10**6).astype(array.dtype if numbers is array else float),
            np.full(array.shape, "a"),
            array.reshape(1, *array.shape),
        ):
            forge(path, {**parts, member: npy(np.asarray(wrong))})
            with suppress(Exception):
                load_model(path).model.predict(NEW)
