"""``python -m reproduction [NAME ...]``: run tables and figures of the papers again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reproduction.command import Request, list_all, reproduce
from reproduction.files import list_experiments
from volmar._files import printable, remove_parts
from volmar.cli.signals import catch_signals, exit_code, release_signals

# Errors that a user can fix. Other errors are bugs and show their traceback.
WRONG_INPUT = (ValueError, OSError, ImportError, MemoryError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.name and given.all:
        parser.error(
            f"--all runs all experiments, but {given.name[0]!r} was given too. Leave out one."
        )
    names = list_experiments() if given.all else list(dict.fromkeys(given.name))
    try:
        if given.list or not names:
            list_all()
        else:
            request = Request(
                out=given.out,
                jobs=given.jobs,
                realizations=given.realizations,
                only=tuple(given.only),
                quick=given.quick,
                run=given.run,
                retry=given.retry_failed,
                pack=given.pack,
                page=given.page,
            )
            reproduce(names, request)
    except KeyboardInterrupt as stop:
        sys.stderr.write(printable(f"{parser.prog}: stopped{stop}.") + "\n")
        return exit_code()
    except WRONG_INPUT as error:
        text = printable(" ".join(str(error).split()))
        sys.stderr.write(f"{parser.prog}: {text}\n")
        return 2
    return 0


def program() -> int:
    """Run the command as a program, which SIGTERM and SIGHUP stop in the same way as Ctrl-C."""
    try:
        catch_signals()
        return main()
    except KeyboardInterrupt:  # before the command has begun, or after it
        return exit_code()
    finally:
        remove_parts()
        release_signals()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction",
        description="Run tables and figures of the papers again; an interrupted run continues "
        "where it stopped.",
    )
    add = parser.add_argument
    add("name", nargs="*", help="experiments to run; lists them if none is given")
    add("--all", action="store_true", help="run all experiments")
    add("--list", action="store_true", help="print the experiments, a line each")
    add("--quick", action="store_true", help="one sampling and few settings of everything")
    add("--out", type=Path, default=Path("results"), help="folder of the results (results)")
    add("--jobs", "-j", type=_positive, default=1, help="number of processes (1)")
    add("--realizations", type=_positive, help="samplings of each data set and size")
    add("--only", action="append", default=[], metavar="DATASET", help="data set; repeatable")
    add("--no-run", dest="run", action="store_false", help="show stored results, run nothing")
    add("--retry-failed", action="store_true", help="run failed cells again")
    add("--pack", action="store_true", help="compress the results at the end")
    add("--page", type=Path, help="file to which the Markdown page is written as well")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"it must be at least 1, got {number}")
    return number


if __name__ == "__main__":
    sys.exit(program())
