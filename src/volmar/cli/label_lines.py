"""Which clusters of a labelling are separated: the test of ``volmar score``, printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from volmar.cli.console import counted

if TYPE_CHECKING:
    from volmar.diagnostics import LabelTestResult

__all__ = ["label_test_content", "print_label_test", "tested_labels"]

# Separated borders that are printed; those to be merged are all printed.
MOST_PRINTED = 10


def tested_labels(
    X: Any, labels: NDArray, *, noise: str | None, seed: int, notes: list[str]
) -> LabelTestResult | None:
    """Return the test of labels, or None with a note that says why there is none.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows.
    labels : ndarray of shape (n,)
        Labels, as text.
    noise : str or None
        The label of rows without a cluster.
    seed : int
        Random seed.
    notes : list of str
        Gets a line where labels cannot be tested.
    """
    from volmar.diagnostics import label_test

    try:
        with counted("testing the clusters") as tell:
            return label_test(X, labels, noise_label=noise, progress=tell, random_state=seed)
    except ValueError as error:
        notes.append(f"the clusters were not tested: {error}")
        return None


def label_test_content(result: LabelTestResult | None) -> dict[str, Any] | None:
    """Return what the JSON holds."""
    if result is None:
        return None
    return {
        "summary": result.summary,
        "separated groups": result.n_real,
        "groups": [list(group) for group in result.groups],
        "untested": list(result.untested),
        "noise rows": result.n_noise,
        "alpha": result.alpha,
        "joins": [
            {
                "clusters": [list(side) for side in join.tested],
                "rows": list(join.n_tested),
                "separated": join.is_real,
                "p": join.p_value,
                "level": join.level,
                "distance": join.distance,
                "valley depth": join.depth,
                "curved": join.is_curved,
                "sentence": str(join),
            }
            for join in result.tree
        ],
    }


def print_label_test(console: Console, result: LabelTestResult) -> None:
    """Print the summary, borders to merge first, and the first of the separated ones."""
    merged = [str(join) for join in result.tree if not join.is_real]
    separated = [str(join) for join in result.tree if join.is_real]
    others = result.sentences[len(result.tree) :]
    n_more = len(separated) - MOST_PRINTED
    more = [f"... and {n_more} more pairs are separated (--json has all)."] if n_more > 0 else []
    console.print("Which clusters are real?")
    console.print(result.summary, markup=False)
    lines = Table.grid(padding=(0, 1, 0, 0))
    for line in (*merged, *separated[:MOST_PRINTED], *more, *others):
        lines.add_row("-", Text(line))
    console.print(lines)
