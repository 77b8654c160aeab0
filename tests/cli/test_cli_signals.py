"""Signals become interrupts in the program alone, and none is lost."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from volmar import MSPC

LOST = """
import os, signal, sys, time
from volmar.cli.signals import catch_signals, exit_code

signal.signal(signal.SIGTERM, signal.SIG_DFL)
catch_signals()

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)  # the interrupt comes here, where Python ignores it

try:
    last = Last()
    del last
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(exit_code())
"""


def test_an_interrupt_in_a_destructor_comes_again():
    ended = subprocess.run(
        [sys.executable, "-c", LOST], capture_output=True, text=True, check=False, timeout=50
    )
    assert ended.returncode == 143
    assert ended.stderr == ""


IN_A_TEXT = """
import os, signal, sys
from volmar.cli.signals import catch_signals, exit_code

number = getattr(signal, sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
catch_signals()
try:
    exec("os.kill(os.getpid(), number)")
except KeyboardInterrupt:
    sys.exit(exit_code())
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_the_exit_code_is_that_of_the_signal_in_a_text_that_is_run(name, code, tmp_path):
    """``python -m`` would end by SIGINT if a dataclass is being defined, for example."""
    (tmp_path / "in_a_text.py").write_text(IN_A_TEXT)
    command = [sys.executable, "-m", "in_a_text", name]
    ended = subprocess.run(command, check=False, timeout=50, cwd=tmp_path)
    assert ended.returncode == code


HELD_BACK = """
import os, signal, sys, threading, time
from volmar.cli.signals import catch_signals, without_interrupts

threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
signal.signal(signal.SIGINT, signal.default_int_handler)
catch_signals()
try:
    with without_interrupts():
        os.kill(os.getpid(), signal.SIGINT)  # the other thread gets it
        time.sleep(0.2)
        sys.stdout.write("whole")
except KeyboardInterrupt:
    sys.stdout.write(", then stopped")
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals cannot be blocked")
def test_interrupts_that_other_threads_get_are_held_back_too():
    ended = subprocess.run(
        [sys.executable, "-c", HELD_BACK], capture_output=True, text=True, check=False, timeout=50
    )
    assert ended.stdout == "whole, then stopped"


BETWEEN = """
import os, signal
import typer.core
from volmar.cli import main

def parse(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
typer.core.TyperGroup.make_context = parse
main()
"""


def test_an_interrupt_before_a_command_shows_no_traceback():
    ended = subprocess.run(
        [sys.executable, "-c", BETWEEN, "info"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 130
    assert not ended.stderr.strip()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_the_library_leaves_signals_alone(name):
    number = getattr(signal, name, None)
    before = number and signal.getsignal(number)
    MSPC(random_state=0).fit(np.random.default_rng(0).normal(size=(40, 2)))
    assert (number and signal.getsignal(number)) == before
