"""Types inferred for the package: constructors, `fit`, labels and predictions."""

import inspect
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import volmar

ESTIMATORS = [name for name in volmar.__all__ if name[0].isupper()]

SNIPPET = """\
from typing import Any, assert_type

import numpy as np

from volmar import CPMMC, MSPC, MinimaxProbabilityMachine

X = np.zeros((10, 2))
model = MSPC(3).fit(X)
assert_type(model, MSPC)
print(model.labels_ + 1)  # numbers, or names where labels of rows were given
assert_type(model.predict(X), np.typing.NDArray[Any])
assert_type(CPMMC(3, C=2.0, tol=0.1).fit_predict(X), np.typing.NDArray[Any])
weighted = CPMMC(max_cluster_size=4).fit(X, sample_weight=np.ones(10))
print(weighted.decision_function(X), weighted.tree_.n_leaves)
MinimaxProbabilityMachine(kernel="rbf").fit(X, [0] * 5 + [1] * 5).predict(X)
"""

WRONG = """\
from volmar import MSPC

MSPC(2, reg="large").fit([[0.0]]).no_such_attribute_in(1)
MSPC(2, regularisation=1.0)
"""

WRONG_ESTIMATOR = """\
from volmar import MSPC

class Mine(MSPC):
    def more(self) -> None:
        self._no_such_method(1)
        self._validate([[0.0]], reset=True)
"""


@pytest.mark.parametrize("name", ESTIMATORS)
def test_constructors_and_fit_are_annotated(name):
    for method in ("__init__", "fit", "predict"):
        function = getattr(getattr(volmar, name), method)
        signature = inspect.signature(function)
        for parameter in list(signature.parameters.values())[1:]:
            assert parameter.annotation is not inspect.Parameter.empty, (method, parameter.name)
        if method != "__init__":
            assert signature.return_annotation is not inspect.Signature.empty


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """Return the output of `mypy --strict` for a user's file."""
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    folder = tmp_path_factory.mktemp("typing")
    source = Path(volmar.__file__).parents[1]

    def check(text):
        file = folder / "user_file.py"
        file.write_text(text)
        command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
        return subprocess.run(
            [*command, f"--cache-dir={folder / 'cache'}", "--config-file=", str(file)],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            env={"MYPYPATH": f"{source}:{source.parent / 'typings'}", "PATH": ""},
        )

    return check


@pytest.mark.slow
def test_a_strict_file_of_a_user_has_no_errors(checked):
    found = checked(SNIPPET)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.slow
def test_wrong_arguments_are_seen(checked):
    found = checked(WRONG)
    assert found.returncode == 1
    assert 'Argument "reg" to "MSPC" has incompatible type "str"' in found.stdout
    assert 'Unexpected keyword argument "regularisation"' in found.stdout


@pytest.mark.slow
def test_a_wrong_attribute_of_an_estimator_is_seen(checked):
    """Estimators derive from stubs of scikit-learn's bases, not from Any."""
    found = checked(WRONG_ESTIMATOR)
    assert found.returncode == 1
    assert '"Mine" has no attribute "_no_such_method"' in found.stdout
    assert "_validate" not in found.stdout
