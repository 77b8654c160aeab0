"""The report of a clustering: one self-contained HTML page, in words for any reader."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._version import __version__
from volmar.base.recursion import RecursiveResult
from volmar.evidence.wording import is_minimum, p_value_text, rounded_up
from volmar.report import figures
from volmar.report.column_profiles import all_columns
from volmar.report.environment import page_environment, write_whole
from volmar.report.figures import as_count, as_figure, as_mean, shortened
from volmar.report.number_comparison import numbers_side_by_side, silhouette_blocks
from volmar.report.outcome import Outcome
from volmar.report.profiles import profiles
from volmar.report.splits import best_split, tree_lines
from volmar.solvers import Status

__all__ = ["write_report"]

# Okabe and Ito's blue and vermilion, then colours that keep apart from them: each has a contrast
# of 3 to its background at least, and the first four are told apart with any of the three kinds of
# colour blindness. Shapes tell all of them apart again.
LIGHT = ("#0072b2", "#d55e00", "#063c42", "#a63c74", "#b88600", "#4a2a82", "#2f9a95", "#858a92")
DARK = ("#56a8e8", "#f2813a", "#a4eb9f", "#eebcf5", "#f0b400", "#8f74de", "#4f9a94", "#a4afb5")
N_SHAPES = 8
# A cluster below this share of the rows is worth a warning, as are fewer rows a column than this.
SMALL_SHARE = 0.05
FEW_ROWS = 5
N_MEANS = 6
LEVEL = 0.05
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def write_report(outcome: Outcome, path: Path, *, force: bool = False) -> None:
    """Write the report of a run as one HTML file that needs no network.

    Rows in the file are a sample of at most 3,000; everything else is counted over all rows. The
    file appears whole or not at all.

    Parameters
    ----------
    outcome : Outcome
        What the run left behind.
    path : Path
        File to write; its folder is made where there is none.
    force : bool, default=False
        Whether a file of that name is replaced.

    Raises
    ------
    FileExistsError
        If there is such a file, and `force` is not set.
    """
    path = Path(path)
    _refuse_existing(path, force)
    environment = page_environment()
    environment.filters.update(count=as_count, figure=as_figure, percent=_percent, words=_words)
    environment.filters.update(seconds=_seconds)
    html = environment.get_template("cluster.html").render(**_view(outcome))
    write_whole(path, html, lambda: _refuse_existing(path, force))


def _refuse_existing(path: Path, force: bool) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file for the report.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists: choose another name, or set force to replace it.")


def _view(outcome: Outcome) -> dict[str, Any]:
    """Return what the template shows."""
    codes, k = outcome.codes, outcome.k
    lead = np.nan_to_num(outcome.lead)
    moments = figures.cluster_moments(outcome.X, codes, k)
    driving = figures.drivers(outcome, moments)
    strength = _strength(outcome)
    names = [shortened(str(label)) for label in outcome.clusters]
    drawing, points = figures.scatter(outcome, lead, codes)
    return {
        "outcome": outcome,
        "version": __version__,
        "palettes": {"light": LIGHT, "dark": DARK},
        "clusters": [
            {
                "name": names[i],
                "colour": i % len(LIGHT),
                # Shapes shift by one each time the colours start over: no pair comes twice.
                "shape": (i + i // len(LIGHT)) % N_SHAPES,
                "size": int(moments.sizes[i]),
                "share": moments.sizes[i] / moments.sizes.sum(),
                "bar": 100 * moments.sizes[i] / moments.sizes.max(),
            }
            for i in range(k)
        ],
        "coloured": outcome.k > 1,
        "headline": _headline(outcome, moments.sizes),
        "strength": strength,
        "lede": _lede(outcome, strength),
        "cautions": _cautions(outcome, moments.sizes),
        "scatter": drawing,
        "data": _json({"points": points, "names": names, "id": shortened(outcome.id_name)}),
        "histogram": figures.bars(outcome, lead, codes),
        "drivers": _driver_rows(outcome, driving),
        "apart": profiles(outcome),
        "table": all_columns(outcome),
        "silhouette": silhouette_blocks(outcome),
        "numbers": numbers_side_by_side(outcome),
        "means": _mean_table(outcome, moments) if k == 1 else None,
        "evidence": [_evidence(one) for one in outcome.evidence],
        "tree": tree_lines(outcome),
        "best_split": best_split(outcome),
        "certificate": _certificate(outcome),
        "own_units": outcome.scales is not None or outcome.offsets is not None,
        "parameters": {key: shortened(repr(value)) for key, value in outcome.parameters.items()},
        "versions": _versions(),
    }


# ------------------------------------------------------------------------------ numbers as text


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def _seconds(value: float) -> str:
    return "< 0.01 s" if value < 0.01 else f"{as_figure(value, 2)} s"


def _chance(p: float, is_bound: bool) -> str:
    """Say how often a p-value like this one comes about by chance."""
    if p < 1e-4:
        return "fewer than 1 of 10,000 cases"
    if is_bound:
        return f"at most {as_figure(100 * rounded_up(p), 2)} % of cases"
    return "nearly all cases" if p > 0.99 else f"about {as_figure(100 * p, 2)} % of cases"


def _words(number: int) -> str:
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def _json(value: Any) -> Any:
    """Return JSON that cannot end a script element, whatever is in it."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)  # noqa: S704 (escaped for JSON in the line above)


