"""``volmar cluster table.csv`` with no options, in this process: the code behind the command."""

import numpy as np

from volmar import MSPC
from volmar.tables import Preparation, read_table

NAME = "volmar cluster"


def find_clusters(path, seed):
    """Return the label of every row of a file, -1 for a row that was left out."""
    prepared = Preparation().fit_transform(read_table(path))
    labels = np.full(len(prepared.kept), -1)
    labels[prepared.kept] = MSPC("auto", random_state=seed).fit(prepared.X).labels_
    return labels
