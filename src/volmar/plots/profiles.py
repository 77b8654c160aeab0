"""Plots of the distributions of columns in each cluster, and of effects."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from volmar._checks import shortened
from volmar.diagnostics import ClusterDescription, ColumnProfiles, column_profiles
from volmar.diagnostics.cluster_description import suggested_names
from volmar.diagnostics.column_profiles import OTHER, ColumnProfile, day_text
from volmar.plots.display import COLOURS, Display, hide_spines, new_figure

# Maximum number of letters of a name, and the effect at which the colour scale ends.
MAX_LETTERS, MAX_EFFECT = 22, 3.0


class ColumnProfilesDisplay:
    """Grid of small plots, with a row for each column and a panel for each cluster.

    Numbers and dates are shown as a histogram with a line at the median, text and booleans as
    shares of their levels. All panels of a row have the same axes.

    Parameters
    ----------
    profiles : ColumnProfiles
        Result of `volmar.diagnostics.column_profiles`.

    Attributes
    ----------
    axes_, figure_ : ndarray of matplotlib Axes, of shape (n_columns, n_clusters), and Figure
        The axes of the panels, and the figure.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from volmar.plots import ColumnProfilesDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> display = ColumnProfilesDisplay.from_labels(X, y)
    >>> display.axes_.shape
    (4, 3)
    """

    def __init__(self, profiles: ColumnProfiles):
        self.profiles = profiles

    @classmethod
    def from_labels(
        cls, X: Any, labels: ArrayLike, *, figure: Any = None, **parameters: Any
    ) -> ColumnProfilesDisplay:
        """Plot the columns of a table in given clusters.

        Parameters
        ----------
        X : array, CSR array or DataFrame of shape (n, d)
            The table.
        labels : array of shape (n,)
            Cluster of each row.
        figure : matplotlib Figure, optional
            Figure to draw on. If None, a new figure is created.
        **parameters
            Parameters of `volmar.diagnostics.column_profiles`.
        """
        return cls(column_profiles(X, labels, **parameters)).plot(figure=figure)

    def plot(
        self, *, max_columns: int = 12, max_clusters: int = 8, figure: Any = None
    ) -> ColumnProfilesDisplay:
        """Draw on `figure`, or on a new one.

        Parameters
        ----------
        max_columns : int, default=12
            Maximum number of columns. Used columns come first, each part in the order of
            effects.
        max_clusters : int, default=8
            Maximum number of clusters; the first ones are shown.
        figure : matplotlib Figure, optional
            Figure to draw on. If None, a new figure is created.
        """
        shown, k = self._shown(max_columns, max_clusters)
        if not shown:
            raise ValueError(
                "profiles has no column with values to plot. Pass a table with values."
            )
        heights = [_height(one) for one in shown]
        small: dict[str, Any] = {"fontsize": "small", "parse_math": False}
        if figure is None:
            figure = new_figure(_size(shown, k))
        axes = figure.subplots(len(shown), k, squeeze=False, height_ratios=heights)
        for row, one in zip(axes, shown, strict=True):
            top = float(np.nanmax(one.shares[:k], initial=0.0)) or 1.0
            for i, ax in enumerate(row):
                self._draw(ax, one, i, top)
            name = shortened(one.name, MAX_LETTERS) + ("" if one.used else "\n(left out)")
            row[0].set_ylabel(name, rotation=0, ha="right", va="center", **small)
        for i, ax in enumerate(axes[0]):
            label = shortened(str(self.profiles.clusters[i]), MAX_LETTERS)
            ax.set_title(f"cluster {label}\n{self.profiles.sizes[i]:,} rows", **small)
        self.axes_, self.figure_ = axes, figure
        return self

    @property
    def size(self) -> tuple[float, float]:
        """Suitable width and height in inches, for at most 12 columns and 8 clusters."""
        return _size(*self._shown(12, 8))

    def _shown(self, max_columns: int, max_clusters: int) -> tuple[list[ColumnProfile], int]:
        shown = [one for one in self.profiles.columns if one.shares.shape[1]]
        return shown[:max_columns], min(len(self.profiles.clusters), max_clusters)

    def _draw(self, ax: Any, one: ColumnProfile, i: int, top: float) -> None:
        shares = np.nan_to_num(one.shares[i])
        colour = COLOURS[i % len(COLOURS)]
        ax.set_yticks([])
        hide_spines(ax, "top", "right", "left")
        if one.has_numbers:
            edges = np.arange(shares.size + 1) - 0.5 if one.edges is None else one.edges
            ax.stairs(shares, edges, fill=True, color=colour)
            ax.set_ylim(0.0, 1.05 * top)
            ax.tick_params(axis="x", labelsize="x-small", length=2)
            if one.edges is None:
                places = np.arange(shares.size)[:: -(-shares.size // 6)]  # at most six
                ax.set_xticks(places, [one.levels[j] for j in places])
                return
            ax.set_xlim(edges[0], edges[-1])
            if one.kind == "date":
                ends = edges[[0, -1]]
                ax.set_xticks(ends, [day_text(ends[0]), day_text(ends[1] - 1e-6)])
                for label, side in zip(ax.get_xticklabels(), ("left", "right"), strict=True):
                    label.set_ha(side)
            else:
                ax.locator_params(axis="x", nbins=3)
            assert one.quartiles is not None
            if np.isfinite(one.quartiles[i, 1]):
                ax.axvline(np.clip(one.quartiles[i, 1], *edges[[0, -1]]), color="0.15", lw=1.0)
            return
        places = np.arange(shares.size)
        grey = [colour if level != OTHER else "0.7" for level in one.levels]
        ax.barh(places, shares, color=grey, height=0.84, alpha=0.45)
        for place, level, share in zip(places, one.levels, shares, strict=True):
            text = f"{shortened(level, 14)} {100 * share:.0f} %"
            ax.text(0.02, place, text, va="center", fontsize="x-small", parse_math=False)
        ax.set_xlim(0.0, 1.0)
        ax.set_ylim(shares.size - 0.5, -0.5)
        ax.set_xticks([])


def _size(shown: list[ColumnProfile], k: int) -> tuple[float, float]:
    return 1.6 + 1.7 * k, 0.5 + sum(_height(one) for one in shown)


def _height(one: ColumnProfile) -> float:
    """Return the height of a column in inches; each level needs a line."""
    return 0.95 if one.has_numbers else max(0.95, 0.35 + 0.16 * len(one.levels))


class EffectsDisplay(Display):
    """Heat map of how each cluster differs from the others, by column.

    Parameters
    ----------
    description : ClusterDescription
        Result of `volmar.describe_clusters`, with at least two clusters.

    Attributes
    ----------
    columns_ : list of str
        Names of the features that are shown.
    ax_, figure_ : matplotlib Axes and Figure
        The axes and the figure of the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from volmar import describe_clusters
    >>> from volmar.plots import EffectsDisplay
    >>> iris = load_iris(as_frame=True)
    >>> display = EffectsDisplay(describe_clusters(iris.data, iris.target)).plot()
    >>> display.columns_[0]
    'petal length (cm)'
    """

    def __init__(self, description: ClusterDescription):
        self.description = description

    def plot(self, *, max_columns: int = 20, ax: Any = None) -> EffectsDisplay:
        """Draw on `ax`, or on a new figure.

        Parameters
        ----------
        max_columns : int, default=20
            Maximum number of columns and levels; those with the largest effects are shown.
        ax : matplotlib Axes, optional
            Axes to draw on. If None, a new figure is created.
        """
        found = self.description
        if len(found.clusters) < 2:
            raise ValueError(
                "description has one cluster, and there is nothing to compare it with. Describe "
                "at least two clusters."
            )
        effect = np.nan_to_num(found.effect, posinf=99.0, neginf=-99.0)
        order = np.argsort(-np.abs(effect).max(axis=0), kind="stable")[:max_columns]
        k, p = len(found.clusters), order.size
        ax = self._set_axes(ax, self._size(max_columns))
        shown = effect[:, order].T
        image = np.clip(shown, -MAX_EFFECT, MAX_EFFECT)
        image = ax.imshow(image, cmap="RdBu_r", vmin=-MAX_EFFECT, vmax=MAX_EFFECT, aspect="auto")
        for (row, column), value in np.ndenumerate(shown):
            text = f"{round(value, 1) + 0.0:+.1f}" if abs(value) < 99 else "no overlap"
            is_real = found.real is not None and found.real[column, order[row]]
            placed = {"ha": "center", "va": "center", "fontsize": "x-small"}
            colour = "white" if abs(value) > 0.62 * MAX_EFFECT else "0.15"
            ax.text(column, row, text + "*" * bool(is_real), color=colour, **placed)
        self.columns_ = [self._feature(j) for j in order]
        names = suggested_names(found)
        small: dict[str, Any] = {"fontsize": "small", "parse_math": False}
        ax.set_yticks(range(p), [shortened(one, 32) for one in self.columns_], **small)
        words = [f"{label}: {shortened(names[label], 40)}" for label in found.clusters]
        ax.set_xticks(range(k), words, rotation=30, ha="right", rotation_mode="anchor", **small)
        note = ", * real" if found.real is not None else ""
        ax.set_title(f"effects: differences from the other clusters{note}", fontsize="medium")
        ax.figure.colorbar(image, ax=ax, label="standard deviations", shrink=0.8)
        return self

    @property
    def size(self) -> tuple[float, float]:
        """Suitable width and height in inches, for at most 20 columns."""
        return self._size(20)

    def _size(self, max_columns: int) -> tuple[float, float]:
        k, p = self.description.effect.shape
        return 3.2 + 0.75 * min(k, 40), 1.6 + 0.3 * min(p, max_columns)

    def _feature(self, j: int) -> str:
        found = self.description
        if found.kinds[j] == "share":
            return f"{found.columns[j]} = {found.levels[j]}"
        return found.columns[j] + (" missing" if found.kinds[j] == "missing" else "")
