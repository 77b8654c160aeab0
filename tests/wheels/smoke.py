"""Smoke test of an installed wheel, run by the Python of its environment outside the checkout."""

import csv
import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import volmar
from volmar.datasets import make_blobs
from volmar.metrics import clustering_error
from volmar.models import load_model, save_model

X, Y = make_blobs(300, n_features=4, centers=3, separation=8.0, random_state=0)


def main():
    extra = sys.argv[1] if len(sys.argv) > 1 else ""
    assert Path(volmar.__file__).is_relative_to(sys.prefix), volmar.__file__
    assert importlib.metadata.version("volmar") == volmar.__version__
    for name in volmar.__all__:
        getattr(volmar, name)
    model = volmar.AutoClusterer(random_state=0).fit(X)
    assert clustering_error(Y, model.labels_) < 0.01, model.labels_
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.volmar")
        save_model(path, model)
        np.testing.assert_array_equal(load_model(path).model.predict(X), model.labels_)
        if extra:
            run_commands(Path(folder))
        else:
            refuse_the_command()


def refuse_the_command():
    """Without its libraries, the command prints one line that names what to install."""
    done = run("--version")
    assert done.returncode == 1, done
    assert "pip install" in done.stderr, done
    assert len(done.stderr.splitlines()) == 1, done


def run_commands(folder):
    """Cluster a CSV file, save the model, and label the file again with it."""
    table, labels = folder / "rows.csv", folder / "labels.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "c", "d"], *X.tolist()])
    done = run("cluster", table, "-o", labels, "--save", folder / "table.volmar")
    assert done.returncode == 0, done
    assert clustering_error(Y, labels_in(labels)) < 0.01
    done = run("predict", folder / "table.volmar", table, "-o", folder / "again.csv")
    assert done.returncode == 0, done
    assert labels_in(folder / "again.csv") == labels_in(labels)


def run(*words):
    command = [sys.executable, "-I", "-m", "volmar", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def labels_in(path):
    with path.open(newline="") as file:
        return [row["label"] for row in csv.DictReader(file)]


if __name__ == "__main__":
    main()
