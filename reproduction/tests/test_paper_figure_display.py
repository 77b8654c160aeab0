"""Plots of reproduced figures: they show the results, in every view."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from reproduction import (
    Axis,
    Experiment,
    Line,
    Panel,
    PaperFigureDisplay,
    Point,
    Reproduction,
    Side,
    Spread,
    Summary,
    Verdict,
    has_picture,
)

pytestmark = pytest.mark.usefixtures("figures")

SETS = [f"set-{i}" for i in range(15)]
METHODS = ["KM", "NSC", "MVC-SL", "MVC-HL", "LGMMC", "GMMC", "MMC"]
COLUMN_NAMES = ("hindsight", "label-free")


def make(view, *, sets=(), methods=(), points=(), lines=(), figure="1", **more):
    """A reproduction of an experiment of that view."""
    experiment = Experiment(
        name="small",
        title="A small figure",
        paper="a-paper",
        metric="clustering_error",
        view=view,
        figure=figure,
        datasets={name: {} for name in sets} if not isinstance(sets, dict) else sets,
        methods={name: {} for name in methods},
        **more,
    )
    verdict = Verdict("shown", "", "Nothing is compared.")
    return Reproduction(experiment, tuple(lines), tuple(points), (), verdict, 1, 1, 0, (), 1.0, {})


def level(dataset, method, column, x, quantity):
    """Return a value that is unique for its data set, method, column, place and quantity."""
    base = 10 * METHODS.index(method) + SETS.index(dataset) + (x or 0.0) / 1000
    return (base + (column == "label-free") / 2) / (100 if quantity == "seconds" else 1) + 0.1


def curves(n_sets, n_methods, xs, *, columns=("hindsight", "label-free"), without=(), **more):
    """Return curves with two samplings per point, or one if `single`."""
    single = more.pop("single", False)
    points = [
        Point(d, m, c, x, q, Spread.of([v] if single else [0.9 * v, 1.1 * v]))
        for d in SETS[:n_sets]
        for m in METHODS[:n_methods]
        for c in columns
        for x in xs
        for q in ("value", "seconds")
        if (d, m) not in without
        for v in [level(d, m, c, x, q)]
    ]
    more.setdefault("axis", Axis("size", tuple(xs), "sample size (rows)"))
    return make("curves", sets=SETS[:n_sets], methods=METHODS[:n_methods], points=points, **more)


def legend_of(display):
    (legend,) = display.figure_.legends
    return [text.get_text() for text in legend.texts]


def inside_and_apart(display):
    """Return whether everything is on the page and no panels overlap."""
    figure = display.figure_
    figure.draw_without_rendering()
    boxes = [ax.get_tightbbox() for ax in display.axes_]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    page = figure.bbox.padded(1.0)
    on_page = all(page.contains(*box.min) and page.contains(*box.max) for box in boxes)
    overlaps = [
        (i, j) for i, a in enumerate(boxes) for j, b in enumerate(boxes[:i]) if a.overlaps(b)
    ]
    return on_page and not overlaps


# ------------------------------------------------------------------------------------ curves


def test_curves_are_at_their_means_with_standard_errors():
    reproduction = curves(2, 3, (50.0, 100.0, 200.0))
    display = PaperFigureDisplay(reproduction).plot()
    assert [ax.get_title() for ax in display.axes_] == ["set-0", "set-1"]
    assert [ax.get_ylabel() for ax in display.axes_] == ["clustering error (%)", ""]
    assert {ax.get_xlabel() for ax in display.axes_} == {"sample size (rows)"}
    assert legend_of(display) == ["KM", "NSC", "MVC-SL", "paper's protocol", "label-free"]
    for ax, dataset in zip(display.axes_, SETS, strict=False):
        assert len(ax.containers) == 3 * 2
        drawn = iter(ax.containers)
        for method in METHODS[:3]:
            for column, dashes in (("hindsight", "-"), ("label-free", "--")):
                line, _, (bars,) = next(drawn).lines
                values = [level(dataset, method, column, x, "value") for x in (50, 100, 200)]
                np.testing.assert_allclose(line.get_ydata(orig=False), values)
                # Of 0.9 v and 1.1 v the standard error is 0.1 v, a bar twice that.
                lengths = [np.ptp(segment[:, 1]) for segment in bars.get_segments()]
                np.testing.assert_allclose(lengths, 0.2 * np.array(values))
                assert line.get_linestyle() == dashes
                assert (line.get_markerfacecolor() == "white") == (column == "label-free")
        assert list(ax.get_xticks()) == [200.0, 100.0, 50.0]


def test_curves_stand_side_by_side_near_their_places():
    display = PaperFigureDisplay(curves(1, 7, (50.0, 100.0, 200.0))).plot()
    at = np.array([c.lines[0].get_xdata() for c in display.axes_[0].containers], dtype=float)
    assert np.all(np.diff(at, axis=0) > 0)
    assert np.all(np.abs(at - [50.0, 100.0, 200.0]) < 25.0 / 2)
    display = PaperFigureDisplay(
        curves(1, 2, (0.01, 0.1, 1.0), axis=Axis("parameter", (), "precision η", "tol", log=True))
    ).plot()
    (ax,) = display.axes_
    assert ax.get_xscale() == "log"
    at = np.array([c.lines[0].get_xdata() for c in ax.containers], dtype=float)
    assert np.all(np.diff(at, axis=0) > 0)
    assert np.all(np.abs(np.log10(at) - [-2.0, -1.0, 0.0]) < 0.25 / 2)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "0.1", "0.01"]


def test_every_quantity_has_a_block_of_panels():
    measure = Point("set-1", "KM", "hindsight", 50.0, "cuts", Spread.of([3.0]))
    whole = curves(5, 2, (50.0, 100.0), quantities=("value", "seconds", "cuts"), log=("seconds",))
    panels = (Panel("cutting planes", ("cuts",)),)
    reproduction = replace(
        whole,
        points=(*whole.points, measure),
        experiment=replace(whole.experiment, panels=panels),
    )
    display = PaperFigureDisplay(reproduction).plot()
    # The measure is there on one data set only.
    assert [ax.get_title() for ax in display.axes_] == [*SETS[:5], *SETS[:5], "set-1"]
    assert [ax.get_yscale() for ax in display.axes_] == ["linear"] * 5 + ["log"] * 5 + ["linear"]
    # Five panels are three and two, and only what is below nothing else names the axis.
    starts = ["clustering error (%)", "", "", "clustering error (%)", ""]
    assert [ax.get_ylabel() for ax in display.axes_[:5]] == starts
    assert [bool(ax.get_xlabel()) for ax in display.axes_[:5]] == [False, False, True, True, True]
    assert display.axes_[5].get_ylabel() == "seconds a fit"
    assert display.axes_[10].get_ylabel() == "cutting planes"
    assert inside_and_apart(display)


@pytest.mark.parametrize(
    ("n_sets", "shape"), [(1, (1, 1)), (4, (1, 4)), (5, (2, 3)), (15, (4, 4))]
)
def test_panels_are_wrapped_after_four(n_sets, shape):
    display = PaperFigureDisplay(curves(n_sets, 7, (50.0, 300.0))).plot()
    grid = display.axes_[0].get_subplotspec().get_gridspec()
    assert grid.get_geometry() == shape
    assert len(display.axes_) == n_sets
    np.testing.assert_allclose(display.figure_.get_size_inches(), display.size)
    assert inside_and_apart(display)
    colours = [container.lines[0].get_color() for container in display.axes_[0].containers[::2]]
    shapes = {container.lines[0].get_marker() for container in display.axes_[0].containers}
    assert len(set(colours)) == len(shapes) == 7


def test_a_method_keeps_its_colour_where_others_are_missing():
    reproduction = curves(2, 3, (50.0, 100.0), without=[("set-0", "KM"), ("set-1", "NSC")])
    first, second = PaperFigureDisplay(reproduction).plot().axes_
    assert len(first.containers) == len(second.containers) == 2 * 2
    last = [ax.containers[2].lines[0] for ax in (first, second)]
    assert last[0].get_ydata()[0] == pytest.approx(level("set-0", "MVC-SL", "hindsight", 50, ""))
    assert last[0].get_color() == last[1].get_color() != first.containers[0].lines[0].get_color()
    # A data set without results has no panel.
    nothing = curves(2, 1, (50.0,), without=[("set-0", "KM")])
    assert [ax.get_title() for ax in PaperFigureDisplay(nothing).plot().axes_] == ["set-1"]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("n_methods", [1, 7])
def test_a_single_value_of_a_single_sampling_is_drawn(log, n_methods):
    axis = Axis("parameter", (0.01,), "precision η", "tol", log=log)
    reproduction = curves(
        *(2, n_methods, (0.01,)),
        columns=("hindsight",),
        single=True,
        axis=axis,
        quantities=("value", "seconds"),
        log=("value", "seconds"),
    )
    display = PaperFigureDisplay(reproduction).plot()
    assert inside_and_apart(display)
    for ax in display.axes_:
        assert len(ax.containers) == n_methods
        assert ax.get_xscale() == "linear"
        assert [text.get_text() for text in ax.get_xticklabels()] == ["0.01"]
        assert ax.get_yscale() == ("log" if n_methods > 1 else "linear")
    assert legend_of(display) == [*METHODS[:n_methods], "paper's protocol"]


def test_without_an_axis_there_are_no_ticks():
    display = PaperFigureDisplay(curves(1, 3, (None,), axis=Axis(log=True))).plot()
    assert display.axes_[0].get_xscale() == "linear"
    assert list(display.axes_[0].get_xticks()) == []


def test_ticks_do_not_outgrow_the_room_that_the_layout_gave_them():
    # With ticks as many as the height allows, those of the second panel reach into the first.
    levels = {
        "set-0": [10.0, 16.2, 15.3, 17.0, 22.1, 26.9],
        "set-1": [13.288, 13.664, 15.575, 18.841, 23.999, 26.794],
    }
    slots = [(method, column) for method in METHODS[:3] for column in COLUMN_NAMES]
    points = [
        Point(name, method, column, None, "value", Spread(value, 0.8, value, None, 8))
        for name, values in levels.items()
        for (method, column), value in zip(slots, values, strict=True)
    ]
    reproduction = make("curves", sets=SETS[:2], methods=METHODS[:3], points=points)
    assert inside_and_apart(PaperFigureDisplay(reproduction).plot())


def test_crowded_places_are_thinned_and_the_last_stays():
    xs = (10.0, 20.0, 30.0, 100.0, 1000.0, 4000.0, 10000.0)
    display = PaperFigureDisplay(curves(1, 1, xs)).plot()
    ticks = list(display.axes_[0].get_xticks())
    assert ticks[0] == 10000.0
    assert set(ticks) <= set(xs)
    assert np.all(-np.diff(ticks) > 9990 / 7)


# --------------------------------------------------------------------- measures and times


def measures(columns):
    points = [
        Point(d, m, c, size, m, Spread.of([value + i, value + 3 * i + 1.0, value + 9.0]))
        for i, d in enumerate(SETS[:2])
        for value, m in enumerate(("iterations", "v2", "h*"))
        for c in columns
        for size in (50.0, 100.0)
    ]
    other = Point("set-0", "MVC-SL", columns[0], 50.0, "seconds", Spread.of([1.0]))
    panels = (Panel("iterations", ("iterations",)), Panel("error (%)", ("v2", "h*"), True))
    names = {"iterations": "n_iter_", "v2": "v2", "h*": "h"}
    common = {"sets": SETS[:2], "methods": METHODS[2:3], "measures": names, "panels": panels}
    return make("measures", points=[*points, other], **common)


def test_measures_have_the_look_of_their_display():
    display = PaperFigureDisplay(measures(["hindsight"])).plot()
    assert [ax.get_title() for ax in display.axes_] == ["(a)", "(b) set-0", "(b) set-1"]
    means, medians = display.axes_[0].containers[:2]
    np.testing.assert_allclose(means.lines[0].get_ydata(orig=False), [10.0 / 3] * 2)
    np.testing.assert_allclose(medians.lines[0].get_ydata(orig=False), [1.0] * 2)
    both = PaperFigureDisplay(measures(["hindsight", "label-free"])).plot()
    assert len(both.axes_) == 2 * len(display.axes_)
    assert both.size == (display.size[0], 2 * display.size[1])
    titles = [block.get_suptitle() for block in both.figure_.subfigs]
    assert titles == ["paper's protocol", "label-free"]


def line_of(dataset, method, *, hindsight=math.nan, label_free=math.nan, paper=None):
    sides = [Side(seconds=seconds) for seconds in (hindsight, label_free)]
    return Line(dataset, method, Summary(paper, None, 0), *sides, "not printed")


def times(n_sets, n_methods, *, paper=False, **more):
    lines = [
        line_of(
            d,
            m,
            hindsight=10.0 ** (j - 3) * (i + 1),
            label_free=2 * 10.0 ** (j - 3) * (i + 1),
            paper=100.0 if paper and j == 1 else None,
        )
        for i, d in enumerate(SETS[:n_sets])
        for j, m in enumerate(METHODS[:n_methods])
    ]
    return make("times", sets=SETS[:n_sets], methods=METHODS[:n_methods], lines=lines, **more)


def test_times_stand_in_the_band_of_their_data_set():
    display = PaperFigureDisplay(times(3, 2, paper=True)).plot()
    (ax,) = display.axes_
    assert (ax.get_xscale(), ax.get_xlabel()) == ("log", "seconds a fit")
    assert [text.get_text() for text in ax.get_yticklabels()] == SETS[:3]
    assert legend_of(display) == ["KM", "NSC", "paper's protocol", "label-free", "printed"]
    dots = [(*line.get_xdata(), *line.get_ydata(), line.get_marker()) for line in ax.lines]
    for band in range(3):
        inside = [dot for dot in dots if abs(dot[1] - band) < 0.5]
        seconds = [x for x, _, marker in inside if marker != "|"]
        wanted = [c * m * (band + 1) for m in (0.001, 0.01) for c in (1, 2)]
        np.testing.assert_allclose(seconds, wanted)
        assert [x for x, _, marker in inside if marker == "|"] == [100.0]
        # Methods one below the other, label-free beside hindsight.
        heights = [y for _, y, marker in inside if marker != "|"]
        assert heights == sorted(heights)
    assert len(dots) == 3 * 5


def test_times_that_are_missing_are_left_out():
    lines = [
        line_of("set-0", "KM", hindsight=0.5),
        line_of("set-0", "NSC"),
        line_of("set-1", "SVM", paper=3.0),
    ]
    reproduction = make("times", sets=SETS[:2], methods=METHODS[:2], lines=lines)
    display = PaperFigureDisplay(reproduction).plot()
    assert [list(line.get_xdata()) for line in display.axes_[0].lines] == [[0.5]]
    assert legend_of(display) == ["KM", "paper's protocol"]
    assert inside_and_apart(display)


# ------------------------------------------------------------------- correlation and data


def correlation(sizes, column="hindsight", printed=72.0):
    rng = np.random.default_rng(0)
    groups = {f"group {n}": tuple(f"pair-{n}-{i}" for i in range(n)) for n in sizes}
    points, lines = [], []
    for group, names in groups.items():
        pairs = rng.uniform(40, 100, size=(len(names), 2))
        points += [
            Point(name, series, column, None, "value", Spread.of([value]))
            for name, pair in zip(names, pairs, strict=True)
            for series, value in zip(("accuracy", "msp"), pair, strict=True)
        ]
        value = 100 * np.corrcoef(pairs.T)[0, 1] if len(names) > 2 else None
        sides = [Side(Summary(value if c == column else None, None, 0)) for c in COLUMN_NAMES]
        lines.append(Line(group, "correlation", Summary(printed, None, 0), *sides, "reproduced"))
        # The first line of a group is the one that was picked.
        other = [Side(Summary(-50.0, None, 0)), Side()]
        lines.append(Line(group, "at reg = 9", Summary(printed, None, 0), *other, "reproduced"))
    sets = [name for names in groups.values() for name in names]
    return make("correlation", sets=sets, points=points, lines=lines, groups=groups)


@pytest.mark.parametrize("column", COLUMN_NAMES)
def test_correlations_have_bars_circles_and_their_scatter(column):
    reproduction = correlation((3, 8), column)
    display = PaperFigureDisplay(reproduction).plot()
    values = {(p.dataset, p.series): p.spread.mean for p in reproduction.points}
    pairs = zip(display.axes_[::2], display.axes_[1::2], strict=True)
    groups = reproduction.experiment.groups.items()
    for (above, below), (group, names) in zip(pairs, groups, strict=True):
        accuracy = [values[name, "accuracy"] for name in names]
        msp = [values[name, "msp"] for name in names]
        assert [bar.get_height() for bar in above.patches] == accuracy
        assert list(above.lines[0].get_ydata()) == msp
        assert list(below.lines[0].get_xdata()) == msp
        assert list(below.lines[0].get_ydata()) == accuracy
        assert [text.get_text() for text in above.get_xticklabels()] == list(names)
        r = np.corrcoef(accuracy, msp)[0, 1]
        assert above.get_title() == f"{group}\ncorrelation {r:.2f} (paper: 0.72)"
        assert below.get_position().y1 < above.get_position().y0
    assert legend_of(display) == ["accuracy", "MSP"]
    assert inside_and_apart(display)


def test_many_data_sets_are_named_as_long_as_there_is_room():
    display = PaperFigureDisplay(correlation((45,), printed=None)).plot()
    above = display.axes_[0]
    assert inside_and_apart(display)
    names = [text.get_window_extent() for text in above.get_xticklabels()]
    assert len(names) == 45
    assert not any(a.overlaps(b) for a, b in pairwise(names))
    assert "paper" not in above.get_title()
    crowded = PaperFigureDisplay(correlation((90, 2))).plot().axes_
    assert list(crowded[0].get_xticks()) == []
    assert crowded[0].get_xlabel() == "90 data sets"
    assert len(crowded[0].patches) == 90
    assert crowded[2].get_title() == "group 2\ncorrelation unknown"


def test_data_sets_are_coloured_by_class():
    sets = {"two-gaussians": {}, "two-moons": {}, "two-circles": {"load": {"n_samples": 60}}}
    display = PaperFigureDisplay(make("data", sets=sets)).plot()
    assert [ax.get_title() for ax in display.axes_] == list(sets)
    assert [ax.name for ax in display.axes_] == ["3d", "rectilinear", "rectilinear"]
    assert legend_of(display) == ["class 1", "class 2"]
    assert sum(len(part.get_offsets()) for part in display.axes_[2].collections) == 60
    for ax in display.axes_:
        assert len(ax.collections) == 2
        assert ax.get_ylabel() == "feature 1"


# ------------------------------------------------------------------------------- has_picture


def test_there_is_a_picture_where_something_ran():
    assert has_picture(curves(1, 1, (50.0,)))
    assert has_picture(measures(["label-free"]))
    assert has_picture(times(1, 1))
    assert has_picture(correlation((3,)))
    assert has_picture(make("data", sets=["two-moons"]))
    nan = Point("set-0", "KM", "hindsight", 1.0, "value", Spread(math.nan, None, 0.0, None, 1))
    for reproduction in (
        make("table", sets=SETS, methods=METHODS, lines=[line_of("set-0", "KM", hindsight=1.0)]),
        times(1, 1, figure="", table="3"),
        make("times", sets=SETS, methods=METHODS, lines=[line_of("set-0", "KM")]),
        make("curves", sets=SETS, methods=METHODS),
        make("curves", sets=SETS, methods=METHODS, points=[nan]),
        make("measures", sets=SETS, methods=METHODS),
        make("correlation", groups={"a": ("set-0",)}),
        make("data"),
    ):
        assert not has_picture(reproduction)
        view = reproduction.experiment.view
        with pytest.raises(ValueError, match=rf"'small' \(view '{view}'\) has nothing to draw; "):
            PaperFigureDisplay(reproduction).plot()


def test_it_is_drawn_on_the_figure_that_is_given():
    from matplotlib.figure import Figure

    display = PaperFigureDisplay(curves(2, 2, (50.0, 100.0)))
    figure = Figure(figsize=display.size, layout="constrained")
    assert display.plot(figure=figure) is display
    assert display.figure_ is figure
    assert figure.axes == display.axes_
