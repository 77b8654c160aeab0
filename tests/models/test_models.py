"""Saved models: what comes back is what went in, and a hostile file runs nothing."""

import copy
import io
import json
import os
import pickle
import re
import subprocess
import sys
import warnings
import zipfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import MappingProxyType

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import is_clusterer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import KNeighborsTransformer

import volmar
from volmar import graphs
from volmar.base import SplitTree
from volmar.graphs import LocalScalingSimilarity
from volmar.graphs.neighbor_backends import FaissBackend, PyNNDescentBackend
from volmar.models import ModelError, SavedModel, archive, load_model, save_model
from volmar.models.classes import CLASSES, class_named, name_of
from volmar.models.decode import Decoder
from volmar.models.encode import Encoder
from volmar.solvers import Status
from volmar.tables import Preparation

# `TableClusterer` takes tables, and has tests of its own below.
ESTIMATORS = [n for n in volmar.__all__ if n not in ("__version__", "TableClusterer")]


def blobs(seed=0):
    rng = np.random.default_rng(seed)
    centres = [[1.0, 1, 1], [9, 2, 1], [2, 9, 5]]
    return np.abs(np.vstack([rng.normal(c, 0.6, (20, 3)) for c in centres])) + 0.01


X = blobs()
NEW = blobs(1)[::2]


def similarities(rows):
    return rbf_kernel(rows, X, gamma=0.05)


