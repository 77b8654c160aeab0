"""Model files of every class, changed in their bytes, their texts and their arrays."""

import atexit
import copy
import io
import json
import shutil
import struct
import tempfile
import warnings
import zipfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from tokenize import TokenError

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler
from sklearn.utils import get_tags

import volmar
from fuzz.contract import Case, require
from volmar import CLUSTERERS
from volmar.models import ModelError, load_model, save_model
from volmar.tables import Preparation

STORED = Path(__file__).parents[2] / "models" / "stored"
_SPECIAL = (
    *(None, True, False, 0, 1, -1, 2, 3000, 10**9, 2**63, -(2**63), 10**30, 10**400),
    *(
        0.0,
        -1.5,
        1e308,
        1e-320,
        "",
        "x",
        "auto",
        "linear",
        "rbf",
        "precomputed",
        "\ud800",
        "a" * 5000,
    ),
    *([], {}, [[]], float("nan"), float("inf")),
)


# ------------------------------------------------------------------------ good files


def table(n=60):
    """Numbers with a long tail, missing values, correlated and ordered categories, dates."""
    rng = np.random.default_rng(5)
    group = rng.integers(2, size=n)

    def letters(words, noise):
        return np.array(words)[(group + (rng.random(n) < noise)) % len(words)]

    frame = pd.DataFrame(
        {
            "name": [f"row {i}" for i in range(n)],
            "a": rng.normal(size=n) + 5 * group,
            "b": np.exp(2 * rng.normal(size=n)),
            "c": letters(["x", "y", "z"], 0.1),
            "d": letters(["u", "v", "w"], 0.1),
            "e": letters(["p", "q", "r"], 0.1),
            "size": letters(["low", "medium", "high"], 0.3),
            "since": pd.date_range("2020-01-01", periods=n).astype(str),
        }
    )
    frame.loc[3, "a"] = np.nan
    frame.loc[4, "c"] = None
    return frame


def _rows(n=30):
    rng = np.random.default_rng(0)
    return np.abs(rng.normal(size=(n, 3)) + 6.0 * (np.arange(n)[:, None] % 3 == np.arange(3)))


@cache
def _models():
    """Return further models that are not stored, and rows to fit them to, by name."""
    found = {}
    X = _rows()
    S = np.exp(-0.05 * ((X[:, None] - X) ** 2).sum(axis=2))
    for name in CLUSTERERS:
        parameters = getattr(volmar, name)().get_params()
        settings = [{"n_clusters": 3}]
        if "kernel" in parameters:
            settings += [{"kernel": "precomputed"}, {"kernel": "rbf"}]
        if "method" in parameters:
            settings += [{"kernel": "rbf", "method": "nystroem", "n_landmarks": 6}]
        if "affinity" in parameters:
            affinities = ("precomputed", "gaussian", "local_scaling", "cosine_knn")
            settings += [{"affinity": affinity} for affinity in affinities]
        if name in ("MSPC", "CPMMC", "SoftLabelMVC"):
            settings += [{"n_clusters": 1}]
        for given in settings:
            is_given = "precomputed" in given.values()
            model = getattr(volmar, name)(random_state=0, **given)
            found[f"{name} {given}"] = model, S if is_given else X
    frame = table()
    for missing in ("impute", "drop", "indicator"):
        made = volmar.TableClusterer(2, id_column="name", missing=missing, random_state=0)
        found[f"table {missing}"] = made, frame
    found["table auto"] = volmar.TableClusterer(drop=["name"], random_state=0), frame
    steps = Preparation(drop=["name"], scale="standard"), volmar.CPMMC(random_state=0)
    found["pipeline of a table"] = make_pipeline(*steps), frame
    steps = SimpleImputer(add_indicator=True), RobustScaler(), PCA(2), volmar.MSPC(random_state=0)
    holes = np.where(np.arange(X.size).reshape(X.shape) % 17 == 3, np.nan, X)
    found["pipeline"] = make_pipeline(*steps), holes
    return found


