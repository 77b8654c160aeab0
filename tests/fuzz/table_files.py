"""Bytes of table files of every supported format, and damage to them."""

import gzip
import io
import json
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from pyarrow import feather

SEPARATORS = {
    ".csv": ",;|\t",
    ".tsv": "\t",
    ".tab": "\t",
    ".txt": " ,;",
    ".dat": " ",
    ".data": ",",
}
#: Unexpected fields of a text file.
FIELDS = (
    *("9" * 40, "-" + "9" * 400, "9" * 5000, "1e999", "-inf", "nan", "NULL", "1_000", "0x10"),
    *(
        '"',
        '""',
        '"a',
        "'",
        "\0",
        "\x1b[31m",
        "\ufeff",
        "",
        " ",
        "=1+1",
        "1,5",
        "١٢",
        "½",
        "a" * 9999,
    ),
    *("2024-02-31", "9999-12-31", "0001-01-01", "31.12.24", "99:99", "1e308", "-1e308", "5e-324"),
    *("1" + "0" * 308, "{", "[[[[", "true", "\\ud800", "\r", "\u2028", "id", "#", "x:y", "-5:1"),
)
#: Numbers that replace a length or an index.
LIES = (0, 1, -1, 2**7, 2**15, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63), 2**63 - 1)


def draw_frame(draw):
    """Return a table of two groups, with columns of several kinds."""
    n = draw.whole(2, 40)
    rng = draw.rng
    group = np.arange(n) % 2
    columns = {"a": rng.normal(size=n) + 6 * group, "b": rng.normal(size=n).round(2) - 4 * group}
    more = {
        "count": rng.integers(0, 9, size=n),
        "word": np.array(["low", "mid dle", "hïgh", "x"])[rng.integers(4, size=n)],
        "when": pd.date_range("2020-02-28", periods=n).strftime("%Y-%m-%d"),
        "yes": rng.random(n) < 0.5,
        "gap": np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
        "id": np.arange(n) + 1000,
        "far": 10.0 ** rng.uniform(-draw.pick(9, 300), draw.pick(9, 300), n),
    }
    columns.update({name: more[name] for name in draw.some(list(more), 0.3)})
    return pd.DataFrame(columns)


def draw_file(draw):
    """Return the suffix and the bytes of a file with a table in it."""
    frame = draw_frame(draw)
    kind = draw.pick("text", "text", "json", "npy", "npz", "sparse", "sparse", "libsvm")
    kind = draw.pick(kind, kind, "parquet", "feather", "excel")
    suffix, content = globals()[f"_{kind}"](draw, frame)
    if kind in ("text", "json", "libsvm") and draw.chance(0.2):
        return f"{suffix}.gz", gzip.compress(content, mtime=0)
    return suffix, content


def _text(draw, frame):
    suffix = draw.pick(*SEPARATORS)
    text = frame.to_csv(
        sep=draw.pick(*SEPARATORS[suffix]),
        index=draw.chance(0.2),
        header=draw.chance(0.85),
        decimal=draw.pick(".", ".", ","),
        lineterminator=draw.pick("\n", "\n", "\r\n", "\r"),
        quoting=draw.pick(0, 0, 1, 2),
    )
    lines = text.split("\n")
    for _ in range(draw.pick(0, 0, 1, 1, 3)):
        i = draw.whole(0, len(lines) - 1)
        fields = lines[i].split(",")
        fields[draw.whole(0, len(fields) - 1)] = draw.pick(*FIELDS)
        lines[i] = ",".join(fields)
    encoding = draw.pick("utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1")
    return suffix, "\n".join(lines).encode(encoding, errors="replace")


def _json(draw, frame):
    suffix = draw.pick(".json", ".jsonl", ".ndjson")
    records = json.loads(frame.to_json(orient="records"))
    for _ in range(draw.pick(0, 0, 1, 3)):
        odd = draw.pick(
            10**400, 10**40, [1], {"a": {}}, "\ud800", "\x1b[2J", True, None, 1e308, ""
        )
        records[draw.whole(0, len(records) - 1)][draw.pick("a", "b", "new", "", "\ud800")] = odd
    if suffix == ".json":
        content = draw.pick(
            json.dumps(records),
            frame.to_json(),
            json.dumps(frame.astype(str).to_dict("list")),
            frame.to_json(orient="split"),
            "[" * draw.pick(10, 100_000) + "]",
        )
    else:
        content = "\n".join(map(json.dumps, records))
    return suffix, content.encode()


def _numbers(draw, frame):
    dtype = draw.pick(
        "f8", "f8", "f4", "f2", ">f8", "i4", "i1", "u8", "?", "g", "c8", "U3", "M8[s]"
    )
    X = frame[["a", "b"]].to_numpy()
    with np.errstate(all="ignore"):
        X = X.astype(dtype) if dtype != "M8[s]" else X.astype("i8").astype(dtype)
    return np.asfortranarray(X) if draw.chance(0.3) else X


