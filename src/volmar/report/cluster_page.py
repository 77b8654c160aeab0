"""The report of a clustering: one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from volmar._checks import shortened
from volmar._files import expanded_path, printable, refuse_existing, write_atomically
from volmar._text import as_count, as_mean, as_number, as_percent, signed
from volmar._version import __version__
from volmar.plots.display import COLOURS
from volmar.report.drawings import bars, scatter
from volmar.report.drivers import Drivers, drivers
from volmar.report.outcome import LEVEL, Evidence, Outcome
from volmar.report.sections import (
    all_columns,
    best_split,
    numbers_side_by_side,
    profiles,
    silhouette_blocks,
    strangers,
    tree_lines,
)
from volmar.report.verdict import (
    STABLE,
    Verdict,
    agreement_of,
    certificate_of,
    in_words,
    led_by_categories,
    verdict_of,
)
from volmar.rows.tiled import ClusterMoments, cluster_moments
from volmar.solvers import Status

# The colours of the plots, and lighter ones for a dark background.
DARK = ("#56a8e8", "#f2813a", "#a4eb9f", "#eebcf5", "#f0b400", "#8f74de", "#4f9a94", "#a4afb5")
# The page warns of clusters with less than this share of the rows, and of fewer rows per column.
FEW_ROWS = 5


def write_report(outcome: Outcome, path: Path, *, force: bool = False) -> None:
    """Write the report of a run as one HTML file that needs no network.

    The file contains a sample of at most 3,000 rows; counts and means are those of all rows. It is
    written completely or not at all, and an existing file is only replaced with `force`.
    """
    refuse_existing(path, force)
    html = page_environment().get_template("cluster.html").render(**_view(outcome))
    expanded_path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, html.encode("utf-8", "replace"), force=force)


def page_environment() -> Any:
    """Return the jinja environment of the template; it escapes all values."""
    try:
        from jinja2 import Environment, PackageLoader
    except ImportError as error:
        raise ImportError(
            "reports need jinja2, which is not installed: pip install 'volmar[cli]'"
        ) from error
    environment = Environment(
        loader=PackageLoader("volmar.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        # Strings without control characters; trusted markup is unchanged.
        finalize=lambda v: printable(v, keep="\n\t") if type(v) is str else v,
    )
    environment.filters.update(
        count=as_count, number=as_number, percent=as_percent, words=in_words, seconds=_seconds
    )
    environment.filters["fingerprint"] = _fingerprint
    return environment


def _fingerprint(script: str) -> str:
    """Return the Content-Security-Policy source that allows only this script to run."""
    digest = hashlib.sha256(str(script).encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _view(outcome: Outcome) -> dict[str, Any]:
    """Return the variables of the template."""
    codes, k = outcome.codes, outcome.k
    lead = np.nan_to_num(outcome.lead)
    moments = cluster_moments(outcome.X, codes, k)
    driving = drivers(outcome, moments)
    led = led_by_categories(outcome, driving)
    verdict = verdict_of(outcome, moments.sizes, led)
    names = [shortened(str(label)) for label in outcome.clusters]
    drawing, points = scatter(outcome, lead, codes)
    return {
        "outcome": outcome,
        "version": __version__,
        "palettes": {"light": COLOURS, "dark": DARK},
        "clusters": [
            {
                "name": names[i],
                "colour": i % len(COLOURS),
                # Shapes shift by one each time the colours start over, so no pair repeats.
                "shape": (i + i // len(COLOURS)) % 8,
                "size": int(moments.sizes[i]),
                "share": moments.sizes[i] / moments.sizes.sum(),
                "bar": 100 * moments.sizes[i] / moments.sizes.max(),
            }
            for i in range(k)
        ],
        "coloured": k > 1,
        "verdict": verdict,
        "columns": _columns(outcome),
        "cautions": _cautions(outcome, moments.sizes, verdict),
        "scatter": drawing,
        "data": _json({"points": points, "names": names, "id": shortened(outcome.id_name)}),
        "histogram": bars(outcome, lead, codes),
        "drivers": _driver_rows(outcome, driving),
        "apart": profiles(outcome),
        "table": all_columns(outcome),
        "silhouette": silhouette_blocks(outcome),
        "numbers": numbers_side_by_side(outcome),
        "strangers": strangers(outcome),
        "means": _mean_table(outcome, moments) if k == 1 else None,
        "evidence": [_evidence(one) for one in outcome.evidence if one.kind != "join"],
        "borders": _borders(outcome),
        "tree": tree_lines(outcome),
        "best_split": best_split(outcome),
        "certificate": certificate_of(outcome),
        "own_units": outcome.scales is not None or outcome.offsets is not None,
        "parameters": {key: shortened(repr(value)) for key, value in outcome.parameters.items()},
        "versions": {
            "volmar": __version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
            "Python": platform.python_version(),
        },
    }


def _seconds(value: float) -> str:
    return "< 0.01 s" if value < 0.01 else f"{as_number(value, 2)} s"


def _json(value: Any) -> Any:
    """Return JSON with escaped markup, so that it cannot end a script element."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704 (escaped for JSON in the line above)


