"""Hostile command lines: options, values, file names, and outputs that are inputs."""

import contextlib
import csv
import functools
import json
import os
import re
import tempfile
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np

from fuzz.contract import Case, require

#: Names of files that are hard to handle. None is absolute: nothing is written elsewhere.
HOSTILE = (
    *("", " ", ".", "..", "-", "--", "-x.csv", "--force", "#", "x.csv#", "x.csv#one", "~"),
    *("a\0b.csv", "a\nb.csv", "a\rb.csv", "a\tb.csv", "a\x1b[31mb.csv", "\x9bx.csv"),
    *("x" * 300 + ".csv", "d/" * 3000 + "x.csv", "𝒳" * 63, "ä ö.csv", "x .csv ", "\udcff.csv"),
    *("\ud800.csv", "\u202ex.csv", "~nobody_of_this_name/x.csv", "~\0", "nowhere/x.csv"),
    *("x.csv/y.csv", "=x.csv", "loop", "dangling", "pipe", "[bold]x[/red].csv", ":smile:.csv"),
    *("x.exe", "x.CSV", "x.csv.gz", "http://nowhere.invalid/x.csv", "file:///x.csv", "x.csv\\"),
    *("'x'.csv", "%s.csv", "{0}.csv"),
)
INPUTS = (
    *("x.csv", "x.csv", "x.csv", "text.csv", "parts", "parts", "./x.csv", "parts/", "link.csv"),
    *("x.npy", "empty.csv", "empty", "labels.csv", "rubbish.csv", "m.volmar", "old.csv"),
)
OUTPUTS = (
    *(
        "new.csv",
        "new.tsv",
        "new",
        "sub/new.csv",
        "new.html",
        "old.csv",
        "old.html",
        "link.csv",
        "hard.csv",
    ),
    *("parts/new.csv", "parts/1.csv", "x.csv", "m.volmar", "oldlink.csv", "new.parquet"),
    *("sub/../new.csv", "linked/new.csv", "labels.csv", "new.csv.gz"),
)
#: Values for numbers, names and choices.
NUMBERS = (
    *("2", "2", "2", "2", "3", "auto", "1", "0", "-1", "1e3", "99", "nan", "", "two", "2.0"),
    *("١", "9" * 50, "2 ", "0x2"),
)
VALUES = {
    "-k": NUMBERS,
    "--n-clusters": NUMBERS,
    "--seed": ("0", "7", "4294967295", "4294967296", "-1", "1.5", "", "a", "9" * 40),
    "--method": ("MSPC", "MSPC", "KernelKMeans", "SMIC", "mspc", "", "KMeans", "MSPC,SMIC"),
    "--columns": ("a", "a,b", "b", "", ",", "nowhere", "=t", "a,a", "\x1b[31m", "a\0"),
    "--drop": ("t", "t", "a", "nowhere", "a,b,t", "", "=t"),
    "--id": ("t", "t", "a", "nowhere", "", "=t"),
    "--kind": ("a=numeric", "t=categorical", "t=id", "a=", "=a", "a", "a=bogus", "z=text"),
    "--scale": ("none", "standard", "minmax", "auto", "", "NONE", "wide"),
    "--missing": ("error", "drop", "impute", "indicator", "", "refuse"),
    "--alpha": ("0.05", "0.5", "0", "1", "-1", "nan", "inf", "1e-300", "a", ""),
    "--max-clusters": ("1", "2", "5", "0", "-1", "a", "9" * 30),
    "--set": (
        *("reg=1", "reg=-1", "reg=nan", "reg=1e308", "reg", "=", "reg=[1,2]", "bogus=1"),
        *("n_clusters=3", 'reg={"a":1}', "reg=" + "[" * 5000, "scan=exact", "reg=\x1b[31m"),
    ),
}
FLAGS = {
    "cluster": ("--force", "--raw-ids", "--append", "--split-anyway"),
    "predict": ("--force", "--raw-ids"),
    "score": ("--no-test", "--json"),
    "compare": ("--force", "--raw-ids", "--json"),
}
#: Options of each command that take a value, and those that name an output file.
COMMANDS = {
    "cluster": (
        (
            *("-k", "--method", "--columns", "--drop", "--id", "--kind", "--scale", "--missing"),
            *("--alpha", "--max-clusters", "--set", "--seed"),
        ),
        ("-o", "--out", "--report", "--save", "--json", "--pictures"),
    ),
    "predict": (("--id",), ("-o", "--out")),
    "score": (("--columns", "--drop", "--id", "--kind", "--scale", "--missing", "--seed"), ()),
    "compare": (("-k", "--method", "--drop", "--id", "--scale", "--seed"), ("-o",)),
}
_HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def draw_case(draw):
    """Return the case of one command line."""
    words = _draw_words(draw)
    if draw.chance(0.03):
        words = draw.pick(["info"], [], ["bogus"], ["--bogus"], ["cluster"], words[1:])
    return Case(f"volmar {words!r:.600}", lambda: _run(words), same_bits=False)


