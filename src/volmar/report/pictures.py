"""All plots of a run as image files, made by the displays of `volmar.plots`."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from volmar._files import expanded_path, printable, refuse_existing, write_atomically
from volmar.base import SplitTree
from volmar.diagnostics.silhouettes import silhouettes
from volmar.plots.display import Display
from volmar.report.drawings import MAX_POINTS
from volmar.report.drivers import sampled
from volmar.report.outcome import Outcome
from volmar.report.sections import description_of, profiles_of

FORMATS = ("png", "svg", "pdf")
# Sizes in inches, if they differ from those of the displays.
SIZES = {"clusters": (6.0, 4.8), "scores": (7.0, 3.6)}


def save_pictures(
    folder: str | Path,
    outcome: Outcome,
    *,
    formats: Sequence[str] = ("png", "svg"),
    force: bool = False,
) -> list[Path]:
    """Write all plots of a run as image files, for slides, papers and other tools.

    The files are `clusters` (scatter plot), `scores` (histogram of decision scores), `tree` (the
    splits), `silhouettes`, `columns` (distributions in each cluster), `effects` (differences
    between the clusters), `borders` (which clusters are separated) and `numbers` (other numbers of
    clusters), each with the suffix of a format. Plots without data are left out: a single cluster
    has only `clusters` and `columns`. Each file is written completely or not at all, and none if
    one exists and `force` is False.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib, which is not installed: pip install 'volmar[plot]'"
        ) from error
    wanted = _checked_formats(formats)
    folder = expanded_path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            f"{printable(folder)} is a file. Give the name of a folder for the pictures."
        )
    pictures = dict(_pictures(outcome))
    written = [folder / f"{name}.{suffix}" for name in pictures for suffix in wanted]
    for path in written:
        refuse_existing(path, force)
    folder.mkdir(parents=True, exist_ok=True)
    for name, display in pictures.items():
        figure = Figure(layout="constrained")
        _draw(name, display, figure)
        _replace_missing_glyphs(figure)
        for suffix in wanted:
            _save(figure, folder / f"{name}.{suffix}", suffix, force)
    return written


def _replace_missing_glyphs(figure: Any) -> None:
    """Replace letters that the font lacks by boxes, as drawn by matplotlib, which also warns."""
    from matplotlib.font_manager import fontManager, get_font
    from matplotlib.text import Text

    known = get_font(fontManager.findfont("")).get_charmap()

    def drawable(text: str) -> str:
        return "".join(c if ord(c) in known or c == "\n" else "\N{WHITE SQUARE}" for c in text)

    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
        names = axis.get_major_formatter().format_ticks(axis.get_majorticklocs())
        if list(map(drawable, names)) != names:
            axis.set_ticks(axis.get_majorticklocs(), list(map(drawable, names)))
    for text in figure.findobj(Text):
        text.set_text(drawable(text.get_text()))


def _checked_formats(formats: Sequence[str]) -> list[str]:
    given = [formats] if isinstance(formats, str) else list(formats)
    wanted = list(dict.fromkeys(str(one).lower().lstrip(".") for one in given))
    for one in wanted:
        if one not in FORMATS:
            raise ValueError(
                f"formats must be among {', '.join(FORMATS)}, got {one!r}. Choose from these."
            )
    if not wanted:
        raise ValueError("formats is empty. Give at least one format, such as 'png'.")
    return wanted


def _save(figure: Any, path: Path, suffix: str, force: bool) -> None:
    """Write a figure to a file; the same figure gives the same bytes."""
    import matplotlib

    stamp: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
    buffer = io.BytesIO()
    # Without a salt, ids of SVG elements are random.
    with matplotlib.rc_context({"svg.hashsalt": "volmar"}):
        # The longer side has at most 8,000 pixels.
        dots = min(150.0, 8000.0 / max(figure.get_size_inches()))
        figure.savefig(buffer, format=suffix, dpi=dots, metadata=stamp)
    content = buffer.getvalue()
    if suffix == "svg":  # column names may have control characters, which XML forbids
        content = printable(content.decode("utf-8"), keep="\n\t").encode("utf-8")
    write_atomically(path, content, force=force)


# ------------------------------------------------------------------------------ plots


def _pictures(outcome: Outcome) -> Iterator[tuple[str, Any]]:
    """Yield the name and the display, not yet drawn, of each plot of the run."""
    from volmar import plots

    yield "clusters", _clusters(outcome)
    if outcome.k > 1 and np.isfinite(outcome.lead).all() and np.ptp(outcome.lead) > 0:
        labels = outcome.labels if outcome.labels.dtype.kind in "iu" else outcome.codes
        name = "decision score" if outcome.k == 2 else "best score minus second best"
        yield "scores", plots.ProjectionDisplay(outcome.lead, labels, axis_name=name)
    tree = getattr(outcome.estimator, "tree_", None)
    if outcome.k > 1 and tree is not None and tree.splits():
        # The last step of a pipeline has other columns than X.
        if outcome.model is outcome.estimator:
            tree = SplitTree(tree.root, [str(name) for name in outcome.feature_names])
        yield "tree", plots.TreeDisplay(tree)
    if 1 < outcome.k < len(outcome.labels):
        found = silhouettes(outcome.X, outcome.labels, random_state=outcome.seed)
        shown = (found.clusters, found.values, found.shares, found.mean)
        yield "silhouettes", plots.SilhouetteDisplay(*shown)
    profiles = profiles_of(outcome)
    if any(one.shares.shape[1] for one in profiles.columns):
        named = replace(profiles, clusters=outcome.clusters.tolist())
        yield "columns", plots.ColumnProfilesDisplay(named)
    if outcome.k > 1:
        description = description_of(outcome)
        if len(description.clusters) > 1:
            yield "effects", plots.EffectsDisplay(description)
    if outcome.joins is not None and len(outcome.joins.clusters) > 1:
        yield "borders", plots.LabelTestDisplay(outcome.joins)
    if outcome.numbers is not None:
        reference = outcome.codes[outcome.numbers.rows] if outcome.k > 1 else None
        yield "numbers", plots.NumberOfClustersDisplay(outcome.numbers, reference)


def _clusters(outcome: Outcome) -> Any:
    from volmar.plots.clusters import ClusterDisplay, in_the_plane

    rows = sampled(outcome.X.shape[0], MAX_POINTS, outcome.seed)
    # Prepared columns are scaled already, so that a category counts as one column.
    is_prepared = outcome.scales is not None or outcome.offsets is not None
    points, axes = in_the_plane(outcome.X[rows], not is_prepared)
    names = [str(name) for name in outcome.feature_names]
    if len(names) <= 2:
        axes = (names[0], names[1] if len(names) > 1 else "")
    return ClusterDisplay(points, outcome.labels[rows], axes)


def _draw(name: str, display: Any, figure: Any) -> None:
    """Set the size of a figure, and draw a display on it."""
    figure.set_size_inches(*SIZES.get(name, display.size))
    if not isinstance(display, Display):  # several axes
        display.plot(figure=figure)
        return
    display.plot(ax=figure.subplots())
    legend = display.ax_.get_legend()
    labels = getattr(display, "labels", ())
    if legend is not None and len(np.unique(labels)) > 20:
        legend.remove()
