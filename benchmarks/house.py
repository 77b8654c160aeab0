"""``python -m benchmarks.house [CHECKOUT]``: sizes and rule violations of the code, as a table.

Give the folder of another checkout to measure that one, for example an earlier version.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.table import Table

HERE = Path(__file__).resolve().parents[1]
FLAGS = re.compile(r"\b(passes_are_dear|is_asking)\b|\btogether\(")
BLOCK_TYPES = re.compile(r"isinstance\([^)]*\b(BlockTable|RowVector)\b")

# Runs the command, and counts the imported modules and the files in which a function ran.
PROBE = """
import sys, threading
source, used = sys.argv[1], set()
def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and code.co_filename.startswith(source):
        used.add(code.co_filename)
threading.setprofile(note)
sys.setprofile(note)
from volmar.cli import main
sys.argv = ["volmar", *sys.argv[2:]]
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
imported = [m for name, m in sys.modules.items() if name.split(".")[0] == "volmar"]
print(len(imported), len(used))
"""


def python_files(root, *folders):
    """Return the Python files of some folders of a checkout."""
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def n_lines(path):
    """Return the number of lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def docstring_lines(path):
    """Return the number of lines of a file that belong to docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = (node.body for node in ast.walk(tree) if hasattr(node, "body"))
    return sum(
        body[0].end_lineno - body[0].lineno + 1
        for body in bodies
        if isinstance(body, list)
        and body
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    )


def class_names(paths):
    """Return how often each class name occurs, private or not."""
    return Counter(
        node.name.lstrip("_")
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )


def n_uses(pattern, paths):
    """Return the number of lines of the files that match a pattern."""
    return sum(
        bool(pattern.search(line))
        for path in paths
        for line in path.read_text(encoding="utf-8").splitlines()
    )


def touched(root, *options):
    """Return the modules that ``volmar cluster`` imports, and the files in which functions run."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "x.csv"
        rows = [f"{i % 3 * 9 + i % 7 / 9},{i % 3 * 7 + i % 11 / 9}" for i in range(300)]
        table.write_text("\n".join(["a,b", *rows]))
        labels, page = str(Path(folder) / "l.csv"), str(Path(folder) / "r.html")
        written = [page if word == "PAGE" else word for word in options]
        arguments = ["cluster", str(table), "-o", labels, *written]
        done = subprocess.run(
            [sys.executable, "-c", PROBE, str(root / "src"), *arguments],
            env={**os.environ, "PYTHONPATH": str(root / "src")},
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    n_imported, n_used = done.stdout.split()[-2:]
    return int(n_imported), int(n_used)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", nargs="?", type=Path, default=HERE)
    root = parser.parse_args().checkout.resolve()
    source = python_files(root, "src")
    outside = [path for path in source if "rows" not in path.relative_to(root).parts[:3]]
    imported, used = touched(root)
    imported_report, used_report = touched(root, "--report", "PAGE")
    names = class_names(source)
    watched = ("Prepared", "Cut", "View", "Point", "Moments", "Wanted")
    table = Table(("quantity", "value"))
    table.add("Python files of src/", len(source))
    table.add("lines of src/", sum(map(n_lines, source)))
    table.add("of these, docstrings", sum(map(docstring_lines, source)))
    table.add("modules that `volmar cluster x.csv` imports", imported)
    table.add("files in which it runs a function", used)
    table.add("modules, with --report", imported_report)
    table.add("files, with --report", used_report)
    table.add("passes_are_dear, together, is_asking outside rows/", n_uses(FLAGS, outside))
    table.add("isinstance of block types outside rows/", n_uses(BLOCK_TYPES, outside))
    table.add(f"classes called {', '.join(watched)}", ", ".join(str(names[n]) for n in watched))
    print(table.render())


if __name__ == "__main__":
    main()
