"""Signals that end a command: SIGTERM and SIGHUP clean up as SIGINT (Ctrl-C) does.

Only a program installs these handlers; the library leaves signals alone.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["catch_signals", "exit_code", "release_signals", "without_interrupts"]

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
# Seconds after which an interrupt comes again that hit code which cannot raise.
_AGAIN = 0.05
_received: list[int] = [signal.SIGINT]
_held: list[bool] = []


class _Stopped(KeyboardInterrupt):
    """An interrupt that Python does not take for one of its own.

    A `KeyboardInterrupt` in ``exec`` of a text (a dataclass that is being made, say) lets
    ``python -m`` end by SIGINT later, whatever the exit code is and whichever signal came.
    """


def catch_signals() -> None:
    """Let all of them raise a `KeyboardInterrupt`, but where they are ignored (nohup)."""
    for number in _numbers():
        if signal.getsignal(number) == _default(number):
            signal.signal(number, _interrupt)
    sys.unraisablehook = _interrupt_again


def release_signals() -> None:
    """Leave signals to the system again: all files are complete or gone."""
    for number in _numbers():
        if signal.getsignal(number) == _interrupt:
            signal.signal(number, _default(number))


def exit_code() -> int:
    """Return the exit code of a command that a signal has stopped: 128 and its number."""
    return 128 + _received[-1]


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Hold back SIGINT and SIGHUP; a process that is started inside never gets them.

    Those that another thread gets, which blocks none, are raised at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    n_received = len(_received)
    _held.append(True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _held.pop()
        if len(_received) > n_received:
            raise _Stopped


def _numbers() -> list[int]:
    return [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]


def _default(number: int) -> Any:
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


def _interrupt(number: int, _: Any) -> None:
    _received.append(number)
    if not _held:
        raise _Stopped


def _interrupt_again(caught: Any) -> None:
    """Raise an interrupt once more that fell into a destructor, where Python ignores it."""
    if not issubclass(caught.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(caught)
        return
    if hasattr(signal, "pthread_kill"):
        main = threading.main_thread().ident
        timer = threading.Timer(_AGAIN, signal.pthread_kill, (main, _received[-1]))
        timer.daemon = True
        timer.start()
