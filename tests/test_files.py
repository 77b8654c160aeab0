"""Files written whole or not at all."""

import os

import pytest

from volmar._files import refuse_existing, write_atomically


class Refusal(ValueError):
    pass


def refused(*arguments, **options):
    with pytest.raises(Refusal) as caught:
        write_atomically(*arguments, error=Refusal, **options)
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
        write_atomically(tmp_path / "a.csv", "new", force=True, error=Refusal)
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
