"""Write the model files in ``stored/``, which later versions must be able to load.

Run ``python tests/models/make_stored.py NAME ...`` for models that are new or whose classes have a
new version in `volmar.models`. Without names, all files are rewritten. Do not rewrite
released files.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import volmar
from volmar.models import save_model
from volmar.tables import Preparation

FOLDER = Path(__file__).parent / "stored"
PREDICTIONS = FOLDER / "predictions.json"


def rows(shift=0.0):
    """Return two groups of twelve rows in the plane, without a random generator."""
    i = np.arange(24)
    wave = np.stack([np.sin(5 * i + shift), np.cos(3 * i + shift)], axis=1)
    return np.round(wave + np.where(i < 12, 3.0, 8.0)[:, None], 3)


def table(shift=0.0):
    """Return a table with names, a missing value, categories and dates."""
    X = rows(shift)
    i = np.arange(24)
    frame = pd.DataFrame(X, columns=["height", "weight"])
    frame.loc[5, "weight"] = np.nan
    return frame.assign(
        name=[f"row {k}" for k in i],
        size=np.array(["small", "medium", "large"])[i % 3],
        since=[f"2024-{k % 12 + 1:02d}-11" for k in i],
    )


def models():
    """Return unfitted models by name, and whether they are fitted to a table."""
    scaled = make_pipeline(StandardScaler(), PCA(1, random_state=0), volmar.MSPC(random_state=0))
    prepared = make_pipeline(Preparation(id_column="name"), volmar.CPMMC(random_state=0))
    clusterer = volmar.TableClusterer(n_clusters=2, id_column="name", random_state=0)
    return {
        "MSPC": (volmar.MSPC(random_state=0), False),
        "MSPC-tree": (volmar.MSPC(3, random_state=0), False),
        "CPMMC": (volmar.CPMMC(random_state=0), False),
        "SKMMC": (volmar.SKMMC(random_state=0), False),
        "SoftLabelMVC": (volmar.SoftLabelMVC(random_state=0), False),
        "KernelCPMMC-rbf": (volmar.KernelCPMMC(kernel="rbf", random_state=0), False),
        "pipeline": (scaled, False),
        "pipeline-of-a-table": (prepared, True),
        "TableClusterer": (clusterer, True),
    }


def predictions(model, of_table):
    """Return the labels, and the scores to nine digits."""
    new = table(0.4) if of_table else rows(0.4)
    labels = model.predict(new)
    scores = np.asarray(model.decision_function(new), dtype=float)
    return {"labels": labels.tolist(), "scores": [float(f"{s:.9g}") for s in scores.ravel()]}


def fitted(model, of_table):
    """Fit a model to the rows or to the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(table() if of_table else rows())


def main(names):
    """Write the model files and their predictions."""
    FOLDER.mkdir(exist_ok=True)
    stored = json.loads(PREDICTIONS.read_text()) if names else {}
    for name, (model, of_table) in models().items():
        if names and name not in names:
            continue
        save_model(FOLDER / f"{name}.volmar", fitted(model, of_table), force=True)
        stored[name] = predictions(model, of_table)
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(stored.items())]
    PREDICTIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
