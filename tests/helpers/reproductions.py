"""Runs of ``python -m reproduction`` in separate processes that can be interrupted."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from helpers import ROOT


@contextmanager
def started(*words):
    """Start a run in a new process group, which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reproduction", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def running(group):
    """Return the running processes of a group; empty on systems without /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found