def _cautions(outcome: Outcome, sizes: NDArray, verdict: Verdict) -> list[str]:
    """Return the warnings of the page: those of the run, then those about the result."""
    found = list(outcome.warnings)
    n, d = outcome.X.shape
    if outcome.k < outcome.n_found:
        verb = "has" if outcome.k == 1 else "have"
        found.append(f"Only {outcome.k} of {outcome.n_found} clusters {verb} any rows.")
    if outcome.k > 1:
        # With many clusters, a cluster is small below half of an equal share.
        limit = min(0.05, 0.5 / outcome.k)
        small = np.flatnonzero(sizes < limit * n)
        if small.size:
            names = ", ".join(shortened(str(outcome.clusters[i])) for i in small)
            who = f"cluster {names} has" if small.size == 1 else f"clusters {names} each have"
            found.append(
                f"Unbalanced: {who} less than {100 * limit:.2g} % of the rows. Check whether "
                "these rows are outliers."
            )
        if verdict.n_open:
            found.append(f"Not every border is confirmed ({verdict.detail}).")
        elif verdict.level == 1:
            found.append(f"Weak evidence ({verdict.detail}): p is above {LEVEL:g}.")
        agreement = agreement_of(outcome)
        if agreement is not None and agreement < STABLE:
            found.append("Unstable: the clusters change a lot when some of the rows are left out.")
    status = getattr(getattr(outcome.estimator, "result_", None), "status", None)
    if isinstance(status, Status) and not status.ok:
        found.append(f"The solver did not finish normally: {status.value}.")
    if n < FEW_ROWS * d:
        found.append(
            f"Few rows: {as_count(n)} rows for {as_count(d)} columns. With fewer than {FEW_ROWS} "
            "rows per column, directions that look like a split arise by chance."
        )
    return list(dict.fromkeys(found))


def _driver_rows(outcome: Outcome, driving: Drivers | None) -> dict[str, Any] | None:
    if driving is None:
        return None
    largest = float(np.abs(driving.values).max()) if driving.values.size else 1.0
    is_share = driving.kind != "linear"
    rows = [
        {
            "name": shortened(str(outcome.feature_names[j])),
            "value": as_percent(value) if is_share else signed(float(value)),
            "bar": round(100 * abs(float(value)) / largest, 2),
            "side": 1 if value > 0 else 0,
        }
        for j, value in zip(driving.features, driving.values, strict=True)
    ]
    return {
        "kind": driving.kind,
        "rows": rows,
        "n_rows": driving.n_rows,
        "n_tried": driving.n_tried,
        "n_all": outcome.X.shape[1],
    }


def _mean_table(outcome: Outcome, moments: ClusterMoments) -> dict[str, Any] | None:
    """Return the means of the columns with the largest variance, in the source's units."""
    leading = np.argsort(-moments.deviation, kind="stable")[:6]
    if leading.size == 0:
        return None
    means, spread = moments.means, moments.deviation
    if outcome.scales is not None:
        means, spread = means * outcome.scales, spread * np.abs(outcome.scales)
    if outcome.offsets is not None:
        means = means + outcome.offsets
    return {
        "names": [shortened(str(outcome.feature_names[j]), 40) for j in leading],
        "values": [as_mean(means[0, j], spread[j]) for j in leading],
    }


TITLES = {
    "p-value": "Test of the borders",
    "groups": "Groups among the clusters",
    "untested": "Not tested",
    "stability": "Stability",
}


def _evidence(one: Evidence) -> dict[str, str]:
    value = "" if one.value is None else as_number(one.value, pad=True)
    if one.kind == "p-value":
        value = one.p_text
    elif one.kind == "groups":
        value = f"{as_count(one.value or 0)} {'group' if one.value == 1 else 'groups'}"
    return {"title": TITLES.get(one.kind, one.kind), "value": value, "sentence": one.sentence}


def _borders(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the tested borders between the clusters; those without a gap come first."""
    place = {label: i for i, label in enumerate(outcome.clusters.tolist())}
    return [
        {
            "sides": [[place[label] for label in side if label in place] for side in one.clusters],
            "sentence": one.sentence,
            "is_gap": one.is_supported,
        }
        for one in outcome.evidence
        if one.kind == "join"
    ]


def _columns(outcome: Outcome) -> dict[str, Any]:
    """Return the number of used columns, a text about all columns, and those left out."""
    n_features, n_all = len(outcome.feature_names), outcome.n_columns
    n_used = n_all - len(outcome.left_out)
    if not outcome.left_out and n_features < n_all:
        n_used = n_features
    texts = []
    if n_used != n_all:
        texts.append(f"of {as_count(n_all)} used; {as_count(n_all - n_used)} left out")
    if n_features != n_used:
        texts.append(f"{as_count(n_features)} features made from them")
    return {
        "n_used": n_used,
        "text": "; ".join(texts) or "all used",
        "left_out": {shortened(str(k)): v for k, v in outcome.left_out.items()},
    }