def _versions() -> dict[str, str]:
    import sklearn

    return {
        "volmar": __version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "Python": platform.python_version(),
    }


# ------------------------------------------------------------------------------ the answer


class _Deciding(NamedTuple):
    """The p-value that the answer hangs on, None without a test, and the smallest possible one."""

    p: float | None
    minimum: float = 0.0

    @property
    def text(self) -> str:
        return "no test was run" if self.p is None else p_value_text(self.p, self.minimum)

    @property
    def is_minimum(self) -> bool:
        """Whether no draw from one group had a gap as clear."""
        return self.p is not None and is_minimum(self.p, self.minimum)


def _deciding(outcome: Outcome) -> _Deciding:
    """Return the largest p-value of the splits that were made."""
    given = [
        _Deciding(one.value, one.minimum)
        for one in outcome.evidence
        if one.kind == "p-value" and one.value is not None
    ]
    if not given:
        tree = getattr(outcome.estimator, "tree_", None)
        nodes = [] if tree is None else tree.splits() or [tree.root]
        given = [_Deciding(node.p_value, node.p_minimum) for node in nodes]
    given = [one for one in given if one.p is not None and np.isfinite(one.p)]
    return max(given, default=_Deciding(None))


def _strength(outcome: Outcome) -> dict[str, Any]:
    """Return the evidence in a word, with a tone and a level from 0 to 4."""
    found = _deciding(outcome)
    p = found.p
    if p is None:
        word, tone, level = "not tested", "neutral", 0
    elif outcome.k == 1:
        word, tone, level = "none for a split", "neutral", 0
        if p <= LEVEL:
            word = "a split was possible"
    elif p <= 0.001:
        word, tone, level = "very strong", "good", 4
    elif p <= 0.01 or (p <= LEVEL and found.is_minimum):
        # More draws could only strengthen what is at the minimum.
        word, tone, level = "strong", "good", 3
    elif p <= LEVEL:
        word, tone, level = "fair", "fair", 2
    else:
        word, tone, level = "weak", "weak", 1
    detail = found.text
    if outcome.k > 1 and found.is_minimum:
        detail += ", the smallest that the test gives"
    return {
        "word": word,
        "tone": tone,
        "level": level,
        "text": found.text,
        "detail": detail,
        "p": p,
        "chance": "" if p is None else _chance(p, found.is_minimum),
    }


