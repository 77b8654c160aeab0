"""Reading and checking of the experiments' declarative files and of the published values."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from reproduction.experiment import (
    COLUMNS,
    VIEWS,
    Axis,
    Experiment,
    Panel,
    Statement,
    similarity_name,
)

# Published tables with shares instead of percentages.
SHARES = ("nmi", "rand_index", "f_beta_1.5")
SAMPLING_KEYS = ("realizations", "whole_sets", "sizes", "stretches", "log")
AXIS_KEYS = ("parameter", "values", "label", "log")
DATASET_KEYS = ("load", "similarity", "realizations", "sizes")
METHOD_KEYS = (
    "estimator",
    "matrix",
    "similarity",
    "fixed",
    "grid",
    "default",
    "realizations",
    "sizes",
    "datasets",
    "columns",
    "on",
    "default_on",
    "best_of",
)
PANEL_KEYS = ("axis", "measures", "percent")
CLAIM_KEYS = ("says", "of", "on", "at", "quantity", "factor", "margin", "share", "pointwise")
# Keys of an experiment that shows the cells of another one in a different way.
OWN = (
    "title",
    "paper",
    "table",
    "figure",
    "view",
    "note",
    "reason",
    "label_free_reason",
    "tolerance",
    "needed",
    "judged",
    "parts",
    "test",
    "absent",
    "remarks",
    "quantities",
    "log",
    "statements",
    "groups",
    "printed",
)


def list_experiments() -> list[str]:
    """Return the names of all experiments, for `load_experiment`."""
    folder = files("reproduction") / "experiments"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name[0] != "_")


def load_experiment(name: str) -> Experiment:
    """Read an experiment by its name.

    Examples
    --------
    >>> from reproduction import load_experiment
    >>> experiment = load_experiment("mvc-jmlr-2013-table-2")
    >>> list(experiment.methods)
    ['KM', 'NSC', 'MVC-SL', 'LGMMC', 'GMMC']
    """
    if name not in list_experiments():
        raise ValueError(
            f"no experiment is named {name!r}. Available: {', '.join(list_experiments())}."
        )
    text = (files("reproduction") / "experiments" / f"{name}.toml").read_text(encoding="utf-8")
    return parse_experiment(name, text)


def parse_experiment(name: str, text: str) -> Experiment:
    """Read an experiment from the text of its file."""
    raw = tomllib.loads(text)
    _check_keys(name, raw)
    for key in ("note", "reason", "label_free_reason"):
        raw[key] = " ".join(raw.get(key, "").split())
    for key in ("judged", "quantities", "log", "columns"):
        if key in raw:
            raw[key] = tuple(raw[key])
    for key in ("groups", "parts"):
        if key in raw:
            raw[key] = {group: tuple(sets) for group, sets in raw[key].items()}
    raw["statements"] = tuple(_statement(name, claim) for claim in raw.pop("claims", ()))
    source = raw.pop("cells_of", "")
    if source:
        experiment = _other_side(name, source, raw)
    else:
        sampling = raw.pop("sampling", {"realizations": 1})
        experiment = Experiment(
            name=name,
            source=name,
            n_realizations=sampling["realizations"],
            whole_sets=sampling.get("whole_sets", False) or "stretches" in sampling,
            axis=_axis(name, sampling, raw.pop("axis", None)),
            panels=tuple(
                Panel(panel["axis"], tuple(panel["measures"]), panel.get("percent", False))
                for panel in raw.pop("panels", ())
            ),
            **raw,
        )
    _check(experiment)
    return experiment


def _check_keys(name: str, raw: Mapping[str, Any]) -> None:
    """Raise an error for unknown or missing keys."""
    of_files = {one.name for one in fields(Experiment)} - {
        *("name", "source", "n_realizations", "whole_sets", "statements", "quick")
    }
    known = [*sorted(of_files), "cells_of", "sampling", "claims"]
    _check_known(name, "the file", raw, known)
    needed = ("title", "paper") if "cells_of" in raw else ("title", "paper", "metric", "datasets")
    _check_there(name, "the file", raw, needed)
    if "sampling" in raw:
        _check_known(name, "sampling", raw["sampling"], SAMPLING_KEYS)
        _check_there(name, "sampling", raw["sampling"], ("realizations",))
    if "axis" in raw:
        _check_known(name, "axis", raw["axis"], AXIS_KEYS)
        _check_there(name, "axis", raw["axis"], ("parameter", "values", "label"))
    for dataset, special in raw.get("datasets", {}).items():
        _check_known(name, f"data set {dataset}", special, DATASET_KEYS)
    for method, spec in raw.get("methods", {}).items():
        keys = ("best_of",) if "best_of" in spec else METHOD_KEYS
        _check_known(name, f"method {method}", spec, keys)
        if "best_of" not in spec:
            _check_there(name, f"method {method}", spec, ("estimator",))
    for panel in raw.get("panels", ()):
        _check_known(name, "panels", panel, PANEL_KEYS)
        _check_there(name, "panels", panel, ("axis", "measures"))
    for claim in raw.get("claims", ()):
        says = f"claim {claim.get('says', '')!r}"
        sides = [side for side in ("below", "above") if side in claim]
        own = [key for side in sides for key in (side, f"{side}_at")]
        _check_known(name, says, claim, [*CLAIM_KEYS, *own])
        _check_there(name, says, claim, ("says", "of"))


def _check_there(name: str, where: str, given: Any, needed: Any) -> None:
    missing = [key for key in needed if key not in given]
    if missing:
        raise ValueError(f"{name}: {where} has no {', '.join(missing)}; add it.")


def _other_side(name: str, source: str, raw: dict[str, Any]) -> Experiment:
    """Show cells of the experiment `source` in another way."""
    foreign = sorted(key for key, value in raw.items() if key not in OWN and value)
    if foreign:
        raise ValueError(
            f"{name}: it shows the cells of {source}, whose file says what is run; leave out: "
            f"{', '.join(foreign)}."
        )
    words = ("table", "figure", "note", "reason", "label_free_reason", "test")
    fresh = {**dict.fromkeys(words, ""), "statements": ()}
    return replace(load_experiment(source), **{**fresh, **raw}, name=name)


def _axis(name: str, sampling: Mapping[str, Any], axis: Mapping[str, Any] | None) -> Axis:
    """Read the horizontal axis of the experiment's figures."""
    kinds = [key for key in ("sizes", "stretches") if key in sampling]
    kinds += ["axis"] if axis else []
    if len(kinds) > 1 or ("sizes" in sampling and sampling.get("whole_sets")):
        raise ValueError(
            f"{name}: a sampling is one of whole_sets, sizes, stretches and [axis], and there are "
            f"{', '.join([*kinds, *(['whole_sets'] if sampling.get('whole_sets') else [])])}; "
            "leave one of them out."
        )
    if "sizes" in sampling:
        log = sampling.get("log", False)
        return Axis("size", tuple(sampling["sizes"]), "sample size (rows)", log=log)
    if "stretches" in sampling:
        return Axis("stretch", tuple(sampling["stretches"]), "factor of one feature", log=True)
    if axis:
        return Axis(
            "parameter",
            tuple(axis["values"]),
            axis["label"],
            axis["parameter"],
            axis.get("log", False),
        )
    return Axis()