def _draw_words(draw):
    often = ("cluster", "predict", "score", "compare")
    command = draw.pick("cluster", "cluster", *often, *often, "demo")
    if command == "demo":  # a valid case takes too long
        bad = ["--n-samples", draw.pick("0", "19", "-1", "a", "", "5001", "1e3")]
        out = ["--out", draw.pick("full", "x.csv")]
        return [command, *draw.pick(bad, out, [*bad, "--out", "new"])]
    options, files = COMMANDS[command]
    name = functools.partial(_draw_name, draw, draw.chance(0.5))
    words = [command]
    if command == "predict":
        words.append(name(("m.volmar", "m.volmar", "m.volmar", "x.csv", "mlink.csv")))
    words.append(name(INPUTS))
    if command == "score":
        words += ["--labels", name(("labels.csv", "labels.csv", "x.csv", "old.csv"))]
        if draw.chance(0.3):
            words += ["--truth", name(("labels.csv", "x.csv"))]
    if command == "compare":
        words += ["-m", "MSPC"] if draw.chance(0.9) else []
    if "-k" in options and draw.chance(0.9):
        words += ["-k", "2"]
    for option in draw.some(options, 0.1):
        words += _with_value(draw, option, draw.pick(*VALUES[option]))
    # Reports take a second or two, pictures some more.
    for option in files:
        if draw.chance({"--report": 0.06, "--pictures": 0.02}.get(option, 0.3)):
            words += _with_value(draw, option, name(OUTPUTS))
    words += draw.some(FLAGS[command], 0.2) + draw.some(("--bogus", "--help", "--append"), 0.01)
    words += ["--force"] if files and draw.chance(0.3) else []
    if draw.chance(0.05):
        words.insert(draw.whole(0, len(words)), draw.pick(*HOSTILE, *VALUES))
    return words


def _with_value(draw, option, value):
    if option.startswith("--") and draw.chance(0.3):
        return [f"{option}={value}"]
    return [option, value]


def _draw_name(draw, is_tame, names):
    """Return one of the names, mostly one of the first if the case should get far."""
    if is_tame:
        return draw.pick(*names[: 4 if names is OUTPUTS else 3])
    return draw.pick(*HOSTILE) if draw.chance(0.15) else draw.pick(*names)


# ---------------------------------------------------------------------- the folder of a case


@functools.cache
def _table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) + 6 * (np.arange(40) % 2)[:, None]
    lines = [f"{a:.4f},{b:.4f},=t{i}" for i, (a, b) in enumerate(X)]
    return "\n".join(["a,b,t", *lines, ""])


@functools.cache
def _model():
    """Return the bytes of a model of the table."""
    from volmar import TableClusterer

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        path.write_text(_table())
        TableClusterer(2, id_column="t", random_state=0).fit(path).save(f"{folder}/m")
        return (Path(folder) / "m").read_bytes()


def _fill(folder):
    """Create the files of a case, and return those that it may read."""
    (folder / "x.csv").write_text(_table())
    (folder / "text.csv").write_text("\x1b[31m,=b,t\n" + "1,x,y\n2,=z,\x1b[0m\n,,\n" * 9)
    np.save(folder / "x.npy", np.random.default_rng(1).normal(size=(30, 2)))
    for name in ("parts", "empty", "sub", "full"):
        (folder / name).mkdir()
    for name in ("1.csv", "2.csv"):
        (folder / "parts" / name).write_text(_table())
    labels = [f"'=t{i},{i % 2}" for i in range(40)]
    (folder / "labels.csv").write_text("\n".join(["t,label", *labels, ""]))
    (folder / "empty.csv").write_text("")
    (folder / "rubbish.csv").write_bytes(bytes(range(256)) * 9)
    (folder / "m.volmar").write_bytes(_model())
    for name in ("old.csv", "old.html", "full/labels.csv"):
        (folder / name).write_text("old\n")
    (folder / "link.csv").symlink_to("x.csv")
    (folder / "mlink.csv").symlink_to("m.volmar")
    (folder / "oldlink.csv").symlink_to("old.csv")
    (folder / "linked").symlink_to("parts")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere/at/all")
    os.link(folder / "parts" / "1.csv", folder / "hard.csv")
    os.mkfifo(folder / "pipe")


