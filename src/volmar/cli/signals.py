"""Signals that end a command: SIGTERM and SIGHUP clean up like SIGINT (Ctrl-C).

Only the command line installs these handlers, not the library.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
_received: list[int] = [signal.SIGINT]
_held: list[bool] = []


class _Stopped(KeyboardInterrupt):
    """A subclass of `KeyboardInterrupt` that ``python -m`` does not treat specially.

    If a plain `KeyboardInterrupt` is raised inside ``exec`` of source text (for example while a
    dataclass is defined), ``python -m`` later ends with SIGINT, regardless of the exit code and of
    the signal that was received.
    """


def catch_signals() -> None:
    """Let the signals raise `KeyboardInterrupt`, except those that are ignored (nohup)."""
    for number in _numbers():
        if signal.getsignal(number) == _default(number):
            signal.signal(number, _interrupt)
    sys.unraisablehook = _interrupt_again


def release_signals() -> None:
    """Restore the default handlers, once all files are complete or removed."""
    for number in _numbers():
        if signal.getsignal(number) == _interrupt:
            signal.signal(number, _default(number))


def exit_code() -> int:
    """Return the exit code after a signal: 128 plus its number."""
    return 128 + _received[-1]


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Block SIGINT and SIGHUP; processes started inside never receive them.

    Other threads do not block them. A signal that one of these receives is raised at the end.
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
    """Repeat an interrupt that was raised in a destructor, where Python ignores it."""
    if not issubclass(caught.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(caught)
        return
    if hasattr(signal, "pthread_kill"):
        main = threading.main_thread().ident
        timer = threading.Timer(0.05, signal.pthread_kill, (main, _received[-1]))
        timer.daemon = True
        timer.start()
