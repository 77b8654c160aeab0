"""Every picture of a run as image files, by the displays of `volmar.plots`."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from volmar._files import refuse_existing, write_atomically
from volmar.base import SplitTree
from volmar.report.column_profiles import profiles_of
from volmar.report.drivers import sampled
from volmar.report.outcome import Outcome
from volmar.report.plane import MAX_POINTS
from volmar.report.profiles import description_of

__all__ = ["save_pictures"]

FORMATS = ("png", "svg", "pdf")
# Resolution, and pixels of the longer side, which a tree of many clusters would exceed.
DOTS_PER_INCH, MOST_PIXELS = 150.0, 8000.0
# Clusters that a legend names.
MOST_NAMED = 20


def save_pictures(
    folder: str | Path,
    outcome: Outcome,
    *,
    formats: Sequence[str] = ("png", "svg"),
    force: bool = False,
) -> list[Path]:
    """Write every picture of a run as image files: for slides, papers and other tools.

    The files are `clusters` (rows in the plane), `scores` (histogram of decision scores), `tree`
    (the splits), `silhouettes`, `columns` (distributions in each cluster), `effects` (what sets
    the clusters apart), `borders` (which clusters are separated) and `numbers` (other numbers of
    clusters), each with the suffix of a format. Those that the run has nothing for are left out:
    rows in one cluster have only `clusters` and `columns`.

    Parameters
    ----------
    folder : str or Path
        Where to write; it is made where there is none.
    outcome : Outcome
        What the run left behind.
    formats : sequence of {"png", "svg", "pdf"}, default=("png", "svg")
        Formats of each picture.
    force : bool, default=False
        Whether files of these names are replaced.

    Returns
    -------
    list of Path
        The files, in the order above. Each appears whole or not at all.

    Raises
    ------
    FileExistsError
        If there is such a file, and `force` is not set: nothing is written then.
    ImportError
        Without matplotlib.

    Examples
    --------
    >>> from volmar.report import save_pictures
    >>> save_pictures("pictures", outcome)  # doctest: +SKIP
    [PosixPath('pictures/clusters.png'), PosixPath('pictures/clusters.svg'), ...]
    """
    figure_class = _figure_class()
    wanted = _checked_formats(formats)
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            f"{folder} is a file: give the name of a folder for the pictures."
        )
    pictures = dict(_pictures(outcome))
    names = [folder / f"{name}.{suffix}" for name in pictures for suffix in wanted]
    for path in names:
        refuse_existing(path, force)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in pictures.items():
        figure = figure_class(layout="constrained")
        with warnings.catch_warnings():
            # Letters that matplotlib's font lacks are drawn as boxes.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            draw(figure)
            for suffix in wanted:
                path = folder / f"{name}.{suffix}"
                _save(figure, path, suffix)
                written.append(path)
    return written


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib, which is not installed: pip install 'volmar[plot]'"
        ) from error
    return Figure


def _checked_formats(formats: Sequence[str]) -> list[str]:
    given = [formats] if isinstance(formats, str) else list(formats)
    wanted = list(dict.fromkeys(str(one).lower().lstrip(".") for one in given))
    for one in wanted:
        if one not in FORMATS:
            raise ValueError(
                f"formats has {one!r}, and pictures are written as {', '.join(FORMATS)}: choose "
                "among these."
            )
    if not wanted:
        raise ValueError("formats is empty: name at least one, such as 'png'.")
    return wanted


def _save(figure: Any, path: Path, suffix: str) -> None:
    """Write a figure whole, the same bytes for the same figure."""
    import matplotlib

    stamp: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
    buffer = io.BytesIO()
    # Ids of elements are drawn at random otherwise.
    with matplotlib.rc_context({"svg.hashsalt": "volmar"}):
        dots = min(DOTS_PER_INCH, MOST_PIXELS / max(figure.get_size_inches()))
        figure.savefig(buffer, format=suffix, dpi=dots, metadata=stamp)
    write_atomically(path, buffer.getvalue(), force=True)


# ------------------------------------------------------------------------------ the pictures


def _pictures(outcome: Outcome) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield the name of each picture that the run has, and what draws it on a figure."""
    yield "clusters", lambda figure: _clusters(figure, outcome)
    if outcome.k > 1 and np.isfinite(outcome.lead).all() and np.ptp(outcome.lead) > 0:
        yield "scores", lambda figure: _scores(figure, outcome)
    tree = getattr(outcome.estimator, "tree_", None)
    if outcome.k > 1 and tree is not None and tree.splits():
        yield "tree", lambda figure: _tree(figure, outcome, tree)
    if 1 < outcome.k < len(outcome.labels):
        yield "silhouettes", lambda figure: _silhouettes(figure, outcome)
    profiles = profiles_of(outcome)
    if any(one.shares.shape[1] for one in profiles.columns):
        named = replace(profiles, clusters=outcome.clusters.tolist())
        yield "columns", lambda figure: _columns(figure, named)
    if outcome.k > 1:
        description = description_of(outcome)
        if len(description.clusters) > 1:
            yield "effects", lambda figure: _effects(figure, description)
    if outcome.joins is not None and len(outcome.joins.clusters) > 1:
        yield "borders", lambda figure: _borders(figure, outcome)
    if outcome.numbers is not None:
        yield "numbers", lambda figure: _numbers(figure, outcome)


