"""Table files of every kind, most of them damaged, and tables of Python with every dtype."""

import gzip
import io
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from fuzz.contract import DOCUMENTED, Case, require
from fuzz.table_columns import draw_table
from fuzz.table_files import draw_bomb, draw_file, draw_frame, mutate
from volmar import TableClusterer
from volmar.tables import Preparation, TableError, read_table
from volmar.tables.blocks import prepare_blocks, sample_rows
from volmar.tables.folder import read_folder

DOCUMENTED_TABLES = (*DOCUMENTED, TableError)


def draw_case(draw):
    """Return a case that reads a file or a folder, or fits to a table of Python."""
    what = draw.pick(*["file"] * 12, "folder", *["objects"] * 4, "bomb")
    if what == "objects":
        return _objects(draw)
    if what == "folder":
        return _folder(draw)
    suffix, content = draw_bomb(draw) if what == "bomb" else draw_file(draw)
    done = "as it is"
    if what == "file" and draw.chance(0.9):
        content, done = mutate(draw, suffix, content)
    name = draw.pick("table", "ta ble", "\x1b[31mred", "ä") + suffix
    use = draw.pick("read", "fit", "fit", "predict") if len(content) < 10**6 else "read"
    number = draw.pick(2, 2, "auto")
    missing = draw.pick("impute", "impute", "drop", "indicator", "error")
    scale = draw.pick("auto", "auto", "standard", "minmax", "none")

    def call():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(content)
            if use == "predict":
                return _fitted().predict(path)
            if use == "fit":
                model = TableClusterer(number, missing=missing, scale=scale).fit(path)
                return model.labels_, model.predict(path), model.notes_
            table = read_table(path)
            return table.name, table.data.shape, table.feature_names, table.notes

    text = f"{use} {name!r} ({len(content):,} bytes; {done}), {number}, {missing}, {scale}"
    return Case(text, call, check=_check, documented=DOCUMENTED_TABLES)


def _folder(draw):
    kind = draw.pick(".csv", ".parquet", ".csv.gz", ".tsv")
    files = []
    frame = draw_frame(draw)
    for _ in range(draw.whole(1, 3)):
        rows = frame.sample(frac=1.0, random_state=draw.whole(0, 99))
        content = _bytes_of(rows, kind)
        done = "as it is"
        if draw.chance(0.5):
            content, done = mutate(draw, kind, content)
        files.append((content, done))

    def call():
        with tempfile.TemporaryDirectory() as folder:
            for i, (content, _) in enumerate(files):
                (Path(folder) / f"{i}{kind}").write_bytes(content)
            rows = read_folder(folder)
            made = prepare_blocks(rows, Preparation(), sample=sample_rows(rows, 20))
            return made.X.compute(), made.notes

    def check(value):
        require(np.isfinite(value[0]).all(), "a prepared row is not finite")

    text = f"folder of {kind}: {'; '.join(done for _, done in files)}"
    return Case(text, call, check=check, documented=DOCUMENTED_TABLES)


def _bytes_of(frame, kind):
    if kind == ".parquet":
        file = io.BytesIO()
        frame.to_parquet(file)
        return file.getvalue()
    content = frame.to_csv(index=False, sep="\t" if kind == ".tsv" else ",").encode()
    return gzip.compress(content, mtime=0) if kind.endswith("gz") else content


def _objects(draw):
    table, text = draw_table(draw)
    use = draw.pick("fit", "fit", "predict", "describe")
    number = draw.pick(2, 2, "auto")
    missing = draw.pick("impute", "impute", "drop", "indicator", "error")

    def call():
        if use == "predict":
            return _fitted().predict(table)
        model = TableClusterer(number, missing=missing).fit(table)
        if use == "describe":
            return model.labels_, str(model.describe())
        return model.labels_, model.predict(table), model.notes_

    text = f"{use} {text}, {number}, {missing}"
    return Case(text, call, check=_check, documented=DOCUMENTED_TABLES)


@lru_cache(1)
def _fitted():
    """Return a model of the columns a and b."""
    rng = np.random.default_rng(0)
    n = 60
    frame = {
        "a": rng.normal(size=n) + 6 * (np.arange(n) % 2),
        "b": rng.normal(size=n),
    }
    return TableClusterer(2).fit(pd.DataFrame(frame))


def _check(value):
    """Require labels to be integers, with -1 for omitted rows."""
    for labels in value if isinstance(value, tuple) else (value,):
        if isinstance(labels, np.ndarray):
            require(labels.dtype.kind == "i", f"labels have dtype {labels.dtype}")
            require(labels.size == 0 or labels.min() >= -1, "labels are below -1")
