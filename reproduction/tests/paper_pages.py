"""Artificial reproductions, and their pages."""

import re
import struct
import zlib
from math import nan

from helpers.pages import Reader

from reproduction import (
    Axis,
    Claim,
    Experiment,
    Line,
    Point,
    Reproduction,
    Side,
    Spread,
    Summary,
    Verdict,
)
from reproduction.page import to_markdown, write_reproduction

COMMAND = "python -m reproduction --all -j 2"
HOSTILE = "<script>alert(1)</script> | a & b &amp; \"x\" 'y' $z$ *e* [l](u) `c`"
PAPER = Summary(30.0, 0.5, 0)
NONE = Summary(None, None, 0)


def side(mean, error=0.4, difference=None, distance=None, best=False, seconds=0.2, relation=1.25):
    return Side(Summary(mean, error, 10), seconds, relation, difference, distance, best)


def reproduced(name="mvc-jmlr-2013-table-2", status="reproduced", **given):
    judged = status in ("reproduced", "not reproduced")
    label_free = given.pop("label_free", "worse than printed" if judged else "")
    detail = given.pop("detail", "Because it is so.")
    counts = [given.pop(key, 0 if key == "n_failed" else 12) for key in COUNTS]
    rest = {key: given.pop(key, ()) for key in ("lines", "points", "claims", "failures")}
    quick = given.pop("quick", False)
    paper, _, number = re.split(r"-(table|figure)-", name)
    kind = "table" if "-table-" in name else "figure"
    asked = {
        "name": name,
        "title": f"A paper, {kind.capitalize()} {number.upper()}: what it is about",
        "paper": paper,
        kind: number.upper(),
        "metric": "clustering_error",
        "datasets": {},
    }
    return Reproduction(
        experiment=Experiment(**asked | given),
        verdict=Verdict(status, label_free, detail),
        **dict(zip(COUNTS, counts, strict=True)),
        **rest,
        seconds=12.0,
        versions={"numpy": "2.1.0", "volmar": "0.1.0"},
        quick=quick,
    )


COUNTS = ("n_cells", "n_done", "n_failed")


def table():
    nothing = PAPER, Side(), Side()
    lines = (
        Line(
            "moons",
            "MVC-SL",
            PAPER,
            side(30.8, difference=0.8, distance=1.3, best=True),
            side(28.5, difference=-1.54, distance=-2.4, best=True, relation=0.4),
            "reproduced",
            label_free_verdict="as good as printed",
        ),
        Line(
            "moons",
            "NSC",
            PAPER,
            side(36.0, None, 6.0),
            side(40.0, None, 10.0),
            "worse than printed",
            label_free_verdict="worse than printed",
        ),
        Line("moons", "SVM", *nothing, "not run", "a supervised reference", "not run"),
        Line(
            "rings",
            "NSC",
            NONE,
            side(20.0),
            side(21.0, relation=nan),
            "not printed",
            label_free_verdict="not printed",
        ),
        Line("rings", "SVM", *nothing, "not run", "a supervised reference", "not run"),
        Line("rings", "GMMC", *nothing, "failed", "MemoryError: /home/me/x/data.csv", "not run"),
    )
    return reproduced(lines=lines, test="paired", note="Splits are h* of our own.")


def unprinted():
    line = Line("moons", "NSC", NONE, side(20.0), Side(), "not printed")
    claims = (
        Claim("MVC-SL is better than NSC", True, True, "21.3 against 35.0"),
        Claim("it is fast.", True, False, ""),
        Claim("It is faster still", False, True, ""),
        Claim("It never fails", False, False, "1 of 4 data sets"),
        Claim("It is short", True, None, ""),
        Claim("It is long", None, False, ""),
        Claim("Nobody knows", None, None, ""),
    )
    return reproduced(
        "mvc-aistats-2011-table-1", "not reproduced", lines=(line,), claims=claims, n_failed=2,
        failures=("2 times: ValueError: no file '/home/me/data/moons.csv' at https://example.org/a/b",),
    )  # fmt: skip


def times():
    lines = (
        Line("moons", "KM", Summary(2.0, None, 0), side(20.0, seconds=0.5), side(20.0), "faster"),
        Line("moons", "CPMMC", Summary(9.0, None, 0), side(20.0, seconds=36.0), Side(), "slower"),
        Line("moons", "SKMMC", Summary(0.0, None, 0), side(20.0), side(20.0), "not printed"),
        Line("rings", "SKMMC", NONE, Side(), Side(), "not run", "the paper has no figure either"),
    )
    return reproduced(
        "skmmc-nnw-table-iii", label_free="as good as printed", view="times", lines=lines
    )


def points(n_sets=1, columns=("hindsight", "label-free"), quantities=("value", "seconds")):
    return tuple(
        Point(f"set {i}", series, column, x, q, Spread(x / 10 + i, 0.5, 1.0, 0.5, 10))
        for i in range(n_sets)
        for series in ("MVC-SL", "NSC")
        for column in columns
        for x in (500.0, 50.0, 100.0)
        for q in quantities
    )


def curves(n_sets=1, **given):
    axis = Axis("size", (50, 100, 500), "number of rows")
    given = {"points": points(n_sets), "axis": axis, "view": "curves", **given}
    return reproduced("mvc-jmlr-2013-figure-7", "incomplete", n_done=3, **given)


def data():
    return reproduced("mvc-jmlr-2013-figure-3", "shown", view="data", n_cells=0, n_done=0)


def hostile():
    line = Line(HOSTILE, HOSTILE, PAPER, side(30.0), Side(), HOSTILE, HOSTILE, HOSTILE)
    return reproduced(
        "odd-paper-table-1", "not reproduced", title=HOSTILE, note=HOSTILE, lines=(line,),
        detail=HOSTILE, failures=(HOSTILE,),
        claims=(Claim(HOSTILE, True, True, HOSTILE),),
    )  # fmt: skip


def everything():
    return [hostile(), curves(), data(), times(), unprinted(), table()]


def markdown(*given, pictures=None):
    return to_markdown(given, command=COMMAND, pictures=pictures or {})


def cells(text, *start):
    """Return the cells of the first row of a Markdown table with this beginning."""
    rows = [re.split(r"(?<!\\) *\| *", line)[1:-1] for line in text.split("\n") if line[:1] == "|"]
    return next(row for row in rows if [c.strip() for c in row[: len(start)]] == list(start))


def png(path, width=40, height=20):
    def chunk(kind, content):
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + b"\x80" * width for _ in range(height)))
    parts = chunk(b"IHDR", header), chunk(b"IDAT", rows), chunk(b"IEND", b"")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    return path


def written(given, tmp_path, **options):
    options = {"command": COMMAND, "pictures": {}, **options}
    page, path = write_reproduction(given, tmp_path / "out", **options)
    reader = Reader()
    reader.path, reader.markdown = path, page.read_text(encoding="utf-8")
    reader.html = path.read_text(encoding="utf-8")
    reader.feed(reader.html)
    reader.words = " ".join(" ".join(reader.text).split())
    return reader
