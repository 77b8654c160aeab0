"""Shared by the tests of tables: refusals in one line, and rows of a file."""

import pytest

from volmar.tables import Preparation, TableError, read_table


def refused(action, *words):
    """Run something that must fail with one line that has all the words."""
    with pytest.raises(TableError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    for word in words:
        assert word in message, message
    return message


def prepared(path, **options):
    return Preparation(**options).fit_prepare(read_table(path))
