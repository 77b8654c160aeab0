"""Table files made to harm, on the command line: one line on the error stream, exit code 2."""

import numpy as np
import pytest
from helpers.cli import invoke
from helpers.table_files import CSR

# An index out of range, which compiled code would follow.
WRONG = {**CSR, "indices": np.array([0, 99], "i4")}


@pytest.fixture
def files(tmp_path):
    np.savez(tmp_path / "sparse.npz", **WRONG)
    np.savez(tmp_path / "empty.npz")
    (tmp_path / "wide.svm").write_text("2 100000000:1\n1 3:1\n")
    (tmp_path / "\x1b[31mred.csv").write_text("a,b\n1,2\n3,4,5\n")
    (tmp_path / "column.csv").write_text("\x1b[2Jx,b\n1,2\n1,2\n")
    (tmp_path / "line.csv").write_bytes(b"1," * 4_000_000)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("sparse.npz", "do not fit together"),
        ("empty.npz", "got none"),
        ("wide.svm", "100,000,000 columns"),
        ("\x1b[31mred.csv", r"\x1b[31mred.csv"),
        ("column.csv", "'\\x1b[2Jx'"),
        ("line.csv", "first line"),
        ("~nobody_xyz/a.csv", "is not a valid path"),
    ],
)
@pytest.mark.parametrize("command", ["cluster", "compare", "score"])
def test_a_hostile_table_is_refused_in_a_line(files, name, says, command):
    source = name if name.startswith("~") else files / name
    options = ["--labels", files / "column.csv"] if command == "score" else []
    scale = ["--scale", "none"] if name == "sparse.npz" else []
    result = invoke(command, source, *options, *scale)
    assert result.exit_code == 2, result.output
    assert not result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"volmar {command}: ")
    assert says in line
    assert line.isprintable()


def test_numbers_of_many_digits_are_clustered(tmp_path):
    for digits in ("9" * 40, "9" * 400):
        rows = [f"{i % 7}.25,{digits if i % 3 else i}.5,{digits}{i}" for i in range(40)]
        (tmp_path / "a.csv").write_text("\n".join(["a,b,c", *rows]))
        result = invoke("cluster", tmp_path / "a.csv", "-k", 2)
        assert result.exit_code == 0, result.output