def _npy(draw, frame):
    file = io.BytesIO()
    np.save(file, _numbers(draw, frame))
    return ".npy", file.getvalue()


def _npz(draw, frame):
    file = io.BytesIO()
    save = draw.pick(np.savez, np.savez_compressed)
    arrays = {draw.pick("X", "data", "shape", "\x1b"): _numbers(draw, frame)}
    save(file, **{name: np.arange(3) for name in draw.some(["y", "format", "shape"])} | arrays)
    return ".npz", file.getvalue()


def _sparse(draw, frame):
    X = np.where(np.abs(frame[["a", "b"]].to_numpy()) > 1, frame[["a", "b"]].to_numpy(), 0.0)
    file = io.BytesIO()
    made = getattr(sp, f"{draw.pick('csr', 'csc', 'bsr', 'coo', 'dia')}_array")(X)
    sp.save_npz(file, made, compressed=draw.chance(0.5))
    if draw.chance(0.6):
        file.seek(0)
        with np.load(file) as members:
            arrays = dict(members)
        for name in draw.some(list(arrays), 0.25):
            arrays[name] = _lied(draw, arrays[name])
        file = io.BytesIO()
        np.savez(file, **{name: one for name, one in arrays.items() if draw.chance(0.98)})
    return ".npz", file.getvalue()