def _contents(folder):
    """Return every file and link of a folder, with the content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {os.readlink(path)}"
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = f"mode {path.lstat().st_mode:o}"
    return found


# ---------------------------------------------------------------------- the contract


def _run(words):
    from typer.testing import CliRunner

    from volmar.cli.app import app

    with tempfile.TemporaryDirectory(prefix="volmar-fuzz-") as name, _inside(Path(name) / "in"):
        folder = Path(name) / "in"
        _fill(folder)
        before = _contents(Path(name))
        # A pipe used as output needs a reader.
        reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            result = CliRunner().invoke(app, words)
        finally:
            os.close(reader)
        _check_streams(result)
        _check_files(words, result.exit_code, before, _contents(Path(name)))
        return result.exit_code


@contextlib.contextmanager
def _inside(folder):
    """Work in a folder that is also the home folder, so that nothing is written elsewhere."""
    was = os.getcwd()
    folder.mkdir()
    os.chdir(folder)
    try:
        with mock.patch.dict(os.environ, {"HOME": str(folder)}):
            yield
    finally:
        os.chdir(was)


def _check_streams(result):
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        raise error
    errors = result.stderr
    require(result.exit_code in (0, 2), f"exit code {result.exit_code}: {errors:.300}")
    require("Traceback" not in result.output, f"a traceback: {errors:.600}")
    hidden = _HIDDEN.search(result.output)
    require(hidden is None, f"a control character on the screen: {result.output!r:.600}")
    lines = [line for line in errors.splitlines() if line.startswith("volmar")]
    if result.exit_code == 2:
        require(len(lines) == 1, f"{len(lines)} lines of errors: {errors!r:.600}")
        require(len(lines[0].split()) >= 4, f"the error has no useful message: {lines[0]}")
        require(len(lines[0]) < 3000, f"the error is endless: {lines[0]:.300}")
        last = errors.rstrip("\n").splitlines()[-1]
        require(last == lines[0], f"lines after the error: {errors!r:.600}")
    else:
        require(not lines, f"an error and exit code 0: {errors!r:.600}")


def _check_files(words, code, before, after):
    gone = before.keys() - after.keys()
    require(not gone, f"files are gone: {sorted(gone)}")
    new = after.keys() - before.keys()
    parts = [name for name in new if name.endswith(".part")]
    require(not parts, f"parts are left: {parts}")
    changed = {name for name in before if before[name] != after[name]}
    read = _read(words)
    for name in changed:
        is_input = name in read or any(name.startswith(f"{one}/") for one in read)
        require(not is_input, f"an input was changed: {name}")
        require("--force" in words, f"{name} was replaced without --force")
    require(code == 0 or not new or _may_be_partial(words), f"files of an error: {new}")
    for name in new | changed:
        if isinstance(after[name], bytes):
            _check_whole(name, after[name], "--raw-ids" in words)


def _read(words):
    """Return the names of most files that a command line reads."""
    given = [*words[1:3], *(b for a, b in pairwise(words) if a in ("--labels", "--truth"))]
    names = {os.path.normpath(f"in/{word}") for word in given}
    for same in (
        {"in/link.csv", "in/x.csv"},
        {"in/mlink.csv", "in/m.volmar"},
        {"in/parts", "in/linked", "in/hard.csv"},
    ):
        names |= same if names & same else set()
    return names


def _may_be_partial(words):
    """If an output failed, earlier ones may exist."""
    return sum(word.partition("=")[0] in COMMANDS["cluster"][1] for word in words) > 1


def _check_whole(name, content, raw):
    """Check that a written file has a format of volmar and is complete."""
    if content.startswith(b"PK"):
        from volmar.models import load_model

        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "m").write_bytes(content)
            load_model(Path(folder) / "m")
    elif content.startswith(b"{"):
        json.loads(content)
    elif content.startswith(b"\x1f\x8b"):
        import gzip

        _check_whole(name, gzip.decompress(content), raw)
    elif content.startswith(b"PAR1"):
        require(content.endswith(b"PAR1"), f"{name} is no whole Parquet file")
    elif content.startswith(b"<!"):
        require(content.rstrip().endswith(b"</html>"), f"{name} is no whole page")
    elif content.startswith((b"\x89PNG", b"<?xml")):
        require(len(content) > 500, f"{name} is no picture")
    else:
        text = content.decode("utf-8", "surrogateescape")
        separator = "\t" if name.endswith((".tsv", ".tsv.gz")) else ","
        rows = list(csv.reader(text.splitlines(keepends=True), delimiter=separator))
        require(len(rows) > 1, f"{name} has no rows")
        require(len(set(map(len, rows))) == 1, f"{name} has rows of different lengths")
        cells = {cell[:1] for row in rows for cell in row if not _is_number(cell)}
        require(raw or not cells & set("=+-@"), f"{name} has formulas")


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return text == "-"
    return True