def _clusters(figure: Any, outcome: Outcome) -> None:
    from volmar.plots import ClusterDisplay

    figure.set_size_inches(6.0, 4.8)
    rows = sampled(outcome.X.shape[0], MAX_POINTS, outcome.seed)
    # Prepared columns have no units, and a category counts as one column.
    is_prepared = outcome.scales is not None or outcome.offsets is not None
    display = ClusterDisplay.from_labels(
        outcome.X[rows],
        outcome.labels[rows],
        standardize=not is_prepared,
        ax=figure.subplots(),
        legend=outcome.k <= MOST_NAMED,
    )
    if outcome.X.shape[1] <= 2:
        names = [str(name) for name in outcome.feature_names]
        display.ax_.set_xlabel(names[0], parse_math=False)
        if len(names) > 1:
            display.ax_.set_ylabel(names[1], parse_math=False)


def _scores(figure: Any, outcome: Outcome) -> None:
    from volmar.plots import ProjectionDisplay

    figure.set_size_inches(7.0, 3.6)
    two = outcome.k == 2
    display = ProjectionDisplay(
        outcome.lead,
        outcome.labels if outcome.labels.dtype.kind in "iu" else outcome.codes,
        axis_name="decision score" if two else "best score less the second best",
    ).plot(ax=figure.subplots())
    if outcome.k > MOST_NAMED:
        display.ax_.get_legend().remove()


def _tree(figure: Any, outcome: Outcome, tree: SplitTree) -> None:
    from volmar.plots import TreeDisplay

    display = TreeDisplay(tree)
    # A pipeline's last step has the columns of the step before it.
    if outcome.model is outcome.estimator:
        display = TreeDisplay(SplitTree(tree.root, [str(name) for name in outcome.feature_names]))
    figure.set_size_inches(*display.size)
    display.plot(ax=figure.subplots())


def _silhouettes(figure: Any, outcome: Outcome) -> None:
    from volmar.plots import SilhouetteDisplay

    figure.set_size_inches(6.0, float(np.clip(2.2 + 0.35 * outcome.k, 3.0, 12.0)))
    SilhouetteDisplay.from_labels(
        outcome.X, outcome.labels, random_state=outcome.seed, ax=figure.subplots()
    )


def _columns(figure: Any, profiles: Any) -> None:
    from volmar.plots import ColumnProfilesDisplay

    display = ColumnProfilesDisplay(profiles)
    figure.set_size_inches(*display.size)
    display.plot(figure=figure)


def _effects(figure: Any, description: Any) -> None:
    from volmar.plots import EffectsDisplay

    display = EffectsDisplay(description)
    figure.set_size_inches(*display.size)
    display.plot(ax=figure.subplots())


def _borders(figure: Any, outcome: Outcome) -> None:
    from volmar.plots import LabelTestDisplay

    assert outcome.joins is not None
    display = LabelTestDisplay(outcome.joins)
    figure.set_size_inches(*display.size)
    display.plot(ax=figure.subplots())


def _numbers(figure: Any, outcome: Outcome) -> None:
    from volmar.plots import NumberOfClustersDisplay

    assert outcome.numbers is not None
    reference = outcome.codes[outcome.numbers.rows] if outcome.k > 1 else None
    display = NumberOfClustersDisplay(outcome.numbers, reference)
    figure.set_size_inches(*display.size)
    display.plot(figure=figure)
