"""The sections of the report on rows that belong to no cluster and on rows to label first."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.report.outcome import Outcome
from volmar.report.text import as_count, as_number, as_percent, listed, shortened

__all__ = ["rows_to_label", "strangers"]

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


def rows_to_label(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the suggested rows by id, with their cluster and the alternative cluster."""
    found = outcome.suggestions
    if found is None:
        return []
    place = {label: i for i, label in enumerate(outcome.clusters.tolist())}
    return [
        {
            "id": shortened(str(outcome.ids[row])),
            "cluster": place[cluster],
            "rival": place.get(rival),
            "disagreement": as_percent(float(share)),
        }
        for row, cluster, rival, share in zip(
            found.rows.tolist(),
            found.clusters.tolist(),
            found.rivals.tolist(),
            found.disagreement.tolist(),
            strict=True,
        )
    ]
