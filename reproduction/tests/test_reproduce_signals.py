"""Signals while worker processes start: one line of output, and no process is left."""

import os
import signal
import time

import pytest
from helpers.reproductions import running, started


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes cannot be counted")
@pytest.mark.parametrize(("name", "wait"), [("SIGINT", 0.0), ("SIGINT", 0.4), ("SIGHUP", 0.2)])
def test_workers_that_are_still_importing_show_no_traceback(tmp_path, name, wait):
    number = getattr(signal, name)
    words = ["mvc-jmlr-2013-figure-6", "--out", str(tmp_path / "out"), "-j", "2"]
    with started(*words) as process:
        end = time.monotonic() + 120
        while len(running(process.pid)) < 3:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(wait)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does: to everyone in the group
        else:
            process.send_signal(number)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + number, output
    assert output.strip().startswith("python -m reproduction: stopped; ")
    assert len(output.strip().splitlines()) == 1, output
    end = time.monotonic() + 60
    while running(process.pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert running(process.pid) == []
