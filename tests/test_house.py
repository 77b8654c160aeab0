"""The package: the cost of an import, and the contents of an installation."""

import os
import pickle
import re
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits

import volmar
from volmar.table_clusterer.estimator import clusterer_names

SOURCE = ROOT / "src" / "volmar"

ESTIMATORS = [name for name in volmar.__all__ if name[0].isupper()]
CLUSTERERS = clusterer_names()


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    ).stdout


HEAVY = {
    *("cvxpy", "dask", "distributed", "jinja2", "matplotlib", "numba", "pandas"),
    *("polars", "pyamg", "pyarrow", "rich", "typer"),
}


def loaded_by(statement):
    return set(run(f"{statement}; import sys; print(*sys.modules)").split())


def test_import_brings_nothing_heavy():
    loaded = loaded_by("import volmar")
    assert not loaded & HEAVY
    assert "sklearn" not in loaded


def test_estimators_bring_nothing_heavier_than_scikit_learn():
    """scikit-learn itself imports pandas if it is installed, which is not counted."""
    ours = loaded_by(f"from volmar import {', '.join(ESTIMATORS)}")
    assert not (ours - loaded_by("import sklearn.cluster")) & HEAVY


def test_version_is_in_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+([-+.].*)?", volmar.__version__)
    assert "version = " not in (ROOT / "pyproject.toml").read_text().split("[tool.", 1)[0].replace(
        "dynamic = [", ""
    )
    installed = run("import importlib.metadata as m; print(m.version('volmar'))").strip()
    assert installed == volmar.__version__


def test_names_are_found_and_unknown_ones_are_not():
    assert set(volmar.__all__) <= set(dir(volmar))
    for name in ESTIMATORS:
        assert getattr(volmar, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = volmar.Nonsense


@pytest.fixture(scope="module")
def small_data():
    rng = np.random.default_rng(0)
    return np.vstack([rng.normal(-2, 1, (40, 3)), rng.normal(2, 1, (30, 3))])


@pytest.mark.parametrize("name", CLUSTERERS)
def test_pickle_and_clone(name, small_data):
    model = getattr(volmar, name)(random_state=0).fit(small_data)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.labels_, model.labels_)
    np.testing.assert_array_equal(again.predict(small_data), model.predict(small_data))
    if name != "AutoClusterer":  # a tree of tests, and no optimum
        assert again.result_.status is model.result_.status
        assert dict(again.result_.residuals) == dict(model.result_.residuals)
    fresh = clone(model)
    assert not hasattr(fresh, "labels_")
    np.testing.assert_array_equal(fresh.fit(small_data).labels_, model.labels_)


@pytest.mark.parametrize("name", CLUSTERERS)
def test_threads_are_left_to_the_user(name, small_data):
    before = [(pool["prefix"], pool["num_threads"]) for pool in threadpool_info()]
    labels = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            labels.append(getattr(volmar, name)(random_state=3).fit(small_data).labels_)
    np.testing.assert_array_equal(*labels)
    state = np.random.get_state()[1].copy()
    getattr(volmar, name)(random_state=3).fit(small_data)
    np.testing.assert_array_equal(np.random.get_state()[1], state)
    assert [(pool["prefix"], pool["num_threads"]) for pool in threadpool_info()] == before


@pytest.mark.slow
def test_wheel_and_sdist_install_into_an_empty_environment(tmp_path):
    """Build both, and let pip install the wheel in an environment with only pip."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    for number, package in enumerate((wheel, sdist)):
        home = tmp_path / f"env{number}"
        venv.create(home, with_pip=True)
        python = home / "bin" / "python"
        flags = ["--no-deps", "--quiet", "--disable-pip-version-check", "--no-index"]
        if package is sdist:
            # Without an index, only the build backend is taken from this environment.
            flags.append("--no-build-isolation")
        subprocess.run(
            [python, "-m", "pip", "install", *flags, package],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": _site_packages() if package is sdist else ""},
        )
        code = (
            "import volmar, importlib.metadata as m;"
            "from importlib.resources import files;"
            "assert (files('volmar') / 'py.typed').is_file();"
            "assert (files('volmar') / 'report' / 'templates' / 'cluster.html').is_file();"
            "print(volmar.__version__, m.version('volmar'), volmar.__file__)"
        )
        printed = subprocess.run(
            [python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
        ).stdout.split()
        assert printed[:2] == [volmar.__version__] * 2
        assert str(home) in printed[2]


def _site_packages():
    import hatchling

    return str(Path(hatchling.__file__).parents[1])


def test_filters_of_warnings_are_left_to_the_user():
    """Before Python 3.14 filters are shared by all threads; see `volmar._warn`."""
    # A command is its own process. The dates are read without filters soon.
    allowed = {"cli/app.py", "cli/cluster.py", "cli/demo.py"}
    package = Path(volmar.__file__).parent
    words = r"warnings\.(catch_warnings|simplefilter|filterwarnings|resetwarnings|showwarning)\b"
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(rf"(?<!`){words}", path.read_text(encoding="utf-8"))
    }
    assert found <= allowed