@cache
def _folder():
    """Return a folder of this process, so that messages of the same case are the same."""
    folder = tempfile.mkdtemp(prefix="volmar-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _names():
    stored = [path.name for path in sorted(STORED.glob("*.volmar"))]
    return [*stored, *_models(), "preparation"]


@cache
def good_file(name):
    """Return the parts of a model file, and rows that its model accepts (None for any rows)."""
    path = STORED / name
    rows = None
    if not path.exists():
        path = _folder() / "good.volmar"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if name == "preparation":
                made = Preparation(drop=["name"])
                model = volmar.MSPC(random_state=0).fit(made.fit_prepare(table()).X)
                save_model(path, model, preparation=made, force=True)
            else:
                model, rows = _models()[name]
                save_model(path, model.fit(rows), force=True)
    return _parts(path), rows


def _parts(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


# ------------------------------------------------------------------------ changes


def _nodes(part):
    """Return all nodes of a schema, and the containers and keys of all values."""
    found, places, stack = [], [], [part]
    while stack:
        held = stack.pop()
        if isinstance(held, dict) and "__loader__" in held:
            found.append(held)
        for key in range(len(held)) if isinstance(held, list) else list(held):
            places.append((held, key))
            if isinstance(held[key], (list, dict)):
                stack.append(held[key])
    return found, places


def _plain(value):
    content = json.dumps(value)
    return {"__loader__": "JsonNode", "__class__": "str", "content": content, "is_json": True}


def _change_value(draw, text):
    """Replace any part of the text."""
    held, key = draw.pick(*_nodes(text)[1])
    held[key] = copy.deepcopy(draw.pick(*_SPECIAL))


def _change_node(draw, text):
    """Replace a node by a plain value."""
    node = draw.pick(*_nodes(text)[0])
    node.clear()
    node.update(_plain(draw.pick(*_SPECIAL)))


def _nudge_number(draw, text):
    nodes = [one for one in _nodes(text)[0] if one["__loader__"] == "JsonNode"]
    node = draw.pick(*(one for one in nodes if type(json.loads(one["content"])) in (int, float)))
    value = json.loads(node["content"])
    other = draw.pick(value + 1, value - 1, -value, value * 1000, value / 2, str(value))
    node["content"] = json.dumps(other)


def _states(text):
    """Return the attributes of all objects, as dicts of nodes."""
    objects = [one for one in _nodes(text)[0] if one["__loader__"] == "ObjectNode"]
    return [one["content"]["content"] for one in objects]


def _drop_attribute(draw, text):
    state = draw.pick(*_states(text))
    state.pop(draw.pick(*state))


def _rename_attribute(draw, text):
    state = draw.pick(*_states(text))
    name = draw.pick(*state)
    other = draw.pick("_x", "x_", f"{name}_", "predict", "__class__", *draw.pick(*_states(text)))
    state[other] = state.pop(name) if draw.chance(0.5) else state[name]


def _swap_attributes(draw, text):
    one, other = draw.pick(*_states(text)), draw.pick(*_states(text))
    a, b = draw.pick(*one), draw.pick(*other)
    one[a], other[b] = other[b], one[a]


def _swap_files(draw, text):
    arrays = [one for one in _nodes(text)[0] if "file" in one]
    one, other = draw.pick(*arrays), draw.pick(*arrays)
    one["file"], other["file"] = other["file"], one["file"]


def _exchange_classes(draw, text):
    nodes = _nodes(text)[0]
    one, other = draw.pick(*nodes), draw.pick(*nodes)
    key = draw.pick("__class__", "__loader__")
    one[key], other[key] = other[key], one[key]


def _nest(draw, text):
    """Replace a node by a nest that is deep or large."""
    kind, held = draw.pick("List", "Tuple"), draw.pick(1, 2, 2, 3)
    node = draw.pick(*_nodes(text)[0])
    inner = _plain(draw.pick(1, "x"))
    for _ in range(draw.pick(3, 8, 60, 300) if held == 1 else draw.pick(3, 8)):
        name = {"__loader__": f"{kind}Node", "__class__": kind.lower()}
        inner = {**name, "content": [inner] * held}
    node.clear()
    node.update(inner)


def _repeat_node(draw, text):
    lists = [one for one in _nodes(text)[0] if one["__loader__"] in ("ListNode", "TupleNode")]
    draw.pick(*lists)["content"] *= draw.pick(0, 2, 10, 100)


_TEXTS = (
    *(_change_value, _change_node, _change_node, _nudge_number, _nudge_number, _drop_attribute),
    *(_rename_attribute, _swap_attributes, _swap_files, _exchange_classes, _nest, _repeat_node),
)


def _change_text(draw, parts):
    text = json.loads(parts["schema.json"])
    for _ in range(draw.pick(1, 1, 1, 2, 5)):
        # After the last change, nothing may be left for the next one.
        with suppress(ValueError, TypeError, LookupError, AttributeError, OverflowError):
            draw.pick(*_TEXTS)(draw, text)
    parts["schema.json"] = json.dumps(text).encode()


def _change_array(draw, parts):
    """Write an array of another shape, dtype or content, with a matching header."""
    name = draw.pick(*(name for name in parts if name != "schema.json"))
    if name.endswith(".npz"):
        _flip_member(draw, parts)
        return
    array = np.load(io.BytesIO(parts[name]))
    flat, rng = array.ravel().copy(), draw.rng
    change = draw.whole(0, 8)
    if change == 0 and flat.dtype.kind == "f" and flat.size:
        wrong = draw.pick(np.nan, np.inf, -np.inf, 1e308, 1e-320, 0.0, -1e150)
        flat[rng.integers(flat.size)] = wrong
    elif change == 1 and flat.dtype.kind in "iu" and flat.size:
        flat[rng.integers(flat.size)] = draw.pick(-1, 10**6, 2**31 - 1, 2**31, flat.size)
    elif change == 2:
        flat = flat[: draw.whole(0, flat.size)]
    elif change == 3:
        flat = np.concatenate([flat, flat])
    elif change == 4:
        kinds = ("f4", "f2", "i8", "i4", "u1", "b1", "c16", "U3", "S2", ">f8", "g", "M8[D]")
        with np.errstate(all="ignore"):
            numbers = flat if flat.dtype.kind in "biuf" else np.zeros(flat.size)
            flat = numbers.astype(draw.pick(*kinds))
    elif change == 5:
        flat = rng.permutation(flat)
    elif change == 6 and flat.dtype.kind == "f":
        flat = flat * draw.power(-300, 300)
    elif change == 7:
        flat = np.full_like(flat, flat.flat[0] if flat.size else 0)
    shapes = [array.shape] if flat.size == array.size else []
    shapes += [(flat.size,), (flat.size, 1), (1, flat.size), (1, flat.size, 1)]
    shape = shapes[0] if draw.chance(0.6) else draw.pick(*shapes)
    width = array.shape[-1] if array.ndim == 2 else 0
    if width and shape is not array.shape and flat.size % width == 0:
        shape = draw.pick(shape, (-1, width))
    if draw.chance(0.05) and flat.size == 1:
        shape = ()
    file = io.BytesIO()
    np.lib.format.write_array(file, flat.reshape(shape), allow_pickle=False)
    parts[name] = file.getvalue()


def _swap_arrays(draw, parts):
    names = [name for name in parts if name != "schema.json"]
    one, other = draw.pick(*names), draw.pick(*names)
    parts[one], parts[other] = parts[other], parts[one]


def _flip_member(draw, parts):
    """Flip bits inside a part, and update its checksum."""
    name = draw.pick(*parts)
    content = bytearray(parts[name])
    for _ in range(draw.pick(1, 1, 3, 20)):
        content[draw.whole(0, len(content) - 1)] ^= 1 << draw.whole(0, 7)
    parts[name] = bytes(content)


def _rename_member(draw, parts):
    name = draw.pick(*parts)
    names = ("0.npy", "99.npy", "../x.npy", "/tmp/x", "00.npy", "", "x" * 300)
    parts[draw.pick(*names)] = parts.pop(name) if draw.chance(0.7) else parts[name]


def _flip_bytes(draw, content):
    content = bytearray(content)
    for _ in range(draw.pick(1, 1, 5, 50)):
        content[draw.whole(0, len(content) - 1)] ^= 1 << draw.whole(0, 7)
    return bytes(content)


def _lie_in_directory(draw, content):
    """Write another number into the directory of the zip, or into the header of a member."""
    marks = [b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"]
    mark = draw.pick(*(mark for mark in marks if mark in content))
    places = [i for i in range(len(content)) if content.startswith(mark, i)]
    place, width = draw.pick(*places) + draw.whole(4, 44), draw.pick(1, 2, 4)
    lie = struct.pack("<I", draw.pick(0, 1, 2**31, 2**32 - 1, draw.whole(0, 2**32 - 1)))
    return content[:place] + lie[:width] + content[place + width :]


def _truncate(draw, content):
    return content[: draw.whole(0, len(content) - 1)]


def _written(parts, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(file, "w", compression) as archive:
            for name, content in parts.items():
                archive.writestr(name or "x", content)
    return file.getvalue()


# ------------------------------------------------------------------------ the case


def draw_case(draw):
    """Return a case that loads and uses a changed model file."""
    name = draw.pick(*_names())
    good, rows = good_file(name)
    parts = dict(good)
    inner = (*[_change_text] * 8, *[_change_array] * 6, _swap_arrays, _flip_member, _rename_member)
    outer = (_flip_bytes, _lie_in_directory, _truncate)
    done = []
    if draw.chance(0.9):
        for _ in range(draw.pick(1, 1, 1, 2)):
            change = draw.pick(*inner)
            done.append(change.__name__)
            # After an earlier change, this one may have nothing to read.
            with suppress(ValueError, LookupError, SyntaxError, TokenError):
                change(draw, parts)
    content = _written(parts, zipfile.ZIP_DEFLATED if draw.chance(0.01) else zipfile.ZIP_STORED)
    if not done:
        change = draw.pick(*outer)
        content = change(draw, content)
        done.append(change.__name__)

    form = draw.pick("as they are", "as they are", "float32", "sparse", "Fortran")
    is_described = draw.chance(0.2)

    def use():
        saved = _loaded(_folder() / "m.volmar", content)
        # Any ordinary exception and any labels are allowed, but no crash and no code.
        with warnings.catch_warnings(), suppress(Exception):
            warnings.simplefilter("ignore")
            _look_at(saved)
            new = _rows_for(saved, rows)
            if isinstance(new, np.ndarray):
                new = _in_form(saved.model, new, form)
            saved.model.decision_function(new)
            saved.model.predict(new)
            if hasattr(saved.model, "confidence"):
                saved.model.confidence(new)
                if is_described:
                    saved.model.describe(new)

    text = f"{name}: {', '.join(done)}, {form}"
    return Case(text, use, (), same_bits=False, documented=(ModelError,))


def _loaded(path, content):
    """Load a file; it may raise only a `ModelError`."""
    path.write_bytes(content)
    with warnings.catch_warnings():
        # Warnings about another version of volmar or scikit-learn are allowed.
        warnings.filterwarnings("ignore", category=UserWarning)
        try:
            return load_model(path)
        except ValueError as error:
            require(type(error) is ModelError, f"load_model raised {error!r:.300}")
            require(len(str(error)) < 1000 and "\n" not in str(error), f"{error!s:.300}")
            raise


def _look_at(saved):
    """Print, copy and save a loaded model."""
    for call in (repr, clone, copy.deepcopy):
        with suppress(Exception):
            call(saved.model)
    own = None if hasattr(saved.model, "preparation_") else saved.preparation
    save_model(_folder() / "again.volmar", saved.model, preparation=own, force=True)
    load_model(_folder() / "again.volmar")


def _rows_for(saved, rows):
    """Return rows or a table that a model accepts: those of its fit, if still possible."""
    model, frame = saved.model, table()
    if hasattr(model, "preparation_"):
        return _known(frame, model.preparation_)
    if saved.preparation is not None:
        return saved.preparation.prepare(_known(frame, saved.preparation)).X
    if hasattr(model, "steps") and isinstance(model.steps[0][1], Preparation):
        return _known(frame, model.steps[0][1])
    if rows is None or np.shape(rows)[1] != model.n_features_in_:
        return 10.0 * np.random.default_rng(1).random((20, model.n_features_in_))
    return rows


def _in_form(model, rows, form):
    if form == "sparse" and get_tags(model).input_tags.sparse and np.isfinite(rows).all():
        return sparse.csr_array(rows)
    if form == "Fortran":
        return np.asfortranarray(rows)
    return rows.astype(np.float32) if form == "float32" else rows


def _known(frame, preparation):
    """Return a table with the columns of a preparation: those of `table`, or numbers."""
    names = [name for name in preparation.names_in_ if name not in frame]
    more = {name: np.arange(len(frame)) % 7 + 0.5 for name in names}
    for name, kind in preparation.kinds_.items():
        if name in more and kind == "date":
            more[name] = frame["since"]
        elif name in more and kind not in ("numeric",):
            more[name] = frame["size"]
    return frame.assign(**more)
