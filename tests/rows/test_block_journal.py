"""The journal of passes: kept, read again, damaged."""

from __future__ import annotations

import io
import pickle

import dask.array as da
import numpy as np
import pytest
from helpers.blocks import (
    close,
    csr_blocks,
    data,
    in_blocks,
    passes_of,
    vectors,
)

from volmar.distributed import checkpoint, report_passes
from volmar.rows import (
    BlockTable,
    as_beside,
    as_rows,
    as_table,
    drawn_rows,
)
from volmar.rows.blocks.sums import Squares


def figures_of(X, sample_weight=None):
    rows = as_rows(X, sample_weight=sample_weight)
    centred = rows.centered()
    chosen = centred.scores(np.ones(X.shape[1])) > 0
    rows.prefetch(lambda: (chosen.sum(), centred.moments(chosen, center=np.zeros(X.shape[1]))))
    drawn = drawn_rows(X.shape[0], rows.weights, 3, np.random.default_rng(0))
    part = centred.moments(chosen, center=np.zeros(X.shape[1]))
    nothing = centred.moments(chosen & ~chosen, center=np.zeros(X.shape[1])).weight
    return rows.mean(), int(chosen.sum()), part.second, rows.table[drawn], nothing


def figures_agree(one, two):
    for a, b in zip(one, two, strict=True):
        close(a, b)


def journalled(folder, X, **options):
    found = {}
    with checkpoint(folder) as journal:
        passes = passes_of(lambda: found.update(figures=figures_of(X, **options)))
    return found["figures"], journal, passes


def test_saved_results_are_not_computed_again(tmp_path):
    X, rng = data()
    weights = rng.random(24)
    first, wrote, passes = journalled(
        tmp_path / "new" / "folder", in_blocks(X), sample_weight=weights
    )
    assert wrote.n_read == 0
    assert wrote.n_written == sum(len(report.figures) for report in passes) > 5
    again, read, none = journalled(
        tmp_path / "new" / "folder", in_blocks(X), sample_weight=weights
    )
    assert (read.n_read, read.n_written, none) == (wrote.n_written, 0, [])
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not list((tmp_path / "new" / "folder").glob(".*.part"))
    assert passes_of(lambda: figures_of(in_blocks(X), weights))  # nothing is read outside


def test_a_fit_that_was_killed_goes_on(tmp_path):
    X, _ = data()
    whole, _, passes = journalled(tmp_path / "whole", in_blocks(X))
    n_passes = len(passes)
    assert n_passes > 3

    class Killed(BaseException):
        pass

    def kill(report):
        if report.number == 3:
            raise Killed

    with pytest.raises(Killed), checkpoint(tmp_path / "part"), report_passes(kill):
        figures_of(in_blocks(X))
    found, journal, passes = journalled(tmp_path / "part", in_blocks(X))
    figures_agree(found, whole)
    # The result of a pass is saved before the pass is reported.
    assert len(passes) == n_passes - 3
    assert journal.n_read >= 3


def test_other_data_are_refused(tmp_path):
    X, _ = data()
    journalled(tmp_path, in_blocks(X))
    other = X.copy()
    other[3, 1] += 1e-9
    for wrong in (in_blocks(other), in_blocks(X[:-1]), in_blocks(X.astype(np.float32))):
        rows = as_rows(wrong)
        with checkpoint(tmp_path):
            for _ in range(2):  # a second request fails, too
                with pytest.raises(
                    ValueError, match=r"belongs to other data.*Give another folder"
                ):
                    rows.mean()
    journalled(tmp_path, in_blocks(X))


def test_an_empty_first_block_is_no_witness(tmp_path):
    X, _ = data()
    journalled(tmp_path, in_blocks(X, (0, 13)))
    with pytest.raises(ValueError, match="other data"):
        journalled(tmp_path, in_blocks(X + 1, (0, 13)))


def test_other_chunks_go_on(tmp_path):
    """Sums do not depend on the chunks; sums per block, used to find rows, are computed again."""
    X, rng = data()
    weights = rng.random(24) * (rng.random(24) < 0.5)
    plain = figures_of(in_blocks(X), sample_weight=weights)
    journalled(tmp_path, in_blocks(X, (7,)), sample_weight=weights)
    for path in tmp_path.glob("*.npz"):  # some of the results, as if the fit had been killed
        if path.name < "8":
            path.unlink()
    for sizes in ((11,), (1,), (24,)):
        found, journal, _ = journalled(tmp_path, in_blocks(X, sizes), sample_weight=weights)
        figures_agree(found, plain)
        assert journal.n_read > 0


def test_other_weights_are_not_mixed_up(tmp_path):
    X, rng = data()
    weights = [rng.random(24), rng.random(24), None]
    for _ in range(2):
        for one in weights:
            found, _, _ = journalled(tmp_path, in_blocks(X), sample_weight=one)
            figures_agree(found, figures_of(in_blocks(X), sample_weight=one))