def labels_for(name, n):
    """Classes, where the estimator is a classifier."""
    if is_clusterer(getattr(volmar, name)()):
        return None
    return np.repeat(["one", "two"], [n // 3, n - n // 3])


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
        ("MSPC", {"multiway": "pairwise", "n_clusters": 3}),
        ("SoftLabelMVC", {"mode": "paper"}),
        ("SoftLabelMVC", {"mode": "aistats"}),
        ("SoftLabelMVC", {"Q": "kernel", "n_clusters": 3}),
        ("SDPMMC", {"mode": "paper"}),
        ("SKMMC", {"basis": "single"}),
    ):
        yield f"{name}-{'-'.join(map(str, settings.values()))}", name, settings, X, NEW
    for similarity in (
        graphs.CosineKNNSimilarity(n_neighbors=5),
        graphs.DensityScalingSimilarity(),
        graphs.GaussianSimilarity(),
        graphs.LocalScalingSimilarity(),
        graphs.NearestNeighborsSimilarity(n_neighbors=5),
    ):
        case = f"SMIC-{type(similarity).__name__}"
        yield case, "SMIC", {"affinity": similarity}, X, NEW
    for name in ("CPMMC", "MSPC", "MultivariateMMC", "SoftLabelMVC", "KernelKMeans"):
        yield f"{name}-auto", name, {"n_clusters": "auto"}, X, NEW
    if find_spec("faiss"):
        faiss = LocalScalingSimilarity(n_neighbors=5, neighbors="faiss", random_state=0)
        yield "SMIC-faiss", "SMIC", {"affinity": faiss}, X, NEW
    yield "MSPC-one", "MSPC", {"n_clusters": 1}, X, NEW
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


def fit(name, settings, rows):
    model = getattr(volmar, name)(random_state=0, **settings)
    y = labels_for(name, rows.shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations and of disconnected graphs
        return model.fit(rows) if y is None else model.fit(rows, y)


def in_a_fresh_process(folder, new):
    """Load and use models where nothing of volmar was imported before."""
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
        # Exactly, but for the order in which another number of threads adds up.
        scale = max(1.0, float(np.abs(scores).max()))
        exact = 1e-12 if scores.dtype == np.float64 else 1e-5
        difference = np.abs(scores - model.decision_function(new[key]))
        assert difference.max() <= exact * scale, key
        np.testing.assert_array_equal(labels, model.predict(new[key]), err_msg=key)
        assert vars(again).keys() == vars(model).keys()
        assert again.get_params().keys() == model.get_params().keys()
        if hasattr(model, "labels_"):
            np.testing.assert_array_equal(again.labels_, model.labels_)
            assert again.status_ is model.status_
        assert dict(again.result_.residuals) == pytest.approx(
            dict(model.result_.residuals), nan_ok=True
        )
    assert found["MSPC-deep"][2].tree_.n_leaves == 25


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_table_of_names_is_right(name):
    """Every name is that of a class, the last version of which is written."""
    cls = class_named(name)
    assert isinstance(cls, type)
    assert class_named(name_of(cls)) is cls
    assert re.fullmatch(r"\w+/[1-9]\d*", name)


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
    assert left == {"_skl_callbacks"}


@pytest.fixture(scope="module")
def fitted_once():
    return fit("MSPC", {"n_clusters": 3}, X)


@pytest.fixture
def model(fitted_once):
    return copy.deepcopy(fitted_once)


@pytest.fixture
def saved(model, tmp_path):
    save_model(tmp_path / "m.volmar", model)
    return tmp_path / "m.volmar"


def test_the_same_model_gives_the_same_bytes(model, saved, tmp_path):
    save_model(tmp_path / "n.volmar", model)
    assert (tmp_path / "n.volmar").read_bytes() == saved.read_bytes()
    # The second generation, too.
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
    write = archive._write_zip

    def slowly(*arguments):
        write(*arguments)
        path.write_text("mine")

    monkeypatch.setattr(archive, "_write_zip", slowly)
    with pytest.raises(ModelError, match="exists already"):
        save_model(path, model)
    assert path.read_text() == "mine"


def test_an_interrupted_save_leaves_nothing(model, saved, monkeypatch):
    before = saved.read_bytes()

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(archive.npy, "write_array", stop)
    with pytest.raises(KeyboardInterrupt):
        save_model(saved, model, force=True)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert saved.read_bytes() == before


def test_places_that_cannot_be_written(model, tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="is a folder"):
        save_model(tmp_path, model)
    with pytest.raises(ModelError, match=r"cannot be written.*no folder"):
        save_model(tmp_path / "nowhere" / "m", model)
    monkeypatch.setattr(archive, "MAX_TEXT", 1000)
    with pytest.raises(ModelError, match="over the limit of 1000"):
        save_model(tmp_path / "m", model)


def a_kernel(A, B):
    return A @ B.T


class Mine(volmar.MSPC):
    pass


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("KernelKMeans", {"kernel": a_kernel}, r"model\.kernel is a function \(a_kernel\)"),
        ("KernelKMeans", {"kernel": lambda A, B: A @ B.T}, r"model\.kernel is a function"),
        ("SMIC", {"affinity": lambda A, B: similarities(A)}, r"model\.affinity is a function"),
        (
            "SMIC",
            {
                "affinity": LocalScalingSimilarity(
                    neighbors=KNeighborsTransformer(n_neighbors=20), n_neighbors=3
                )
            },
            r"model\.affinity\.neighbors is a sklearn\.neighbors",
        ),
    ],
)
def test_what_cannot_be_saved(name, settings, message, tmp_path):
    model = fit(name, settings, X)
    with pytest.raises(TypeError, match=message):
        save_model(tmp_path / "m", model)
    assert not list(tmp_path.iterdir())


def test_random_states_are_named_with_a_remedy(tmp_path):
    model = volmar.MSPC(random_state=np.random.RandomState(0)).fit(X)
    with pytest.raises(TypeError, match=r"model\.random_state is a RandomState.*set_params"):
        save_model(tmp_path / "m", model)
    save_model(tmp_path / "m", model.set_params(random_state=None))
    np.testing.assert_array_equal(load_model(tmp_path / "m").model.predict(X), model.labels_)


