"""The store of results: packed files, damaged ones, values that count as failed."""

import json
import lzma
import threading
from dataclasses import replace

import pytest
from paper_experiments import made_up

from reproduction import Store, run_cells, stored_results
from reproduction import runner as runner_module


def test_packing_keeps_results_and_goes_on_beside_them(experiment, tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    cells = list(experiment.cells())
    results = [made_up(cell, i / 100, 1 + i / 1e6) for i, cell in enumerate(cells)]
    results[3] = made_up(cells[3], None, status="ValueError: no")
    for result in results[:8]:
        store.append(result)
    store.pack()
    assert not store.path.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["cells.jsonl.xz"]
    read = store.read()
    assert read.keys() == {cell.key for cell in cells[:8]}
    for result in results[:8]:
        packed = read[result.cell.key]
        assert packed == replace(result, seconds=float(f"{result.seconds:.3g}"))
    # Later lines win over packed ones.
    again = replace(results[0], value=0.5, seconds=7.0)
    for result in (again, *results[8:]):
        store.append(result)
    assert store.read()[cells[0].key] == again
    assert len(store.read()) == len(cells)
    assert stored_results(cells, store).keys() == {cell.key for cell in cells}
    store.pack()
    assert Store(store.path).read()[cells[0].key] == again
    assert len(store.read()) == len(cells)


def test_packing_twice_gives_the_same_bytes(experiment, tmp_path):
    cells = list(experiment.cells())
    texts = []
    for name, order in (("a", cells), ("b", cells[::-1])):
        store = Store(tmp_path / f"{name}.jsonl")
        for cell in order:
            store.append(made_up(cell, 0.25, 0.123456 + cell.seed))
        store.pack()
        texts.append(store.packed.read_bytes())
        store.pack()
        assert store.packed.read_bytes() == texts[-1]
    assert texts[0] == texts[1]
    lines = lzma.decompress(texts[0]).decode().splitlines()
    assert len(lines) == len(cells)
    assert all(json.loads(line)["seconds"] == pytest.approx(0.123456, abs=3.01) for line in lines)


def test_packed_cells_are_not_run_again(experiment, tmp_path, monkeypatch):
    store = Store(tmp_path / "cells.jsonl")
    cells = list(experiment.cells(1))
    first = run_cells(cells, store)
    store.pack()
    monkeypatch.setattr(runner_module, "run_cell", lambda cell: pytest.fail("it ran again"))
    second = run_cells(cells, store)
    assert {k: r.value for k, r in second.items()} == {k: r.value for k, r in first.items()}
    assert not store.path.exists()


def test_a_packed_file_that_is_damaged_is_named(experiment, tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    store.append(made_up(next(experiment.cells()), 0.1))
    store.pack()
    store.packed.write_bytes(store.packed.read_bytes()[:-20])
    with pytest.raises((ValueError, OSError), match=r"cells\.jsonl\.xz"):
        store.read()


def test_a_failed_value_may_be_zero_but_not_missing(experiment, tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    result = made_up(next(experiment.cells()), 0.0)
    store.append(result)
    assert not store.read()[result.cell.key].failed


def test_a_line_nested_too_deeply_is_refused(experiment, tmp_path):
    store = Store(tmp_path / "cells.jsonl")
    store.append(made_up(next(experiment.cells()), 0.1))
    with store.path.open("a") as file:
        file.write("[" * 100_000 + "\n")
    with pytest.raises(ValueError, match=r"cells\.jsonl: line 2 .* nested too deeply"):
        store.read()
    with pytest.raises(ValueError, match="nested too deeply"):
        store.pack()
    assert len(store.path.read_text().splitlines()) == 2


def test_packing_loses_nothing_that_is_appended_meanwhile(experiment, tmp_path):
    pytest.importorskip("fcntl")
    store = Store(tmp_path / "cells.jsonl")
    cells = [replace(cell, seed=i) for cell in experiment.cells() for i in range(15)][:30]
    assert len(cells) == 30
    stop = threading.Event()

    def append(some):
        for cell in some:
            Store(store.path).append(made_up(cell, 0.5))

    def pack():
        while not stop.is_set():
            Store(store.path).pack()

    packers = [threading.Thread(target=pack) for _ in range(2)]
    writers = [threading.Thread(target=append, args=(cells[i::2],)) for i in range(2)]
    for thread in (*packers, *writers):
        thread.start()
    n_seen = 0
    while any(thread.is_alive() for thread in writers):
        # A reader never sees less than before.
        n_now = len(store.read())
        assert n_now >= n_seen
        n_seen = n_now
    stop.set()
    for thread in (*packers, *writers):
        thread.join()
    assert store.read().keys() == {cell.key for cell in cells}
