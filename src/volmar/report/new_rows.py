"""The section of the report on rows that belong to no cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.report.outcome import Outcome
from volmar.report.text import as_count, as_number, as_percent, listed

__all__ = ["strangers"]

# Level at which the page counts rejected rows, and maximum number of clusters that it names.
LEVEL, MAX_NAMED = 0.01, 5


def strangers(outcome: Outcome) -> dict[str, Any] | None:
    """Return the number of rejected rows, clusters with too few rows, and the command."""
    novelty = outcome.novelty
    if novelty is None:
        return None
    p = novelty.p_values(outcome.X, outcome.labels, outcome.outlying)
    n_rejected = int(np.count_nonzero(p <= LEVEL))
    few = [j for j in outcome.clusters.tolist() if novelty.min_p_values[j] > LEVEL]
    names = [
        f"cluster {j} ({as_number(float(novelty.min_p_values[j]), 2)})" for j in few[:MAX_NAMED]
    ]
    if len(few) > MAX_NAMED:
        names.append(f"{as_count(len(few) - MAX_NAMED)} more")
    is_command = outcome.command.startswith("volmar ")
    return {
        "level": as_percent(LEVEL),
        "n_rejected": n_rejected,
        "n_rows": len(p),
        "share": as_percent(n_rejected / max(len(p), 1)),
        "few": listed(names) if names else "",
        "command": f"volmar predict MODEL TABLE --reject {LEVEL:g} -o labels.csv"
        if is_command
        else f"model.predict(new_rows, reject={LEVEL:g})",
    }
