"""``volmar cluster table.csv`` with no options, in this process: the code behind the command."""

from volmar import TableClusterer

NAME = "volmar cluster"


def find_clusters(path, seed):
    """Return the label of every row of a file, -1 for rows that are left out."""
    return TableClusterer(random_state=seed).fit(path).labels_
