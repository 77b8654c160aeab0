"""The command line as a person uses it, the pictures and the page it writes."""

import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from helpers.cli import invoke
from scipy import sparse

import volmar
from volmar.cli import console
from volmar.plots import ClusterDisplay


def test_version_and_help():
    assert invoke("--version").output.strip() == f"volmar {volmar.__version__}"
    assert "demo" in invoke("--help").output


def test_python_dash_m():
    printed = subprocess.run(
        [sys.executable, "-m", "volmar", "--version"], capture_output=True, text=True, check=True
    )
    assert volmar.__version__ in printed.stdout


def test_without_its_libraries_the_command_line_says_how_to_get_them():
    code = "import sys; sys.modules['typer'] = None; import volmar.cli; volmar.cli.main()"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "pip install 'volmar[all]'" in ended.stderr


@pytest.mark.parametrize(
    ("X", "axis"),
    [
        (np.arange(20.0).reshape(10, 2), "feature 0"),
        (np.arange(10.0)[:, None], "feature 0"),
        (np.random.default_rng(0).random((10, 5)), "principal component 1"),
        (sparse.random(10, 6, 0.8, random_state=0, format="csr"), "singular direction 1"),
    ],
)
def test_clusters_display(X, axis):
    import matplotlib as mpl

    mpl.use("agg")
    labels = np.repeat([0, 1], 5)
    display = ClusterDisplay.from_labels(X, labels, title="a title")
    assert display.ax_.get_xlabel() == axis
    assert display.ax_.get_title() == "a title"
    assert [c.get_offsets().shape for c in display.ax_.collections] == [(5, 2), (5, 2)]
    mpl.pyplot.close(display.figure_)
    with pytest.raises(ValueError, match=r"labels must have one label per row.*shape \(10,\)"):
        ClusterDisplay.from_labels(X, labels[:4])


def test_display_of_estimators(rng):
    import matplotlib as mpl
    import pandas as pd
    from sklearn.exceptions import NotFittedError
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    mpl.use("agg")
    frame = pd.DataFrame(rng.standard_normal((40, 2)), columns=["height", "weight"])
    model = volmar.KernelKMeans(random_state=0).fit(frame)
    display = ClusterDisplay.from_estimator(model, frame)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("height", "weight")
    assert "cluster 0" in display.ax_.get_legend().get_texts()[0].get_text()
    assert ClusterDisplay.from_estimator(model, frame[:7]).labels.shape == (7,)
    pipeline = make_pipeline(StandardScaler(), volmar.KernelKMeans(random_state=0)).fit(frame)
    assert ClusterDisplay.from_estimator(pipeline, frame).labels.shape == (40,)
    with pytest.raises(NotFittedError):
        ClusterDisplay.from_estimator(volmar.KernelKMeans(), frame)
    with pytest.raises(ValueError, match="Expected 2D array"):
        ClusterDisplay.from_labels(np.arange(4.0), np.zeros(4))
    mpl.pyplot.close("all")


def test_many_clusters_never_share_colour_and_shape():
    import matplotlib as mpl

    mpl.use("agg")
    X = np.random.default_rng(0).random((60, 2))
    drawn = ClusterDisplay.from_labels(X, np.arange(60) % 30).ax_.collections
    looks = {(tuple(c.get_facecolor()[0]), c.get_paths()[0].vertices.tobytes()) for c in drawn}
    assert len(looks) == 30
    mpl.pyplot.close("all")


def test_stages_are_numbered_with_an_estimate(monkeypatch):
    """A terminal shows the number of the stage, the number of stages and the time left."""
    shown = []

    class Task:
        total, completed, elapsed = 4, 1, 12.0

    assert str(console._TimeLeft().render(Task())) == "about 36 s left"
    Task.completed = 4
    assert str(console._TimeLeft().render(Task())) == ""
    Task.total = None
    assert str(console._TimeLeft().render(Task())) == ""
    assert console._time_text(600) == "10 min"
    assert console._time_text(9000) == "2.5 h"

    @contextmanager
    def counted(name):
        shown.append(name)
        yield lambda done, total: shown.append((done, total))
        shown.append("end")

    monkeypatch.setattr(console, "counted", counted)
    stages = console.Stages(["reading", "fitting"])
    with stages.stage("reading"):
        pass
    with stages.watching() as progress:
        progress("fitting", 0, 0)
        progress("fitting", 1, 2)
        progress("more", 0, 0)
    assert shown == [
        *("stage 1 of 2: reading", "end", "stage 2 of 2: fitting", (0, 0), (1, 2), "end"),
        *("more", (0, 0), "end"),
    ]
