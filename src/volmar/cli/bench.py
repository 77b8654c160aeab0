"""``volmar bench``: the benchmarks of a checkout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import volmar
from volmar.cli.console import UsageError

__all__ = ["find_checkout", "run_bench"]


def run_bench(names: Sequence[str] = (), *, full: bool = False) -> int:
    """Run benchmarks of the checkout that one is in, or that the library is imported from.

    Parameters
    ----------
    names : sequence of str
        Which; all if empty.
    full : bool, default=False
        Larger sizes, more repeats.

    Returns
    -------
    int
        The exit code of the benchmarks.
    """
    checkout = find_checkout()
    if checkout is None:
        raise UsageError(
            "the benchmarks are not part of an installed volmar. Clone the repository and run "
            "'make bench' in it, or this command from inside of it."
        )
    known = sorted(
        path.stem.removeprefix("bench_") for path in (checkout / "benchmarks").glob("bench_*.py")
    )
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f"there is no benchmark {', '.join(unknown)}. There are {', '.join(known)}."
        )
    command = [sys.executable, "-m", "benchmarks", *(["--full"] if full else []), *names]
    return subprocess.run(command, cwd=checkout, check=False).returncode  # noqa: S603 -- our own


def find_checkout() -> Path | None:
    """Return the root of volmar's repository, or None where there is none."""
    here = Path.cwd()
    home = Path(volmar.__file__).resolve().parent
    for folder in (here, *here.parents, *home.parents[1:2]):
        if _is_checkout(folder):
            return folder
    return None


def _is_checkout(folder: Path) -> bool:
    return all(
        (folder / name).is_file()
        for name in ("benchmarks/__main__.py", "src/volmar/_version.py", "pyproject.toml")
    )
