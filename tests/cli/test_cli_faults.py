"""Faults that files must survive: signals, a full disk, other writers, folders that are closed."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers.cli import invoke, read

pandas = pytest.importorskip("pandas")

N_ROWS = 400
OUTPUTS = {"-o": "labels.csv", "--save": "m.volmar", "--json": "s.json"}
# Handlers that a job in the background may have been started without.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
{before}
from volmar.cli import main
main()
"""
# Says that a file is being written, and waits there.
PAUSE = """
import os, time
fsync = os.fsync
def slow(number):
    print("writing", flush=True)
    time.sleep(60)
os.fsync = slow
"""
# No file may become longer than this.
FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 3)) + 5 * (np.arange(N_ROWS) % 2)[:, None]
    path = tmp_path_factory.mktemp("tables") / "x.csv"
    pandas.DataFrame(X, columns=list("abc")).to_csv(path, index=False)
    return path


def outputs(folder):
    return [str(word) for option, name in OUTPUTS.items() for word in (option, folder / name)]


def start(table, folder, *options, before=""):
    """Start ``volmar cluster`` as a process of its own."""
    words = ["cluster", str(table), "-k", "2", *outputs(folder), *options]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(before=before), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )


def end(process, seconds=120):
    try:
        return process.communicate(timeout=seconds)
    finally:
        process.kill()
        process.wait()


def check_whole(folder):
    """Each file is whole, and no part of one is left; returns the names that are there."""
    names = {path.name for path in folder.iterdir()}
    assert names <= set(OUTPUTS.values())
    if "labels.csv" in names:
        assert len(read(folder / "labels.csv")) == N_ROWS
    if "s.json" in names:
        assert json.loads((folder / "s.json").read_text())["n_rows"] == N_ROWS
    if "m.volmar" in names:
        from volmar.models import load_model

        load_model(folder / "m.volmar")
    return names


def one_line(errors):
    (line,) = [line for line in errors.splitlines() if line.startswith("volmar cluster: ")]
    assert "Traceback" not in errors
    return line


# ---------------------------------------------------------------------- signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_in_the_middle_of_a_file_leaves_no_part(table, tmp_path, name):
    number = getattr(signal, name, None)
    if number is None:
        pytest.skip(f"this system has no {name}")
    process = start(table, tmp_path, before=PAUSE)
    while process.stdout.readline() not in ("writing\n", ""):
        pass
    assert len(list(tmp_path.glob(".*.part"))) == 1
    process.send_signal(number)
    _, errors = end(process)
    assert process.returncode == 128 + number, errors
    assert one_line(errors) == "volmar cluster: stopped; complete: nothing."
    assert not list(tmp_path.iterdir())


def test_a_signal_that_is_ignored_stays_so(table, tmp_path):
    """As nohup wants it."""
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    process = start(table, tmp_path, before=ignored + PAUSE.replace("sleep(60)", "sleep(0.5)"))
    while process.stdout.readline() not in ("writing\n", ""):
        pass
    process.send_signal(signal.SIGHUP)
    _, errors = end(process)
    assert process.returncode == 0, errors
    assert len(check_whole(tmp_path)) == len(OUTPUTS)


@pytest.mark.nightly
def test_signals_at_random_moments(table, tmp_path):
    """Twelve runs: nothing broken, nothing left, and never a traceback.

    Every night; signals in the middle of a file, the worst moment, are sent in every run above.
    """
    draw = random.Random(25)
    codes = set()
    before = time.monotonic()
    folder = tmp_path / "whole"
    folder.mkdir()
    process = start(table, folder)
    end(process)
    seconds = time.monotonic() - before
    for run in range(12):
        folder = tmp_path / str(run)
        folder.mkdir()
        number = draw.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        process = start(table, folder)
        # Python itself must have begun: what comes before is not ours.
        time.sleep(0.3 + 0.8 * seconds * draw.random())
        process.send_signal(number)
        _, errors = end(process)
        assert process.returncode in (0, 128 + number, -number), errors
        assert "Traceback" not in errors, errors
        check_whole(folder)
        codes.add(process.returncode)
    assert codes - {0}  # some were stopped


# ---------------------------------------------------------------------- disks and folders


@pytest.mark.parametrize("size", [0, 3000])
def test_a_full_disk_keeps_the_old_files(table, tmp_path, size):
    pytest.importorskip("resource")
    for name in OUTPUTS.values():
        (tmp_path / name).write_text("old")
    process = start(table, tmp_path, "--force", before=FULL.format(size=size))
    _, errors = end(process)
    assert process.returncode == 2, errors
    line = one_line(errors)
    assert "labels.csv cannot be written: File too large" in line
    assert [(tmp_path / name).read_text() for name in OUTPUTS.values()] == ["old"] * len(OUTPUTS)
    assert len(list(tmp_path.iterdir())) == len(OUTPUTS)


@pytest.mark.parametrize("option", ["-o", "--save", "--report", "--json"])
def test_no_space_names_the_file(table, tmp_path, monkeypatch, option):
    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = invoke("cluster", table, "-k", 2, option, tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert f"{tmp_path}/out cannot be written: No space left" in one_line(result.stderr)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 0)() == 0, reason="root may write anywhere")
def test_a_folder_that_is_closed_is_told_before_the_work(table, tmp_path):
    tmp_path.chmod(0o500)
    try:
        result = invoke("cluster", table, *outputs(tmp_path))
    finally:
        tmp_path.chmod(0o700)
    assert result.exit_code == 2, result.output
    assert "the folder cannot be written to" in one_line(result.stderr)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_closed_in_mid_run(table, tmp_path, monkeypatch):
    """Also as root: the system refuses to create the temporary file."""
    really = os.open

    def refuse(path, flags, *rest, **options):
        if str(path).endswith(".part"):
            raise PermissionError(13, "Permission denied", str(path))
        return really(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    result = invoke("cluster", table, "-k", 2, *outputs(tmp_path))
    assert result.exit_code == 2, result.output
    assert "labels.csv cannot be written: permission denied" in one_line(result.stderr)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- other writers


def test_a_file_that_appears_in_mid_run_is_kept(table, tmp_path, monkeypatch):
    sync = os.fsync

    def meddle(number):
        (tmp_path / "labels.csv").write_text("another's")
        sync(number)

    monkeypatch.setattr(os, "fsync", meddle)
    result = invoke("cluster", table, "-k", 2, *outputs(tmp_path))
    assert result.exit_code == 2, result.output
    assert "labels.csv exists already" in one_line(result.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["labels.csv"]
    assert (tmp_path / "labels.csv").read_text() == "another's"


@pytest.mark.parametrize(
    ("force", "n_writers"),
    [
        (False, 3),
        *(pytest.param(force, 8, marks=pytest.mark.nightly) for force in (False, True)),
    ],
)
def test_writers_at_the_same_time(table, tmp_path, force, n_writers):
    """Without --force exactly one gets the file; with it, files are whole."""
    options = ["--force"] if force else []
    processes = [start(table, tmp_path, *options) for _ in range(n_writers)]
    ended = [(end(process, 300)[1], process.returncode) for process in processes]
    codes = [code for _, code in ended]
    if force:
        assert codes == [0] * n_writers, ended
    else:
        assert sorted(codes) == [0] + [2] * (n_writers - 1), ended
        assert all("exists already" in one_line(text) for text, code in ended if code)
    assert check_whole(tmp_path) == set(OUTPUTS.values())
