"""Simulate the null distribution of the dip: ``python benchmarks/make_dip_table.py [FILE]``.

Writes the table that ``volmar.evidence.modes.dip.dip_p_value`` reads. Each row has the size n of a
sample, the number of uniform samples that were drawn, and for each p-value of the header the
sqrt(n) * dip that this share of them reaches or exceeds. A cell is empty if fewer than ten samples
would exceed it. Every row has a separate random stream, seeded by its size, so rows can be added
without a change to the others. It takes about ten minutes on one core.
"""

import argparse
import csv
import math
import time
from pathlib import Path

import numpy as np

from volmar.evidence.modes.dip import modal_search

SEED = 1985
# Number of draws by sample size.
DRAWS = {
    **dict.fromkeys((4, 5, 6, 7, 8, 9, 10, 15, 20, 30, 50, 100, 200, 500, 1000, 2000), 100_000),
    **dict.fromkeys((5000, 10_000), 50_000),
    20_000: 20_000,
    72_000: 10_000,
}
P_VALUES = (
    *(0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05),
    *(0.04, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005, 0.003, 0.002, 0.001, 0.0005, 0.0002, 0.0001),
)
LEAST_BEYOND = 10
TABLE = Path(__file__).resolve().parents[1] / "src" / "volmar/evidence/modes/dip_table.csv"


def scaled_dips(n: int, draws: int) -> np.ndarray:
    """Return sqrt(n) times the dips of uniform samples, sorted.

    The dip is invariant under shifts and scalings, and the n - 1 spacings of a uniform sample are
    independent exponentials divided by their common sum: no sample has to be sorted.
    """
    rng = np.random.default_rng([SEED, n])
    values, counts = np.zeros(n), np.ones(n)
    doubled = np.empty(draws)
    # Avoids 0 / 0 for two values that are equal after rounding.
    with np.errstate(invalid="raise"):
        for draw in range(draws):
            np.cumsum(rng.standard_exponential(n - 1), out=values[1:])
            doubled[draw], *_ = modal_search(values, counts)
    return np.sort(doubled) / (2 * math.sqrt(n))


def row(n: int, draws: int) -> list[str]:
    dips = scaled_dips(n, draws)
    beyond = [round(p * draws) for p in P_VALUES]
    quantiles = [f"{dips[-k]:.6f}" if k >= LEAST_BEYOND else "" for k in beyond]
    return [str(n), str(draws), *quantiles]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=TABLE, help="default: %(default)s")
    path = parser.parse_args().file
    start = time.perf_counter()
    rows = []
    for n, draws in DRAWS.items():
        rows.append(row(n, draws))
        print(f"n = {n}: {draws} draws, {time.perf_counter() - start:.0f} s so far", flush=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["n", "draws", *map(str, P_VALUES)])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
