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
from volmar.models.archive import Archive, write_archive
from volmar.models.decode import Decoder
from volmar.models.encode import Encoder


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


def save_value(path, value):
    """Write any value in the format of model parts; error messages name it "value"."""
    encoder = Encoder()
    text = {"value": encoder.add(value, "value"), "nodes": encoder.nodes}
    write_archive(path, text, encoder.arrays, force=True)


def load_value(path):
    with Archive(path) as archive:
        text = archive.text()
        return Decoder(archive, text["nodes"]).value(text["value"])


def refused_value(path, message):
    with pytest.raises(ModelError, match=message):
        load_value(path)


def find(text, kind, **like):
    for node in text["nodes"]:
        if node["is"] == kind and like.items() <= node.items():
            return node
    raise AssertionError(kind)


def npy(array, **options):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()