def _lied(draw, array):
    """Return an array with other values, another dtype, length or shape."""
    array = np.array(array)
    if array.dtype.kind in "iuf" and array.size and draw.chance(0.6):
        if array.dtype.kind in "iu":
            array = array.astype(np.int64)
        array.flat[draw.whole(0, array.size - 1)] = draw.pick(*LIES)
        return array
    with np.errstate(all="ignore"):
        return draw.pick(
            lambda: array.reshape(-1, 1),
            lambda: array.ravel()[: array.size // 2],
            lambda: np.concatenate([array.ravel()] * 2),
            lambda: array.astype("U8"),
            lambda: array.astype("f4") if array.dtype.kind in "iuf" else array,
            lambda: np.zeros((), array.dtype),
        )()


def _libsvm(draw, frame):
    pairs = zip(frame["a"], frame["b"], strict=True)
    lines = [f"{draw.pick(-1, 1)} 1:{a:.3g} 3:{b:.3g}" for a, b in pairs]
    for _ in range(draw.pick(0, 1, 2)):
        odd = draw.pick(*FIELDS, "1 qid:1 1:1", "1 1:1 1:2", "1 3:1 2:1", "nan 1:1", "1 1:nan")
        lines[draw.whole(0, len(lines) - 1)] = odd.replace("\n", "")
    if draw.chance(0.2):
        lines.append(f"1 {draw.pick(10**6, 10**8, 10**10, 2**31, 2**64, -1, 0)}:1")
    return draw.pick(".svm", ".libsvm", ".svmlight"), "\n".join(lines).encode()


def _parquet(draw, frame):
    file = io.BytesIO()
    pq.write_table(
        pa.Table.from_pandas(frame),
        file,
        compression=draw.pick("snappy", "none", "gzip", "zstd"),
        use_dictionary=draw.chance(0.5),
        row_group_size=draw.pick(5, 100),
        data_page_version=draw.pick("1.0", "2.0"),
    )
    return draw.pick(".parquet", ".pq"), file.getvalue()


def _feather(draw, frame):
    file = io.BytesIO()
    compression = draw.pick("uncompressed", "lz4", "zstd")
    feather.write_feather(pa.Table.from_pandas(frame), file, compression=compression)
    return draw.pick(".feather", ".arrow"), file.getvalue()


def _excel(draw, frame):
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(list(frame.columns))
    for row in frame.astype(object).where(frame.notna(), None).to_numpy().tolist():
        sheet.append(row)
    for _ in range(draw.pick(0, 0, 1)):
        odd = draw.pick("=A1", "#DIV/0!", 1e308, True, None, "a" * 3000, 10**18, "2024-13-45")
        sheet.cell(draw.whole(1, 5), draw.whole(1, 30)).value = odd
    file = io.BytesIO()
    book.save(file)
    return draw.pick(".xlsx", ".xlsx", ".xlsm"), file.getvalue()


# ---------------------------------------------------------------------- damage


def mutate(draw, suffix, content):
    """Return damaged bytes, and a description of the damage."""
    done = []
    if suffix in (".xlsx", ".xlsm", ".npz") and draw.chance(0.6):
        content, word = _inside_zip(draw, content)
        done.append(word)
    elif suffix.endswith(".gz") and draw.chance(0.6):
        inside, word = _damaged(draw, gzip.decompress(content))
        content = gzip.compress(inside, mtime=0)
        done.append(f"{word} inside")
    if not done or draw.chance(0.2):
        for _ in range(draw.pick(1, 1, 2, 5)):
            content, word = _damaged(draw, content)
            done.append(word)
    return content, ", ".join(done)


def _inside_zip(draw, content):
    """Damage a member before it is compressed, so that checksums match."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", 8) as new:
        names = old.namelist()
        if not names:
            return content, "nothing"
        chosen = draw.pick(*[n for n in names if "sheet" in n], draw.pick(*names))
        word = "nothing"
        for name in names:
            inside = old.read(name)
            if name == chosen:
                inside, word = _damaged(draw, inside)
            if name != chosen or draw.chance(0.95):
                new.writestr(name, inside)
    return file.getvalue(), f"{word} in {chosen}"


def _damaged(draw, content):
    data = bytearray(content)
    size = max(len(data), 1)
    start, length = draw.whole(0, size - 1), draw.whole(1, max(size // 8, 1))
    # Headers and footers are short, and damage there has the largest effect.
    start = draw.pick(
        start, start, min(draw.whole(0, 200), size - 1), max(size - draw.whole(1, 600), 0)
    )
    word = draw.pick(
        *("flip", "flip", "flip", "cut", "insert", "double", "swap", "zero", "number", "field"),
        *("delete", "byte", "bom", "tail"),
    )
    chunk = bytes(data[start : start + length])
    if word == "flip" and data:
        for _ in range(draw.pick(1, 1, 3, 20)):
            data[draw.whole(0, len(data) - 1)] ^= 1 << draw.whole(0, 7)
        data[start] ^= 1 << draw.whole(0, 7)
    elif word == "cut":
        del data[start:]
    elif word == "insert":
        data[start:start] = draw.rng.bytes(draw.pick(1, 4, 40))
    elif word == "double":
        data[start:start] = chunk * draw.pick(1, 3)
    elif word == "swap":
        other = draw.whole(0, size - 1)
        data[start : start + length], data[other : other + length] = (
            data[other : other + length],
            data[start : start + length],
        )
    elif word == "zero":
        data[start : start + length] = bytes(len(chunk))
    elif word == "number":
        n_bytes = draw.pick(2, 4, 8)
        lie = draw.pick(*LIES) % 2 ** (8 * n_bytes)
        data[start : start + n_bytes] = lie.to_bytes(n_bytes, draw.pick("little", "big"))
    elif word == "field":
        data[start : start + draw.pick(0, 1, 5)] = draw.pick(*FIELDS).encode("utf-8", "replace")
    elif word == "delete":
        del data[start : start + length]
    elif word == "byte":
        data[start : start + 1] = draw.pick(
            b"\0", b'"', b",", b"\n", b"\r", b"\xff", b"<", b"&", b"9"
        )
    elif word == "bom":
        data[:0] = draw.pick(b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
    elif word == "tail":
        data += draw.rng.bytes(30)
    return bytes(data), f"{word} at {start}"


def draw_bomb(draw):
    """Return the suffix and the bytes of a small file that expands to a large table."""
    n = draw.pick(10**4, 10**5, 10**6, 10**6, 10**8)
    word = draw.pick(
        "csv", "svm", "json", "npz", "excel", "rows", "line", "deep", "wide", "laughs"
    )
    if word in ("csv", "svm", "json"):
        line = {"csv": b"1,2\n", "svm": b"1 1:1\n", "json": b'{"a":1}\n'}[word]
        suffix = {"csv": ".csv.gz", "svm": ".svm.gz", "json": ".jsonl.gz"}[word]
        return suffix, gzip.compress(line * (n // len(line)), 6, mtime=0)
    if word == "line":
        return ".csv", draw.pick(b"1,", b"a", b'"', b",", b"\t", b"0") * min(n, 10**7)
    if word == "deep":
        return draw.pick(".json", ".jsonl"), draw.pick(b"[", b'{"a":') * 10**5
    if word == "wide":
        return ".csv", b",".join(b"%d" % j for j in range(draw.pick(300, 3000))) + b"\n1\n"
    file = io.BytesIO()
    if word == "npz":
        np.savez_compressed(file, X=np.zeros(n // 8))
        return ".npz", file.getvalue()
    _, content = _excel(draw, draw_frame(draw))
    entity = b'<!DOCTYPE w [<!ENTITY a "ha">' + b"".join(
        b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 20) for i in range(8)
    )
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", 8) as new:
        for name in old.namelist():
            inside = old.read(name)
            if "sheet1" in name and word == "excel":
                inside = inside.replace(b"</sheetData>", b"<row/>" * (n // 6) + b"</sheetData>")
            elif "sheet1" in name and word == "rows":
                lie = b'<row r="%d"><c r="XFD9"><v>1</v></c></row></sheetData>' % n
                inside = inside.replace(b"</sheetData>", lie)
            elif "sheet1" in name:
                head, sign, rest = inside.partition(b"<worksheet")
                inside = head + entity + b"]>" + sign + rest.replace(b"<v>", b"<v>&i;", 1)
            new.writestr(name, inside)
    return ".xlsx", file.getvalue()
