"""Stored model files of earlier versions can be loaded."""

import json
import warnings

import numpy as np
import pytest
from make_stored import FOLDER, PREDICTIONS, models, predictions

from volmar.models import load_model

STORED = json.loads(PREDICTIONS.read_text())


def test_every_model_has_a_stored_file():
    assert set(STORED) == set(models()) == {path.stem for path in FOLDER.glob("*.volmar")}
    assert max(path.stat().st_size for path in FOLDER.iterdir()) < 100_000


@pytest.mark.parametrize("name", sorted(STORED))
def test_a_stored_model_predicts_as_it_did(name):
    with warnings.catch_warnings():
        # Later versions of volmar or scikit-learn give a warning.
        warnings.simplefilter("ignore", UserWarning)
        model = load_model(FOLDER / f"{name}.volmar").model
    found = predictions(model, models()[name][1])
    assert found["labels"] == STORED[name]["labels"]
    np.testing.assert_allclose(found["scores"], STORED[name]["scores"], rtol=1e-6, atol=1e-9)
