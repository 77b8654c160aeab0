"""The available memory, refusals that name size and remedy, and fits that run out of memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.cli import invoke

import volmar
from volmar import _memory
from volmar._memory import explained_memory

GIB = 2**30


def test_available_memory_is_plausible():
    assert 2**20 < _memory.available_memory() < 2**50


# ---------------------------------------------------------------------- cgroups


@pytest.fixture
def tree(monkeypatch, tmp_path):
    """Folders for /proc and the cgroups, with 8 GiB of free memory."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    groups.mkdir()
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {8 * 2**20} kB\n")
    monkeypatch.setattr(_memory, "_PROC", proc)
    monkeypatch.setattr(_memory, "_CGROUP", groups)
    return tmp_path


def write_group(tree, path, **files):
    folder = tree / "cgroup" / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(f"{text}\n")


def is_in(tree, *lines):
    (tree / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in lines))


def test_no_limit_leaves_the_free_memory(tree):
    assert _memory.available_memory() == 8 * GIB
    is_in(tree, "0::/")
    write_group(tree, "", max="max", current=GIB)
    assert _memory.available_memory() == 8 * GIB


def test_the_own_cgroup_and_all_its_parents_count(tree):
    is_in(tree, "0::/user.slice/session/job")
    write_group(tree, "user.slice/session/job", max=5 * GIB, current=2 * GIB)
    assert _memory.available_memory() == 3 * GIB
    write_group(tree, "user.slice/session", max="max", current=2 * GIB)
    write_group(tree, "user.slice", max=6 * GIB, current=5 * GIB)
    assert _memory.available_memory() == GIB
    write_group(tree, "another.slice", max=1000, current=0)
    assert _memory.available_memory() == GIB


def test_a_containers_limit_at_the_root_of_its_mount(tree):
    # Without a cgroup namespace, a container names a path that it cannot see.
    for path in ("/", "/docker/0123abc", "/../../outside"):
        is_in(tree, f"0::{path}")
        write_group(tree, "", max=3000, current=1000)
        assert _memory.available_memory() == 2000


def test_the_first_version_of_cgroups(tree):
    is_in(tree, "5:cpu,cpuacct:/elsewhere", "4:memory:/batch/job", "0::/")
    write_group(tree, "memory", limit_in_bytes=2**63 - 4096, usage_in_bytes=9 * GIB)
    write_group(tree, "memory/batch", limit_in_bytes=4 * GIB, usage_in_bytes=3 * GIB)
    write_group(tree, "memory/batch/job", limit_in_bytes=4 * GIB, usage_in_bytes=GIB)
    assert _memory.available_memory() == GIB


@pytest.mark.parametrize(
    ("root", "names", "stat"),
    [
        ("", ("max", "current"), "inactive_file"),
        ("memory", ("limit_in_bytes", "usage_in_bytes"), "total_inactive_file"),
    ],
)
def test_cached_files_are_no_memory_in_use(tree, root, names, stat):
    write_group(tree, root, **dict(zip(names, (4 * GIB, 3 * GIB), strict=True)))
    write_group(tree, root, stat=f"anon 5\n{stat} {2 * GIB}\nslab 7")
    assert _memory.available_memory() == 3 * GIB


def test_a_limit_above_which_the_kernel_throttles(tree):
    write_group(tree, "", max="max", high=2 * GIB, current=GIB)
    assert _memory.available_memory() == GIB


def test_a_cgroup_beyond_its_limit_leaves_nothing(tree):
    write_group(tree, "", max=GIB, current=2 * GIB)
    assert _memory.available_memory() == 0


def test_files_that_are_not_as_documented_are_no_limits(tree):
    is_in(tree, "nonsense")
    write_group(tree, "", max="?", current="")
    assert _memory.available_memory() == 8 * GIB


# ---------------------------------------------------------------------- limits of the process


