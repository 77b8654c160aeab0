"""Helpers for tests of tables: one-line errors, and the rows of a file."""

import numpy as np
import pytest

from volmar.tables import Preparation, TableError, read_table

#: Parts of the identity matrix of two rows as `scipy.sparse.save_npz` writes them.
CSR = {
    "format": b"csr",
    "shape": [2, 2],
    "data": np.ones(2),
    "indices": np.array([0, 1], "i4"),
    "indptr": np.array([0, 1, 2], "i4"),
}


def refused(action, *words):
    """Assert that a call fails with a one-line message that contains all the words."""
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