def test_other_weights_of_the_same_name_are_refused(tmp_path):
    X, rng = data()
    for first in (True, False):
        weights = da.from_array(rng.random(24), chunks=7, name="weights")
        if first:
            journalled(tmp_path, in_blocks(X), sample_weight=weights)
            continue
        with pytest.raises(ValueError, match="other weights or labels than those named 'weights'"):
            journalled(tmp_path, in_blocks(X), sample_weight=weights)


class Hostile:
    """Records that it was unpickled."""

    woken = 0

    def __reduce__(self):
        return _wake, ()


def _wake():
    Hostile.woken += 1
    return np.zeros(1)


def damaged(kind, whole):
    """Return damaged bytes of a file."""
    memory = io.BytesIO()
    if kind == "truncated":
        return whole[: len(whole) // 2]
    if kind == "empty":
        return b""
    if kind == "noise":
        return bytes(range(256)) * 4
    if kind == "flipped":
        middle = whole.find(b"\x93NUMPY") + 130
        return (
            whole[:middle]
            + bytes(255 - b for b in whole[middle : middle + 4])
            + whole[middle + 4 :]
        )
    if kind == "array":
        np.save(memory, np.ones(3))
    elif kind == "pickle":
        return pickle.dumps(Hostile())
    elif kind == "hostile":
        np.savez(memory, np.array([Hostile()], dtype=object))
    elif kind == "other names":
        np.savez(memory, first=np.ones(3))
    return memory.getvalue()


@pytest.mark.parametrize(
    "kind",
    ["truncated", "empty", "noise", "flipped", "array", "pickle", "hostile", "other names"],
)
def test_results_of_damaged_files_are_computed_again(tmp_path, kind):
    X, _ = data()
    plain, wrote, _ = journalled(tmp_path, in_blocks(X))
    before = {path: path.read_bytes() for path in tmp_path.glob("*.npz")}
    for path, content in before.items():
        path.write_bytes(damaged(kind, content))
    found, journal, _ = journalled(tmp_path, in_blocks(X))
    figures_agree(found, plain)
    assert Hostile.woken == 0
    # An empty result has no bits to flip.
    assert journal.n_read <= 1
    assert journal.n_written >= wrote.n_written - 1
    _, healed, _ = journalled(tmp_path, in_blocks(X))
    assert healed.n_written == 0


def test_a_marker_that_is_no_text(tmp_path):
    journalled(tmp_path, in_blocks(data()[0]))
    (tmp_path / "data").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="Give another folder"):
        journalled(tmp_path, in_blocks(data()[0]))


def test_a_file_is_no_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ValueError, match=r"needs a folder.*is a file"), checkpoint(path):
        pass


def test_objects_are_not_written_down(tmp_path):
    X, _ = data(9)
    with checkpoint(tmp_path) as journal:
        table = as_table(in_blocks(X, (4,)))
        labels = as_beside(table, np.array(list("abbabaaab"), dtype=object), "labels")
        assert list(labels.distinct()[0]) == ["a", "b"]
    assert journal.n_written == 0
    assert not list(tmp_path.glob("*.npz"))


def test_listeners_are_let_go():
    table, (v,), _ = vectors(9, (4,), 0, "f8")
    outer, inner = [], []
    with report_passes(outer.append):
        with report_passes(inner.append):
            v.sum()
        v.max()
    v.distinct()
    assert [report.number for report in outer] == [1, 2]
    assert [report.figures for report in inner] == [("Sum",)]
    assert table.rows_of.n_passes == 3


def test_squares_show_what_is_not_finite():
    X, _ = data()
    for wrong in (np.nan, np.inf, 1e200):
        Y = X.copy()
        Y[17, 2] = wrong
        for make in (in_blocks, csr_blocks):
            assert not np.isfinite(as_table(make(Y)).ask(Squares()))
    assert as_table(csr_blocks(X)).ask(Squares()) == pytest.approx((X**2).sum())


def test_results_are_cached_up_to_a_size(monkeypatch):
    from volmar.rows.blocks import table as table_module

    monkeypatch.setattr(table_module, "KEPT_BYTES", 100)
    table, (v,), (a,) = vectors(9, (4,), 0, "f8")
    table.prefetch(lambda: [(v + k).sum() for k in range(40)])
    assert len(table.rows_of._known) <= 40
    for k in range(40):
        assert (v + k).sum() == (a + k).sum()


def test_table_is_a_matrix():
    X, _ = data()
    table = as_table(in_blocks(X))
    assert isinstance(table, BlockTable)
    assert (table.shape, table.ndim, len(table), table.dtype) == ((24, 5), 2, 24, X.dtype)
    np.testing.assert_array_equal(table.row_numbers().to_dask().compute(), np.arange(24))
    np.testing.assert_array_equal(table.first_mean(10), X[:10].mean(axis=0))
