"""Files are written completely or not at all."""

import os
import stat
from pathlib import Path

import pytest
from helpers.pipes import reading

from volmar._files import (
    input_at,
    open_atomically,
    printable,
    refuse_existing,
    refuse_input,
    remove_parts,
    write_atomically,
)


class Refusal(ValueError):
    pass


def write(path, content, **options):
    with open_atomically(path, error=Refusal, **options) as file:
        file.write(content.encode())


def refused(*arguments, **options):
    with pytest.raises(Refusal) as caught:
        write(*arguments, **options)
    return str(caught.value)


def test_nothing_is_replaced_without_force(tmp_path):
    path = tmp_path / "a.txt"
    write_atomically(path, "first")
    message = refused(path, "second")
    assert "a.txt exists already" in message
    assert "force=True" in message
    assert path.read_text() == "first"
    path.chmod(0o640)
    write_atomically(path, b"second", force=True)
    assert path.read_text() == "second"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_errors_are_of_the_system_unless_another_is_asked_for(tmp_path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(FileExistsError, match="exists already"):
        write_atomically(tmp_path / "a.txt", "x")
    with pytest.raises(FileExistsError, match="exists already"):
        refuse_existing(tmp_path / "a.txt", force=False)
    with pytest.raises(IsADirectoryError, match="folder"):
        refuse_existing(tmp_path, force=True)
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_atomically(tmp_path / "no" / "a.txt", "x")


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch, links):
    path = tmp_path / "a.txt"
    sync = os.fsync

    def meddle(number):
        path.write_text("another's")
        sync(number)

    def no_links(*_):
        raise OSError("none here")

    monkeypatch.setattr(os, "fsync", meddle)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    assert "exists already" in refused(path, "mine")
    assert path.read_text() == "another's"
    assert len(list(tmp_path.iterdir())) == 1


def test_links_are_written_through(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    write_atomically(tmp_path / "link.txt", "new", force=True)
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_nothing_is_left_behind(tmp_path, monkeypatch, error):
    (tmp_path / "a.csv").write_text("old")

    def fail(number):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    wanted = KeyboardInterrupt if error is KeyboardInterrupt else Refusal
    with pytest.raises(wanted):
        write(tmp_path / "a.csv", "new", force=True)
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "old"


def test_places_that_cannot_be_written(tmp_path):
    assert "folder" in refused(tmp_path, "x")
    assert "no folder" in refused(tmp_path / "no" / "a.csv", "x")
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(tmp_path / "file" / "a.csv", "x")


def test_a_pipe_is_written_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    number = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(tmp_path / "pipe", "x")
        assert os.read(number, 10) == b"x"
    finally:
        os.close(number)


def test_a_pipe_stays_one_by_force(tmp_path):
    with reading(tmp_path / "pipe") as found:
        write_atomically(tmp_path / "pipe", "x" * 100_000, force=True)
    assert found == [b"x" * 100_000]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="files of a process have no names")
def test_a_pipe_without_a_name_is_written(tmp_path):
    # A shell's >(command) is such a path, and does not lead to a file.
    reader, writer = os.pipe()
    try:
        write_atomically(f"/proc/self/fd/{writer}", "x", force=True)
        assert os.read(reader, 10) == b"x"
    finally:
        os.close(reader)
        os.close(writer)


def test_a_private_file_is_private_all_the_time(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o600)
    (tmp_path / "link.txt").symlink_to(path)
    with open_atomically(tmp_path / "link.txt", force=True) as file:
        (part,) = tmp_path.glob(".*.part")
        assert part.stat().st_mode & 0o077 == 0
        file.write(b"new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "link.txt").is_symlink()


def test_a_long_name_has_room_for_its_part(tmp_path):
    path = tmp_path / ("𝒳" * 63)  # 252 bytes of 255
    write_atomically(path, "x")
    assert path.read_text() == "x"
    assert "too long" in refused(tmp_path / ("x" * 256), "x")


def test_a_link_to_itself_is_kept(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "a")
    assert "cannot be written" in refused(tmp_path / "a", "x", force=True)
    assert (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("name", ["a\0b", "~nobody_of_this_name/a", "\ud800"])
def test_invalid_paths_are_refused(name):
    with pytest.raises(ValueError, match="is not a valid path"):
        write_atomically(name, "x")


def test_errors_of_files_that_are_read_keep_their_name(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match=r"input\.csv"),
        open_atomically(tmp_path / "a", error=Refusal),
    ):
        (tmp_path / "input.csv").read_bytes()
    assert not list(tmp_path.iterdir())


def test_parts_of_an_unfinished_program_are_removed(tmp_path):
    unfinished = open_atomically(tmp_path / "a.csv")
    unfinished.__enter__().write(b"x")
    assert len(list(tmp_path.iterdir())) == 1
    remove_parts()
    assert not list(tmp_path.iterdir())


def test_names_cannot_steer_a_terminal(tmp_path):
    assert printable("a\x1b[31m\x9b\u202e\r\n\udcff é\u200d") == (
        "a\\x1b[31m\\x9b\\u202e\\r\\n\\udcff é\u200d"
    )
    path = tmp_path / "a\x1b[31m.txt"
    path.write_text("")
    assert "a\\x1b[31m.txt" in refused(path, "x")


def test_inputs_are_known_by_all_their_names(tmp_path):
    folder, elsewhere = tmp_path / "in", tmp_path / "elsewhere.csv"
    (folder / "sub").mkdir(parents=True)
    (folder / "1.csv").write_text("")
    elsewhere.write_text("")
    (folder / "2.csv").symlink_to(elsewhere)
    (tmp_path / "link").symlink_to(folder)
    os.link(folder / "1.csv", tmp_path / "hard.csv")
    (tmp_path / "soft.csv").symlink_to(folder / "1.csv")
    names = ["in/new.csv", "in/sub/new.csv", "link/new.csv", "in/1.csv", "in/../in/1.csv"]
    for name in [*names, "elsewhere.csv", "hard.csv", "soft.csv"]:
        assert input_at(tmp_path / name, [folder]) == folder, name
    for name in ("new.csv", "in2/new.csv", "in-new.csv"):
        assert input_at(tmp_path / name, [folder, tmp_path / "nothing"]) is None
    assert input_at(tmp_path / "hard.csv", [folder / "1.csv"]) == folder / "1.csv"
    with pytest.raises(ValueError, match="never written to"):
        refuse_input(tmp_path / "soft.csv", [folder / "1.csv"])


def _write_after(event, path):
    with open_atomically(path) as file:
        event()
        file.write(b"x")


def test_a_pipe_whose_reader_has_gone_is_an_error_of_the_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    number = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="pipe cannot be written: Broken pipe") as caught:
        _write_after(lambda: os.close(number), tmp_path / "pipe")
    assert not isinstance(caught.value, BrokenPipeError)


def test_a_removed_working_directory_is_reported(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError, match="working directory was removed"):
        write_atomically("a.txt", "x")
