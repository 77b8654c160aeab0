"""Imports between subpackages are exactly those in the table of docs/design.md."""

import ast
import re

from helpers import ROOT

SOURCE = ROOT / "src" / "volmar"
DESIGN = ROOT / "docs" / "design.md"
# Files outside of the subpackages that each may import, and that import none of them.
GROUND = {path.stem for path in SOURCE.glob("_*.py")} - {"__init__", "__main__"}
FAMILIES = {"volume", "margin", "separation", "baselines"}


def drawn_map(text):
    """Return the subpackages of the table in its order, each with those it imports."""
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \|.*\| ([^|]*) \|$", text, flags=re.MULTILINE)
    return {room: set(re.findall(r"`(\w+)`", imports)) for room, imports in rows}


def room_of(path):
    """Return the subpackage of a file: its folder, or its own name outside of the folders."""
    inside = path.relative_to(SOURCE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imported_rooms(code):
    """Return the names below volmar that code imports, at the top level or in functions."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"a relative import in line {node.lineno}"
            parts = (node.module or "").split(".")
            if parts[0] == "volmar":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            named = [alias.name.split(".") for alias in node.names]
            found |= {parts[1] for parts in named if parts[0] == "volmar" and len(parts) > 1}
    return found


def built_map():
    """Return the imports of each subpackage, without shared files and top-level names."""
    built = {}
    for path in SOURCE.rglob("*.py"):
        room = room_of(path)
        if room not in {"__init__", "__main__"}:
            built.setdefault(room, set()).update(imported_rooms(path.read_text("utf-8")))
    return {room: found - GROUND - {room, "__version__"} for room, found in built.items()}


def test_imports_are_those_of_the_map():
    built = built_map()
    assert not [name for name in GROUND if built.pop(name)]
    drawn = drawn_map(DESIGN.read_text("utf-8"))
    assert set(built) == set(drawn)
    different = {
        room: {
            "not on it": built[room] - drawn[room],
            "only on it": drawn[room] - built[room],
        }
        for room in built
        if built[room] != drawn[room]
    }
    assert not different


def test_the_map_has_an_order():
    """A subpackage imports only those above it in the table, and no family imports another."""
    drawn = drawn_map(DESIGN.read_text("utf-8"))
    order = list(drawn)
    for place, (room, imports) in enumerate(drawn.items()):
        assert imports <= set(order[:place]), room
    assert not [room for room in FAMILIES if drawn[room] & FAMILIES]


def test_the_reading_of_code_and_map():
    code = "def f():\n    from volmar.base import Result\n    import volmar.cli.app\n"
    assert imported_rooms(code) == {"base", "cli"}
    assert imported_rooms("from volmar import rows, MSPC") == {"rows", "MSPC"}
    table = "| room | x | y |\n|---|---|---|\n| `rows/` | a \\| b | - |\n| `b.py` | c | `rows` |\n"
    assert drawn_map(table) == {"rows": set(), "b": {"rows"}}


def test_only_rows_looks_at_the_type_of_blocks():
    """Elsewhere `in_one_pass` and the functions of `rows/` handle rows in memory and in blocks."""
    flags = r"\b(passes_are_dear|is_asking)\b|\btogether\("
    words = flags + r"|isinstance\([^)]*\b(BlockTable|RowVector)\b"
    found = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if room_of(path) != "rows" and re.search(words, path.read_text("utf-8"))
    ]
    assert not found
    assert re.search(words, "isinstance(X, (BlockTable, RowVector))")