def _headline(outcome: Outcome, sizes: NDArray) -> str:
    n, k, found = sizes.sum(), outcome.k, _deciding(outcome)
    if k == 1:
        if found.p is not None and found.p > LEVEL:
            return f"No evidence for more than one group ({found.text})."
        return f"All {as_count(n)} rows are in one cluster."
    if k == 2 and sizes.size == 2 and sizes[0] != sizes[1]:
        return (
            f"The {as_count(n)} rows fall into two clusters, "
            f"of {as_count(sizes[0])} and {as_count(sizes[1])} rows."
        )
    least, most = as_count(sizes.min()), as_count(sizes.max())
    spread = f", each of {least} rows." if least == most else f", of {least} to {most} rows."
    return f"The {as_count(n)} rows fall into {_words(k)} clusters{spread}"


def _lede(outcome: Outcome, strength: dict[str, Any]) -> str:
    k, p = outcome.k, strength["p"]
    if k == 1:
        if outcome.evidence and (p is None or p <= LEVEL):
            return outcome.evidence[0].sentence
        if p is None or p <= LEVEL:
            return "One cluster was asked for, so that nothing was split."
        return (
            f"The {as_count(len(outcome.labels))} rows stay one cluster: held-out rows do not "
            "confirm a split. There may still be groups that overlap, or that a method of this "
            "kind cannot see."
        )
    if p is None:
        return (
            f"{outcome.method} found them. Whether they are more than a convenient division was "
            "not tested."
        )
    if strength["tone"] == "weak":
        return (
            "But the evidence is weak: rows without any groups would often be divided like this. "
            "Treat the clusters as a convenient division, not as a discovery."
        )
    tree = getattr(outcome.estimator, "tree_", None)
    if tree is not None and all(np.isfinite(node.p_value) for node in tree.splits()):
        what = "The split" if k == 2 else "Every split"
        return (
            f"{what} was confirmed on held-out rows, which were not used to find it. The evidence "
            f"is {strength['word']}."
        )
    return (
        f"A test on held-out rows finds more than one group: the evidence is {strength['word']}."
    )


def _cautions(outcome: Outcome, sizes: NDArray) -> list[str]:
    """Return what speaks against the answer, what the run warned of first."""
    found = list(outcome.warnings)
    n, d = outcome.X.shape
    if outcome.k < outcome.n_found:
        verb = "has" if outcome.k == 1 else "have"
        found.append(f"Of {outcome.n_found} clusters only {outcome.k} {verb} any rows.")
    if outcome.k > 1:
        # Of many clusters none is large: less than half of an equal share is small then.
        limit = min(SMALL_SHARE, 0.5 / outcome.k)
        small = np.flatnonzero(sizes < limit * n)
        if small.size:
            names = ", ".join(shortened(str(outcome.clusters[i])) for i in small)
            who = f"cluster {names} has" if small.size == 1 else f"clusters {names} have each"
            found.append(
                f"Unbalanced: {who} less than {100 * limit:.2g} % of the rows. Look whether these "
                "are outliers."
            )
        tested = _deciding(outcome)
        if tested.p is not None and tested.p > LEVEL:
            found.append(f"Weak evidence: {tested.text} is more than {LEVEL:g}.")
        agreements = [e.value for e in outcome.evidence if e.kind == "stability"]
        if any(value is not None and value < 0.6 for value in agreements):
            found.append("Unstable: the clusters change a lot when some of the rows are left out.")
    status = getattr(getattr(outcome.estimator, "result_", None), "status", None)
    if isinstance(status, Status) and not status.ok:
        found.append(f"The solver did not finish as it should: {status.value}.")
    if n < FEW_ROWS * d:
        found.append(
            f"Few rows: {as_count(n)} rows for {as_count(d)} columns. With fewer than {FEW_ROWS} "
            "rows a column, directions that look like a split come about by chance."
        )
    return list(dict.fromkeys(found))


# ------------------------------------------------------------------------------ the features


def _in_own_units(outcome: Outcome, moments: figures.Moments) -> tuple[NDArray, NDArray]:
    """Return means and deviations in the units of the source, where the outcome knows them."""
    means, spread = moments.means, moments.deviation
    if outcome.scales is not None:
        means, spread = means * outcome.scales, spread * np.abs(outcome.scales)
    return (means if outcome.offsets is None else means + outcome.offsets), spread