def _statement(name: str, claim: Mapping[str, Any]) -> Statement:
    """Read one of the file's claims."""
    claim = dict(claim)
    sides = [side for side in ("below", "above") if side in claim]
    if len(sides) != 1:
        raise ValueError(
            f"{name}: the claim {claim.get('says', '')!r} has {len(sides)} of below and above; "
            "give it one."
        )
    side = sides[0]
    listed: dict[str, Any] = {
        "on": claim.pop("on", ()),
        "at": _as_list(claim.pop("at", ())),
        "than_at": _as_list(claim.pop(f"{side}_at", ())),
    }
    claim.update({key: tuple(value) for key, value in listed.items()})
    return Statement(than=claim.pop(side), is_below=side == "below", **claim)


def _as_list(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else [value]


def _check(experiment: Experiment) -> None:
    """Raise an error if a file refers to undefined names."""
    name = experiment.name
    _check_known(name, "view", [experiment.view], VIEWS)
    _check_known(name, "test", [experiment.test], ("", "paired", "unpaired"))
    _check_known(name, "columns", experiment.columns, COLUMNS)
    _check_known(name, "judged", experiment.judged, experiment.methods)
    in_groups = [one for sets in experiment.groups.values() for one in sets]
    in_parts = [one for sets in experiment.parts.values() for one in sets]
    _check_known(name, "groups", in_groups, experiment.datasets)
    _check_known(name, "parts", in_parts, experiment.datasets)
    shown = ("value", "seconds", *experiment.measures)
    _check_known(name, "quantities", experiment.quantities, shown)
    _check_known(name, "log", experiment.log, shown)
    _check_known(name, "printed", experiment.printed, experiment.groups)
    sizes = experiment.sizes
    for dataset, special in experiment.datasets.items():
        _check_known(name, f"sizes of {dataset}", special.get("sizes", ()), sizes)
    for method, spec in experiment.methods.items():
        _check_known(name, f"datasets of {method}", spec.get("datasets", ()), experiment.datasets)
        for key in ("on", "default_on"):
            _check_known(name, f"{key} of {method}", spec.get(key, ()), experiment.datasets)
        _check_known(name, f"columns of {method}", spec.get("columns", ()), experiment.columns)
        _check_known(name, f"sizes of {method}", spec.get("sizes", ()), sizes)
        run = [m for m, one in experiment.methods.items() if "best_of" not in one]
        _check_known(name, f"best_of of {method}", spec.get("best_of", ()), run)
    if experiment.common:
        grids = [spec.get("grid", {}) for spec in experiment.methods.values()]
        parameters = list(dict.fromkeys(parameter for grid in grids for parameter in grid))
        _check_known(name, "common", [experiment.common], parameters)
    for special, (method, spec) in product(
        experiment.datasets.values(), experiment.methods.items()
    ):
        if "matrix" in spec:
            wanted = similarity_name(special, spec)
            _check_known(name, f"similarity of {method}", [wanted], experiment.similarities)
    _check_absent(experiment)
    if experiment.axis.kind == "parameter" and "label-free" in experiment.columns:
        raise ValueError(
            f"{name}: [axis] is a parameter of the methods, which the label-free default does not "
            'have; say columns = ["hindsight"].'
        )
    if experiment.panels and not experiment.axis.values:
        raise ValueError(
            f"{name}: panels show measures against the sample size, and sampling has no sizes; "
            "add them, or leave the panels out."
        )
    drawn = [measure for panel in experiment.panels for measure in panel.measures]
    _check_known(name, "panels", drawn, experiment.measures)
    _check_statements(experiment)


def _check_absent(experiment: Experiment) -> None:
    """Raise an error for a reason or a remark on a cell that does not exist."""
    printed = [method for _, method in published_cells(experiment.paper, experiment.table)]
    known = list(dict.fromkeys([*experiment.methods, *printed]))
    keys = [("absent", key) for key in experiment.absent]
    keys += [("remarks", key) for key in experiment.remarks]
    for table, key in keys:
        method, _, dataset = key.partition("/")
        _check_known(experiment.name, table, [method], known)
        _check_known(experiment.name, table, [dataset] if dataset else [], experiment.datasets)


def _check_statements(experiment: Experiment) -> None:
    series: Collection[str] = experiment.methods
    if experiment.groups:
        series = experiment.groups
    elif experiment.view == "measures":
        series = experiment.measures
    for statement in experiment.statements:
        of = f"claim {statement.says!r}"
        than = [statement.than] if isinstance(statement.than, str) else []
        _check_known(experiment.name, of, [statement.of, *than], series)
        _check_known(experiment.name, of, statement.on, [*experiment.datasets, *experiment.groups])
        _check_known(
            experiment.name, of, (*statement.at, *statement.than_at), experiment.axis.values
        )
        _check_known(
            experiment.name, of, [statement.quantity], ("value", "seconds", *experiment.measures)
        )
        if statement.pointwise and (statement.than_at or not experiment.axis.values):
            raise ValueError(
                f"{experiment.name}: {of} is pointwise, which compares both sides at the same "
                "places of an axis; leave out pointwise, or below_at and above_at."
            )


def _check_known(name: str, key: str, values: Any, known: Any) -> None:
    unknown = [str(value) for value in values if value not in known]
    if unknown:
        there = ", ".join(repr(one) for one in known) or "none"
        raise ValueError(
            f"{name}: {key} names {', '.join(map(repr, unknown))}, and there are: {there}; add "
            "it, or name another."
        )


def published(paper: str, table: str) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Return a published table: (data set, method) to (value, standard error).

    Errors and agreements are in percent, times in seconds. Missing values (N/A) are left out.
    """
    figures = {}
    for row in _printed_rows(paper, table):
        if row["value"]:
            error = float(row["standard_error"]) if row["standard_error"] else None
            # Agreements are printed as shares.
            factor = 100.0 if row["metric"] in SHARES else 1.0
            figures[row["dataset"], row["method"]] = (factor * float(row["value"]), error)
    return figures


def published_cells(paper: str, table: str) -> list[tuple[str, str]]:
    """Return data set and method of every cell of a published table, missing values included."""
    return [(row["dataset"], row["method"]) for row in _printed_rows(paper, table)]


@cache
def _printed_rows(paper: str, table: str) -> list[dict[str, str]]:
    with (files("reproduction") / "published.csv").open(encoding="utf-8") as file:
        return [
            row for row in csv.DictReader(file) if (row["paper"], row["table"]) == (paper, table)
        ]
