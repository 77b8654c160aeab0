import os
import sys
import time

import numpy as np
import pytest
from helpers.pages import browser  # noqa: F401 -- a fixture
from helpers.pictures import figures  # noqa: F401 -- a fixture

# With two workers on two cores, further BLAS threads only slow each other down.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config):
    config.began = time.monotonic()


def pytest_sessionfinish(session, exitstatus):
    """After a run of all tests, store its duration for ``make house``."""
    config, option = session.config, session.config.option
    is_selected = option.markexpr != "not nightly" or option.keyword
    is_all = config.args_source.name == "TESTPATHS" and not is_selected
    is_worker = hasattr(config, "workerinput")
    if is_all and exitstatus == 0 and not is_worker and not getattr(option, "cov_source", None):
        config.cache.set("volmar/seconds", time.monotonic() - config.began)


@pytest.fixture
def rng():
    return np.random.default_rng(20130101)


@pytest.fixture
def put(tmp_path):
    """Write a file with given contents."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def benchmarks_here(monkeypatch):
    """Run the draws of the benchmarks in this process, and import them again."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]
