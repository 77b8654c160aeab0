"""The page *Symbols* lists exactly the values that are used for parameters set to None."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import volmar

PAGE = Path(__file__).parents[1] / "docs" / "symbols.md"
NO_LIMIT = 2**31 - 1
WITH_TABLE = ["CPMMC", "KernelCPMMC", "SKMMC", "MultivariateMMC", "LGMMC", "MSPC"]


def rows_of_values():
    """Return (estimator, parameter) -> (default mode, paper mode) of the first table."""
    text = PAGE.read_text(encoding="utf-8").split("## Values that the papers set")[1]
    rows = {}
    for line in text.split("Other parameters")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        names = re.findall(r"`(\w+)`", cells[0])
        if len(cells) == 5 and names and names[0] in volmar.__all__:
            for name in names:
                rows[name, cells[1].strip("`")] = cells[2], cells[3]
    return rows


def shown(value):
    if value == NO_LIMIT:
        return "no limit"
    if isinstance(value, bool):
        return str(value)
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


@pytest.mark.parametrize("name", WITH_TABLE)
def test_the_page_has_the_values_of_the_code(name):
    kind, rows = getattr(volmar, name), rows_of_values()
    default, paper = kind._mode_defaults["default"], kind._mode_defaults["paper"]
    for parameter in default | paper:
        left, right = rows.pop((name, parameter))
        for mode, cell in ((default, left), (paper, right)):
            if parameter not in mode:
                assert cell == "not used"
            else:
                assert cell.split(",")[0] == shown(mode[parameter]), (parameter, cell)


def test_every_row_is_a_parameter_that_may_be_none():
    rows = rows_of_values()
    assert len(rows) > 30
    for name, parameter in rows:
        kind = getattr(volmar, name)
        default = inspect.signature(kind).parameters[parameter].default
        fixed = parameter == "threshold" and default == "adaptive"
        assert default is None or fixed, (name, parameter)