def test_what_is_no_model(model, tmp_path):
    with pytest.raises(TypeError, match="must be an estimator of volmar, such as MSPC, got dict"):
        save_model(tmp_path / "m", {})
    with pytest.raises(TypeError, match="got Mine"):
        save_model(tmp_path / "m", Mine().fit(X))
    with pytest.raises(ModelError, match="MSPC is not fitted"):
        save_model(tmp_path / "m", volmar.MSPC())
    model.anything = 1
    with pytest.raises(TypeError, match="unknown attribute 'anything'"):
        save_model(tmp_path / "m", model)


def round_trip(value, tmp_path, model):
    save_model(tmp_path / "p", model, preparation=value, force=True)
    return load_model(tmp_path / "p").preparation


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        10**30,
        -0.1,
        float("inf"),
        float("-inf"),
        "ä\ud800\0\n",
        [],
        (1, ("a", [2.5])),
        {"a": 1, 2: "b", 3.5: None, None: [], (1, "x"): {}, True: 0, Status.CONVERGED: 1},
        {1, "a"},
        np.float32(0.1),
        np.int64(-3),
        np.bool_(True),
        np.bytes_(b"ab"),
        np.datetime64("2024-01-01"),
        np.dtype("<f4"),
        Status.MAX_ITER,
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_plain_values_come_back(value, tmp_path, model):
    again = round_trip(value, tmp_path, model)
    assert type(again) is type(value)
    assert again == value


def test_values_without_equality_come_back(tmp_path, model):
    assert np.isnan(round_trip(float("nan"), tmp_path, model))
    proxy = round_trip(MappingProxyType({"a": 1}), tmp_path, model)
    assert type(proxy) is MappingProxyType
    assert dict(proxy) == {"a": 1}
    assert round_trip(np.str_("a"), tmp_path, model) == "a"
    for array in (
        np.zeros((0, 3)),
        np.array(1.5),
        np.asfortranarray(X),
        X[::2, ::-1],
        np.array(["a", "größe"]),
        np.array([["a", None], [1, 2.5]], dtype=object),
        np.array(["2024-01-01"], dtype="M8[D]"),
        np.array([True, False]),
        X.astype(">f4"),
        X + 1j,
    ):
        again = round_trip(array, tmp_path, model)
        np.testing.assert_array_equal(again, array)
        assert (again.dtype, again.shape) == (array.dtype, array.shape)
        assert again.flags.writeable
        assert again.flags.f_contiguous or not array.flags.f_contiguous


@pytest.mark.parametrize(
    "make",
    [sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array],
)
def test_sparse_matrices_come_back(make, tmp_path, model):
    matrix = make(sparse.random_array((7, 5), density=0.4, rng=0))
    again = round_trip(matrix, tmp_path, model)
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())
    assert isinstance(again, sparse.sparray) == isinstance(matrix, sparse.sparray)
    assert again.format == (matrix.format if matrix.format != "coo" else "csr")


@pytest.mark.parametrize("cls", [FaissBackend, PyNNDescentBackend])
def test_indices_of_neighbours_are_made_again(cls, tmp_path, model):
    backend = cls(X, 0, None)
    backend._index = backend._quantizer = object()
    again = round_trip(backend, tmp_path, model)
    assert again._index is None
    np.testing.assert_array_equal(again._rows, X)


def test_parts_that_are_one_stay_one(tmp_path, model):
    shared = [X, ("a",)]
    first, second = round_trip([shared, {"again": shared, "X": X}], tmp_path, model)
    assert first is second["again"]
    assert first[0] is second["X"]


def test_loops_are_refused(tmp_path, model):
    loop = []
    loop.append({"a": (loop,)})
    with pytest.raises(TypeError, match=r"preparation\[0\].*contains itself"):
        save_model(tmp_path / "m", model, preparation=loop)


def test_nothing_is_too_deep(tmp_path, model):
    deep = ()
    for _ in range(50_000):
        deep = (deep,)
    again = round_trip(deep, tmp_path, model)
    for _ in range(50_000):
        (again,) = again
    assert again == ()


