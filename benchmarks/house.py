"""``python -m benchmarks.house [CHECKOUT]``: the size of the code, compared with its budget.

The budget is in ``benchmarks/house.toml``. A quantity above it is an error, here and in ``make
lint``. A change that adds something removes something else, and lowers the budget if the code
became smaller. Give the folder of another checkout to measure that one, for example an earlier
version.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from benchmarks.table import Table

HERE = Path(__file__).resolve().parents[1]
BUDGET = Path(__file__).with_name("house.toml")
SECONDS = Path(".pytest_cache/v/volmar/seconds")

# Fits twice, and in the second fit counts the files of src/ in which a function runs, and the
# largest number of their frames on the stack.
PROBE = """
import json, sys, warnings
import numpy as np, pandas as pd
import volmar
source = sys.argv[1]
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = np.vstack([rng.normal(-3, 1, (200, 4)), rng.normal(3, 1, (200, 4))])
frame = pd.DataFrame(X, columns=list("abcd")).assign(e=np.where(X[:, 0] > 0, "low", "high"))
jobs = {
    "MSPC(2)": lambda: volmar.MSPC(2, random_state=0).fit(X),
    "AutoClusterer()": lambda: volmar.AutoClusterer(random_state=0).fit(X),
    "CPMMC(2)": lambda: volmar.CPMMC(2, random_state=0).fit(X),
    "SoftLabelMVC(2)": lambda: volmar.SoftLabelMVC(2, random_state=0).fit(X),
    "TableClusterer()": lambda: volmar.TableClusterer(random_state=0).fit(frame),
}
found = {}
for name, job in jobs.items():
    job()
    files, depth, deepest = set(), 0, 0
    def note(at, event, _):
        global depth, deepest
        if at.f_code.co_filename.startswith(source):
            if event == "call":
                files.add(at.f_code.co_filename)
                depth += 1
                deepest = max(depth, deepest)
            elif event == "return":
                depth -= 1
    sys.setprofile(note)
    job()
    sys.setprofile(None)
    found[f"files of {name}"], found[f"depth of {name}"] = len(files), deepest
ours = [
    sum(one.__module__.startswith("volmar.") for one in getattr(volmar, name).__mro__)
    for name in volmar.__all__ if isinstance(getattr(volmar, name), type)
]
found["classes of an estimator"] = max(ours)
print(json.dumps(found))
"""


def python_files(root, *folders):
    """Return the Python files of some folders of a checkout."""
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def n_lines(path):
    """Return the number of lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def _is_number(node):
    """Return whether an expression consists of numbers, and perhaps names of other constants."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        named = [isinstance(side, ast.Name) or _is_number(side) for side in sides]
        return all(named) and any(map(_is_number, sides))
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and all(map(_is_number, node.elts))
    return False


def numeric_constants(code):
    """Return the names that a module gives to numbers or tuples of numbers at its top level."""
    names = []
    for node in ast.parse(code).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        target, value = targets[0], getattr(node, "value", None)
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts, strict=True)
        else:
            pairs = [(target, value)]
        names += [t.id for t, v in pairs if isinstance(t, ast.Name) and v and _is_number(v)]
    return names


def public_names(text):
    """Return the names of the API reference, each with the module that it is imported from."""
    names, module = set(), ""
    for line in text.splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.fullmatch(r"   (\w+)", line):
            names.add(f"{module}.{found[1]}")
    return names


def measured(root):
    """Return the quantities of a checkout by name."""
    source = python_files(root, "src")
    texts = [path.read_text(encoding="utf-8") for path in source]
    found = {
        "lines of src": sum(map(n_lines, source)),
        "files of src": len(source),
        "public names": len(public_names((root / "docs/api.rst").read_text(encoding="utf-8"))),
        "numeric constants": sum(len(numeric_constants(text)) for text in texts),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(root / "src")],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    found.update(json.loads(done.stdout))
    if (root / SECONDS).exists():
        # Written by tests/conftest.py after a run of all tests.
        found["seconds of make test"] = round(json.loads((root / SECONDS).read_text()))
    return found


def main():
    """Print the table; exit with 1 if a quantity is above its budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", nargs="?", type=Path, default=HERE)
    parser.add_argument("--check", action="store_true", help="print only what is above the budget")
    options = parser.parse_args()
    budget = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    found = measured(options.checkout.resolve())
    table = Table(("quantity", "value", "budget"))
    above = [name for name, limit in budget.items() if found.get(name, 0) > limit]
    for name in above if options.check else budget:
        table.add(name, found.get(name, "not measured"), budget[name])
    if above or not options.check:
        print(table.render())
    if above:
        sys.exit(f"above the budget of benchmarks/house.toml: {', '.join(above)}")


if __name__ == "__main__":
    main()
