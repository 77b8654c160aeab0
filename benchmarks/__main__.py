"""``python -m benchmarks [NAME ...]``: run benchmarks, print and store their tables."""

import os

# Set before numpy is imported: one thread for all methods, so that ratios compare the work.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = os.environ.get("VOLMAR_BENCH_THREADS", "1")

import argparse
import importlib
import platform
import sys
import time
from pathlib import Path

RESULTS = Path("bench-results")


def names() -> list[str]:
    """Return the names of the benchmarks: NAME of every file bench_NAME.py in this folder."""
    here = Path(__file__).parent
    return sorted(path.stem.removeprefix("bench_") for path in here.glob("bench_*.py"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"any of: {', '.join(names())} (default: all)")
    parser.add_argument("--full", action="store_true", help="larger sizes, more repeats")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.name) - set(names()))
    if unknown:
        parser.error(f"unknown benchmark: {', '.join(unknown)}. Available: {', '.join(names())}")
    RESULTS.mkdir(exist_ok=True)
    for name in arguments.name or names():
        module = importlib.import_module(f"benchmarks.bench_{name}")
        print(f"== {name}: {module.__doc__.splitlines()[0]}", flush=True)
        start = time.perf_counter()
        table = module.run(full=arguments.full)
        text = table.render()
        print(text)
        print(f"   ({time.perf_counter() - start:.0f} s)\n", flush=True)
        heading = f"# {name}\n\n{module.__doc__.strip()}\n\n{_environment()}\n\n"
        (RESULTS / f"{name}.md").write_text(f"{heading}{text}\n", encoding="utf-8")
    print(f"tables stored in {RESULTS}/")


def _environment() -> str:
    import numpy
    import scipy
    import sklearn

    import volmar

    return (
        f"volmar {volmar.__version__}, scikit-learn {sklearn.__version__}, numpy "
        f"{numpy.__version__}, scipy {scipy.__version__}, Python {platform.python_version()}, "
        f"{os.environ['OPENBLAS_NUM_THREADS']} BLAS thread(s), {platform.machine()}"
    )


if __name__ == "__main__":
    sys.exit(main())
