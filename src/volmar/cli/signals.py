"""Signals that end a command: SIGTERM and SIGHUP clean up like SIGINT (Ctrl-C).

Only the command line installs these handlers, not the library.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

# Windows has no SIGHUP.
_NUMBERS = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n)]
_received: list[int] = [signal.SIGINT]


class _Stopped(KeyboardInterrupt):
    """A subclass of `KeyboardInterrupt` that ``python -m`` does not treat specially.

    After a plain `KeyboardInterrupt` inside ``exec`` of source text (for example while a dataclass
    is defined), ``python -m`` ends with SIGINT, regardless of exit code and received signal.
    """


def catch_signals() -> None:
    """Let the signals raise `KeyboardInterrupt`, except those that are ignored (nohup)."""
    for number in _NUMBERS:
        if signal.getsignal(number) == _default(number):
            signal.signal(number, _interrupt)
    sys.unraisablehook = _interrupt_again


def release_signals() -> None:
    """Restore the default handlers, once all files are complete or removed."""
    for number in _NUMBERS:
        if signal.getsignal(number) == _interrupt:
            signal.signal(number, _default(number))


def exit_code() -> int:
    """Return the exit code after a signal: 128 plus its number."""
    return 128 + _received[-1]


def _default(number: int) -> Any:
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


def _interrupt(number: int, _: Any) -> None:
    _received.append(number)
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
