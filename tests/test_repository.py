"""The repository: its files, and the environments and tests that its tools name."""

import re
import subprocess
import sys
import tomllib

import pytest
from helpers import ROOT
from packaging.version import Version
from wheels import install

import volmar

# Folders of a personal machine (except the example /home/me), and hosts of package registries.
OF_A_MACHINE = re.compile(
    r"(?<![\w.])/(?:work|root|home(?!/me\b)|Users|opt|mnt)/[\w.]|\b[A-Z]:\\\\?Users\b"
)
OF_A_REGISTRY = re.compile(r"\b(?:pypi|pythonhosted|anaconda)\.(?:org|com|io)\b")


def tracked_files():
    """Files of the repository that git tracks; skips without a repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = [name for name in listed.stdout.split("\0") if name]
    if not names:
        pytest.skip("not a git checkout")
    return [path for name in names if (path := ROOT / name).is_file()]


def recorded(text):
    """Machine paths and registry hosts in a text."""
    found = [OF_A_MACHINE.search(text), OF_A_REGISTRY.search(text)]
    return [match.group() for match in found if match]


def test_no_machine_path_or_registry_is_recorded():
    wrong = {}
    for path in tracked_files():
        try:
            found = recorded(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue  # a picture, or compressed cells
        if found:
            wrong[str(path.relative_to(ROOT))] = found
    assert not wrong


@pytest.mark.parametrize(
    "parts",
    [
        ("see /", "root/.cache/x"),
        ("file:///", "opt/wheels"),
        ("'/home/", "somebody/data'"),
        ("C:\\", "Users\\me"),
        ("https://files.python", "hosted.org/x"),
        ("index-url = https://py", "pi.org/simple"),
    ],
)
def test_a_recorded_path_would_be_found(parts):
    assert recorded("".join(parts))


def test_paths_of_the_repository_are_no_machine_paths():
    assert not recorded("src/volmar/rows, ../home/x, https://example.org/home/page, /home/me/x")


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-oldest.txt"])
def test_environments_are_pinned(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.+-]+", line)]


def test_the_oldest_environment_has_the_claimed_minimum_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    claimed = [*project["dependencies"]]
    claimed += [one for extra in project["optional-dependencies"].values() for one in extra]
    pins = dict(
        line.lower().split("==")
        for line in (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    )
    for requirement in claimed:
        if requirement.startswith("volmar["):
            continue
        name, minimum = re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement).groups()
        assert Version(pins[name]) == Version(minimum), requirement


def test_make_quick_has_tests_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = re.search(r"^CHEAP\s*:= \$\(addprefix tests/, (.*)\)$", makefile, re.MULTILINE)
    assert not [name for name in named[1].split() if not (ROOT / "tests" / name).exists()]


def test_ci_runs_the_targets_of_the_contributing_guide():
    run = (ROOT / ".ci/run").read_text(encoding="utf-8")
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\w+)", run, re.MULTILINE)
    assert targets == ["lint", "test", "docs"]
    assert not [name for name in targets if f"    make {name} " not in guide]


def test_wheels_are_tried_on_the_versions_that_are_claimed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    beginning = "Programming Language :: Python :: 3."
    claimed = [one[-4:] for one in project["classifiers"] if one.startswith(beginning)]
    assert list(install.SUPPORTED) == claimed
    assert project["requires-python"] == f">={install.SUPPORTED[0]}"


def test_a_python_that_does_not_run_is_not_found(tmp_path, monkeypatch):
    """The shim of a version manager is on the path also for versions that are not active."""
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    assert install.interpreter_of("3.12") is None
    managed = tmp_path / "none/versions/3.12.1/bin/python3.12"
    managed.parent.mkdir(parents=True)
    managed.symlink_to(sys.executable)
    assert install.interpreter_of("3.12") == str(managed)
    monkeypatch.setattr(install, "interpreter_of", lambda version: None)
    with pytest.raises(SystemExit, match=r"no Python of 3\.11"):
        install.oldest_and_newest()


def test_the_citation_has_this_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {volmar.__version__}\n" in citation


def test_only_quick_reproductions_are_quick():
    for given, is_quick in (([], False), (["QUICK=1"], True)):
        command = [
            "make",
            "-n",
            "--no-print-directory",
            "-o",
            ".venv/.ready",
            "reproduce",
            "NAME=x",
        ]
        shown = subprocess.run(
            [*command, *given], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        assert shown.rstrip().endswith("reproduction x --quick" if is_quick else "reproduction x")
