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