def run_limited(code, n_bytes, kind="AS"):
    """Run code in a process whose soft limit leaves `n_bytes` after its imports."""
    limited = f"""
import resource, sys
import numpy as np
import volmar
from volmar import MSPC, _memory
MSPC(random_state=0).fit(np.random.default_rng(0).normal(size=(50, 3)))  # loads what fits need
kind, place = resource.RLIMIT_{kind}, {0 if kind == "AS" else 5}
size = int(open("/proc/self/statm").read().split()[place]) * resource.getpagesize()
resource.setrlimit(kind, (size + {n_bytes}, resource.RLIM_INFINITY))
{code}
"""
    done = subprocess.run(
        [sys.executable, "-c", limited], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the size of a process is in /proc on Linux"
)


@needs_proc
@pytest.mark.parametrize("kind", ["AS", "DATA"])
def test_limits_of_the_process_count(kind):
    left = int(run_limited("print(_memory.available_memory())", 700 * 2**20, kind))
    assert 600 * 2**20 < left <= 700 * 2**20


@needs_proc
def test_a_dense_method_refuses_under_a_limit_of_the_address_space():
    code = """
X = np.random.default_rng(0).normal(size=(9000, 2))
try:
    volmar.KernelKMeans(2).fit(X)
except MemoryError as error:
    print(type(error).__name__, error)
"""
    printed = run_limited(code, 500 * 2**20)
    assert printed.startswith("MemoryError"), printed
    assert "GiB are available" in printed
    assert "Unable to allocate" not in printed


@needs_proc
def test_an_allocation_that_fails_in_a_fit_is_named():
    code = """
X = np.zeros((2, 3))
class Hungry(MSPC):
    def _problem(self, *args, **kwargs):
        return np.zeros((2**28, 2))
try:
    Hungry().fit(np.random.default_rng(0).normal(size=(50, 3)))
except MemoryError as error:
    print(type(error).__name__, error)
"""
    printed = run_limited(code, 500 * 2**20)
    assert printed.startswith("MemoryError Hungry.fit on X of shape (50, 3) ran out of memory")
    assert "Unable to allocate 4.00 GiB" in printed
    assert "Use fewer rows" in printed


# ---------------------------------------------------------------------- messages


def test_without_proc_half_of_what_is_installed(monkeypatch):
    def missing(self):
        raise OSError

    monkeypatch.setattr(Path, "read_text", missing)
    assert _memory.available_memory() > 2**20


def test_refusal_names_size_and_remedy(monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: GIB)
    _memory.require_memory(2**29, "a small thing", "Nothing to do.")
    with pytest.raises(MemoryError, match=r"^a .*GiB"):
        _memory.require_memory(2**32, "a big thing", "Do less.")
    monkeypatch.setattr(_memory, "available_memory", lambda: 3 * 2**20)
    with pytest.raises(MemoryError, match=r"^a .*50\.0"):
        _memory.require_memory(50 * 2**20, "a big thing", "Do less.")


def test_an_error_without_a_message_names_the_operation():
    error = explained_memory(MemoryError(), "the command")
    assert type(error) is MemoryError
    assert str(error).startswith("the command ran out of memory: ")
    ours = MemoryError("the kernel matrix needs 4 GiB.")
    assert explained_memory(ours, "the command") is ours


@pytest.mark.parametrize("method", ["decision_function", "predict"])
def test_predictions_that_run_out_of_memory(method, monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 3))
    model = volmar.MSPC(random_state=0).fit(X)
    monkeypatch.setattr(model, "_validate", raise_memory_error)
    with pytest.raises(MemoryError, match=r"MSPC\.\w+ on X of shape \(50, 3\)"):
        getattr(model, method)(X)


def raise_memory_error(*args, **kwargs):
    raise MemoryError


def test_the_command_line_explains_memory_errors(monkeypatch, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("a,b\n" + "".join(f"{i**0.5},{i % 7}\n" for i in range(40)))
    monkeypatch.setattr(volmar.AutoClusterer, "_check_parameters", raise_memory_error)
    done = invoke("cluster", table, "-k", 2)
    assert done.exit_code == 2
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith(
        "volmar cluster: AutoClusterer.fit on X of shape (40, 2) ran out of memory: "
    )
    monkeypatch.setattr("volmar.tables.read_table", raise_memory_error)
    done = invoke("cluster", table, "-k", 2)
    assert done.exit_code == 2
    assert done.stderr.startswith("volmar cluster: the command ran out of memory: ")