def _driver_rows(outcome: Outcome, driving: figures.Drivers | None) -> dict[str, Any] | None:
    if driving is None:
        return None
    largest = float(np.abs(driving.values).max()) if driving.values.size else 1.0
    is_share = driving.kind != "linear"
    rows = [
        {
            "name": shortened(str(outcome.feature_names[j])),
            "value": _percent(value) if is_share else _signed(float(value)),
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


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + as_figure(value, 2, pad=True)


def _mean_table(outcome: Outcome, moments: figures.Moments) -> dict[str, Any] | None:
    """Return the means of all rows, of the columns that vary most."""
    leading = np.argsort(-moments.deviation, kind="stable")[:N_MEANS]
    if leading.size == 0:
        return None
    means, spread = _in_own_units(outcome, moments)
    return {
        "names": [shortened(str(outcome.feature_names[j]), 40) for j in leading],
        "values": [as_mean(means[0, j], spread[j]) for j in leading],
    }


# ------------------------------------------------------------------------------ the reasons


def _evidence(one: Any) -> dict[str, str]:
    title, value = one.kind, "" if one.value is None else as_figure(one.value, pad=True)
    if one.kind == "p-value":
        title = "Test on held-out rows"
        value = p_value_text(one.value, one.minimum) if one.value is not None else ""
    elif one.kind == "merged":
        title = "Merged parts"
    elif one.kind == "stability":
        title = "Stability"
    return {"title": title, "value": value, "sentence": one.sentence, "kind": one.kind}


def _certificate(outcome: Outcome) -> dict[str, Any]:
    """Return how near the solver's answer is to the best one, in words."""
    if outcome.k == 1:
        return {
            "title": "Nothing to solve",
            "tone": "neutral",
            "text": "All rows are together, so that there is no border.",
            "residuals": {},
        }
    result = getattr(outcome.estimator, "result_", None)
    if result is None:
        return {
            "title": "No certificate",
            "tone": "neutral",
            "text": f"{outcome.method} does not say how near its answer is to the best one.",
            "residuals": {},
        }
    status = getattr(result, "status", None)
    ended = "The solver finished as it should."
    tone = "good"
    if isinstance(status, Status) and not status.ok:
        ended = f"The solver ended early or in doubt: {status.value}."
        tone = "weak"
    residuals = {name: as_figure(float(v)) for name, v in getattr(result, "residuals", {}).items()}
    gap, objective = float(getattr(result, "gap", np.nan)), float(result.objective)
    for_labels = " for these labels" if hasattr(result, "rho") else ""
    if np.isfinite(gap):
        tone = "fair" if tone == "weak" else tone
        title = f"Within {_gap_text(gap, objective)} of the best possible{for_labels}"
        text = (
            f"The solver's answer is proved to be within {_gap_text(gap, objective)} of the best "
            f"possible{for_labels}. "
        )
        text += (
            "Another division of the rows could still be better: no method can rule that out."
            if for_labels
            else "The proof is about the problem that the method solves, not about the truth."
        )
    else:
        title = "No bound exists"
        tone = "neutral" if tone == "good" else tone
        why = (
            "Splits are made one after the other, and no bound covers the whole sequence."
            if isinstance(result, RecursiveResult) and outcome.k > 2
            else "This method has no bound on how much better another answer could be."
        )
        text = f"{why} What can be checked is that the answer satisfies its own conditions."
    return {
        "title": title,
        "tone": tone,
        "text": text,
        "status": ended,
        "steps": getattr(result, "n_iter", 0),
        "residuals": residuals,
    }


def _gap_text(gap: float, objective: float) -> str:
    if objective == 0:
        return as_figure(gap)
    share = 100 * gap / abs(objective)
    return "0.01 %" if share < 0.01 else f"{as_figure(share, 2)} %"
