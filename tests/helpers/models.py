"""Rows, fitted models and forged files for the tests of saved models."""

import io
import json
import warnings
import zipfile

import numpy as np
import pytest
from sklearn.base import is_clusterer
from sklearn.metrics.pairwise import rbf_kernel

import volmar
from volmar.models import ModelError, load_model


def blobs(seed=0):
    rng = np.random.default_rng(seed)
    centres = [[1.0, 1, 1], [9, 2, 1], [2, 9, 5]]
    return np.abs(np.vstack([rng.normal(c, 0.6, (20, 3)) for c in centres])) + 0.01


X = blobs()


NEW = blobs(1)[::2]


def similarities(rows):
    return rbf_kernel(rows, X, gamma=0.05)


def labels_for(name, n):
    """Classes if the estimator is a classifier, otherwise None."""
    if is_clusterer(getattr(volmar, name)()):
        return None
    return np.repeat(["one", "two"], [n // 3, n - n // 3])


def fit(name, settings, rows):
    model = getattr(volmar, name)(random_state=0, **settings)
    y = labels_for(name, rows.shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about iterations and disconnected graphs
        return model.fit(rows) if y is None else model.fit(rows, y)


# Hostile files. `forge` writes the given content without checks.
def parts_of(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def forge(path, parts, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in parts.items():
            file.writestr(name, content)


def edit(path, change):
    """Rewrite schema.json by a function that changes it in place."""
    parts = parts_of(path)
    text = json.loads(parts["schema.json"])
    change(text)
    forge(path, {**parts, "schema.json": json.dumps(text)})


def nodes(part):
    """Yield all nodes of a schema, from the first to the last."""
    if isinstance(part, dict):
        if "__loader__" in part:
            yield part
        for value in part.values():
            yield from nodes(value)
    elif isinstance(part, list):
        for value in part:
            yield from nodes(value)


def find(text, **like):
    """Return the first node with these values, such as loader="ObjectNode"."""
    wanted = {f"__{name}__": value for name, value in like.items()}
    return next(node for node in nodes(text) if wanted.items() <= node.items())


def state_of(text, cls):
    """Return the nodes of the attributes of the first object of a class."""
    return find(text, loader="ObjectNode", **{"class": f"{cls}/1"})["content"]["content"]


def plain(value):
    """Return the node of a plain value."""
    content = json.dumps(value)
    return {"__loader__": "JsonNode", "__class__": "str", "content": content, "is_json": True}


def refused(path, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ModelError, match=message) as caught:
            load_model(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()