@dataclass
class Outside:
    a: int = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Outside(), "preparation is a .*Outside"),
        ([1, {"x": np.array([Outside()])}], r"preparation\[1\]\['x'\] is an array of objects"),
        (np.zeros(2, dtype="i4,f4"), "is an array of"),
        ({(1, (2,)): 0}, "key of type tuple"),
        (np.random.default_rng(0), "is a Generator"),
        (os.system, "is a function"),
        (print, "is a function"),
        (int, "is a function"),
        (2j, "builtins.complex"),
        (sparse.coo_array(np.ones(3)), "not 2-d"),
        (np.ma.masked_array([1.0]), "MaskedArray"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:30],
)
def test_other_values_are_refused(value, message, tmp_path, model):
    with pytest.raises(TypeError, match=message):
        save_model(tmp_path / "m", model, preparation=value)


# Hostile files. `forge` writes whatever it is told to.


def parts_of(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def forge(path, parts, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in parts.items():
            file.writestr(name, content)


def edit(path, change):
    """Rewrite model.json by a function that changes it in place."""
    parts = parts_of(path)
    text = json.loads(parts["model.json"])
    change(text)
    forge(path, {**parts, "model.json": json.dumps(text)})


def refused(path, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ModelError, match=message) as caught:
            load_model(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def find(text, kind, **like):
    for node in text["nodes"]:
        if node["is"] == kind and like.items() <= node.items():
            return node
    raise AssertionError(kind)


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
    """Whatever byte is wrong, there is one clear line, or nothing that matters was in it."""
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
        refused(tmp_path / "x", "no part of a model file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.volmar", "x"]
    edit(saved, lambda text: find(text, "array").update(file="../../etc/passwd"))
    refused(saved, "names the array '../../etc/passwd'")


def test_compressed_members_are_refused(saved, tmp_path):
    """Nothing in a file is larger than the file, so that none is a bomb."""
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
    refused(tmp_path / "x", "claims to hold more than it does")
    monkeypatch.setattr(archive, "available_memory", lambda: 10_000)
    refused(saved, "GiB are available")
    monkeypatch.undo()
    monkeypatch.setattr(archive, "MAX_TEXT", 100)
    refused(saved, "over the limit")


def test_a_part_that_is_there_twice(saved, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(saved, "a") as file:
        file.writestr("model.json", "{}")
    refused(saved, "twice")


class Bomb:
    """Leaves a trace where it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


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
    refused(tmp_path / "x", "belong to nothing")
    del parts["arrays/0.npy"]
    forge(tmp_path / "x", parts)
    refused(tmp_path / "x", "damaged array arrays/0.npy")


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "posix.system", "builtins.eval", "subprocess.Popen", "numpy.ndarray"),
        *("volmar.base.blocks._BlockCall", "volmar.rows.blocks.journal.Journal", "volmar.MSPC"),
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
    refused(saved, "names a class .* not on the list")
    edit(saved, lambda text: find(text, "enum").update({"class": name}))
    refused(saved, "names a class .* not on the list")
    assert not {"evil", "antigravity"} & (set(sys.modules) - before)
    assert not (tmp_path / "ran").exists()


def append(text, node):
    text["nodes"].append(node)
    text["preparation"] = {"ref": len(text["nodes"]) - 1}


RESULT, PAIRS, STATUS = "SeparationResult/1", "EigenPairs/1", "Status/1"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"is": "function", "name": "os.system"}, "names a function 'os.system'"),
        ({"is": "function", "name": "kernel eval"}, "names a function"),
        ({"is": "weights", "of": {"ref": 0}}, "asks for the weights"),
        ({"is": "reduce", "name": "os.system"}, "unknown kind, 'reduce'"),
        ({"is": ["list"], "items": []}, "unknown kind"),
        ({"is": "list", "items": [], "more": 1}, "malformed"),
        ({"is": "list"}, "malformed"),
        ({"is": "list", "items": {}}, "where a list must stand"),
        ({"is": "list", "items": [[1]]}, "where a value or an earlier part must stand"),
        ({"is": "list", "items": [{"ref": 10**6}]}, "an earlier part"),
        ({"is": "list", "items": [{"ref": -1}]}, "an earlier part"),
        ({"is": "list", "items": [{"ref": True}]}, "an earlier part"),
        ({"is": "list", "items": [{"ref": "0"}]}, "an earlier part"),
        ({"is": "list", "items": [{"float": "1"}]}, "an earlier part"),
        ({"is": "dict", "items": [[1]]}, "not a key and a value"),
        ({"is": "dict", "items": [[{"ref": 0}, 1]]}, "has a key"),
        ({"is": "set", "items": [{"ref": 0}]}, "has a key"),
        ({"is": "array", "file": 3}, "names the array 3 out of turn"),
        ({"is": "array", "file": "arrays/0.npy"}, "out of turn"),
        ({"is": "object array", "shape": [2], "items": [1]}, "with other contents"),
        ({"is": "object array", "shape": [-1], "items": []}, "with other contents"),
        ({"is": "object array", "shape": [1], "items": [{"ref": 0}]}, "not plain values"),
        ({"is": "scalar", "dtype": "|O8", "bytes": "00" * 8}, "unknown dtype"),
        ({"is": "scalar", "dtype": "i4,i4", "bytes": "00" * 8}, "unknown dtype"),
        ({"is": "scalar", "dtype": "<f8", "bytes": "00"}, "not one"),
        ({"is": "scalar", "dtype": "<f8", "bytes": "zz" * 8}, "not one"),
        ({"is": "scalar", "dtype": "|b1", "bytes": "02"}, "not one"),
        ({"is": "dtype", "name": "O"}, "unknown dtype"),
        ({"is": "search", "rows": 1, "n_jobs": None}, "no rows to search"),
        ({"is": "enum", "class": STATUS, "name": "mro"}, "none of its"),
        ({"is": "enum", "class": RESULT, "name": "x"}, "none of its"),
        ({"is": "object", "class": RESULT, "state": {}}, "SeparationResult that lacks"),
        ({"is": "object", "class": 3, "state": {}}, "where a str must stand"),
        ({"is": "object", "class": PAIRS, "state": {}}, "EigenPairs that lacks"),
        (
            {"is": "object", "class": STATUS, "state": {}},
            "attributes of its own",
        ),
        (3, "where a dict must stand"),
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


def test_sparse_matrices_that_are_wrong(model, tmp_path):
    """Compiled code would read where the indices say."""
    matrix = sparse.csr_array(np.eye(4))
    path = tmp_path / "m"
    for name in ("indices", "indptr", "data"):
        for wrong in (np.array([0, 1, 2, 10**6]), np.array([-5, 1, 2, 3]), np.zeros(2), X):
            save_model(path, model, preparation=matrix, force=True)
            parts = parts_of(path)
            text = json.loads(parts["model.json"])
            place = find(text, "sparse")[name]["ref"]
            if name == "data":  # any numbers would do, if there were as many
                array = wrong.astype("U") if wrong.shape == (4,) else wrong
            else:
                array = wrong.astype(np.int32)
            forge(path, {**parts, text["nodes"][place]["file"]: npy(array)})
            refused(path, "do not fit together")
    for shape in ([4, 3], [4, -4], [4], [2**70, 4], [4.0, 4]):
        save_model(path, model, preparation=matrix, force=True)

        def change(text, shape=shape):
            text["nodes"][find(text, "sparse")["shape"]["ref"]]["items"] = shape

        edit(path, change)
        refused(path, "do not fit together")


@pytest.mark.parametrize(
    "change", [{"array": []}, {"array": 1}, {"format": {}}, {"format": "coo"}, {"shape": None}]
)
def test_sparse_matrices_of_no_kind(change, model, tmp_path):
    save_model(tmp_path / "m", model, preparation=sparse.csr_array(np.eye(4)))
    edit(tmp_path / "m", lambda text: find(text, "sparse").update(change))
    refused(tmp_path / "m", "do not fit together")


def test_copies_of_one_matrix_do_not_fill_the_memory(model, tmp_path, monkeypatch):
    path = tmp_path / "m"
    save_model(path, model, preparation=sparse.csr_array(np.eye(50)))

    def repeat(text):
        text["nodes"] += [find(text, "sparse")] * 1000

    edit(path, repeat)
    monkeypatch.setattr("volmar.models.decode.available_memory", lambda: 100_000)
    refused(path, "needs more memory")


def test_rows_that_cannot_be_searched(tmp_path):
    path = tmp_path / "m"
    save_model(path, fit("SMIC", {}, X))
    edit(path, lambda text: find(text, "search").update(n_jobs="all"))
    refused(path, "no rows to search")
    save_model(path, fit("SMIC", {}, X), force=True)
    parts = parts_of(path)
    text = json.loads(parts["model.json"])
    file = text["nodes"][find(text, "search")["rows"]["ref"]]["file"]
    forge(path, {**parts, file: npy(np.full(X.shape, np.nan))})
    refused(path, "no rows to search")


def test_trees_deeper_than_the_stack_come_back(model, tmp_path):
    node = leaf = next(iter(model.tree_.leaves()))
    for rank in range(2000, 0, -1):
        other = replace(leaf)
        node = type(node)(n_rows=1, weight=1.0, rank=rank, children=(other, node))
    model.tree_ = SplitTree(node)
    save_model(tmp_path / "deep", model)
    assert len(load_model(tmp_path / "deep").model.tree_.splits()) == 2000


def test_files_older_than_a_field_take_its_default(saved):
    """Nodes of trees have learnt their levels later than files were written."""

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
    """Sixty nodes, each twice the child of the one above: 2^60 ways down."""
    node = next(iter(model.tree_.leaves()))
    for _ in range(60):
        node = type(node)(n_rows=1, weight=1.0, children=(node, node))
    model.tree_ = SplitTree(node)
    save_model(tmp_path / "x", model)
    refused(tmp_path / "x", "tree of splits that is not one")
    model.tree_ = SplitTree(3)
    save_model(tmp_path / "x", model, force=True)
    refused(tmp_path / "x", "tree of splits that is not one")


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
        (lambda text: text.update(model=None), "holds a NoneType and not an estimator"),
        (lambda text: text.update(model={"ref": 0}), "and not an estimator"),
        (lambda text: text.update(nodes={}), "where a list must stand"),
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
    with pytest.warns(UserWarning, match=r"written by volmar 0\.0\.1.*Fit and save again"):
        assert load_model(saved).version == "0.0.1"
    edit(saved, lambda text: text.update(format=1))
    refused(saved, r"has format 1.*Fit and save again")
    edit(saved, lambda text: text.update(format=3, volmar="99.0", unheard=[]))
    refused(saved, r"has format 3, written by volmar '99\.0'.*Install the newer volmar")


def test_loading_calls_nothing_of_the_classes(saved, monkeypatch):
    """Neither constructors nor the methods of pickling."""

    def refuse(*_, **__):
        raise AssertionError("called")

    for cls in (volmar.MSPC, SplitTree, type(load_model(saved).model.result_)):
        for name in ("__init__", "__setstate__", "__reduce_ex__", "__post_init__", "__setattr__"):
            monkeypatch.setattr(cls, name, refuse, raising=False)
    assert load_model(saved).model.tree_.n_leaves == 3


def test_an_encoder_keeps_what_it_has_numbered(tmp_path):
    """A number stands for one object, though others may get its address when it is gone."""
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
