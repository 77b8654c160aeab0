"""The number of clusters: level, power, exact k, ARI and time of methods that find it themselves.

No method uses labels or the number of groups, and all methods get the same rows. Two groups in one
column and tables of measurements are standardised, images are given as their first ten principal
components, and all other data are in the units in which they were drawn. Settings are defaults,
except for the maximum number of clusters of a rival and the minimum cluster size of HDBSCAN, 2 %
of the rows. Methods of volmar get more draws than the rivals (see the table of draws). A call that
raises an error, aborts or takes longer than the time limit has *failed*: the cell counts it, and
the summary counts it as wrong. HDBSCAN without clusters counts as one cluster, and its noise as a
separate group in the ARI. Without --full the draws are not those of the committed table, so that
they can be used during development.
"""

import numpy as np

from benchmarks import number_data as data
from benchmarks.number_contest import (
    ABSENT,
    CURVED,
    FIT,
    LARGE,
    LIMIT_SECONDS,
    LINEAR,
    METHODS,
    OURS,
    RIVALS,
    Draws,
    measured,
    timed,
)
from benchmarks.number_data import CASES
from benchmarks.rivals import dip_means, isosplit, mixture_bic
from benchmarks.table import Table, Target

SEED, SEED_WHILE_DEVELOPING = "the committed table", "development"
ALPHA = 0.05
FULL = {
    "level": Draws(200, 200, 5),
    "power": Draws(20, 2, 2),
    "blobs": Draws(3, 1, 1),
    "equal distances": Draws(20, 2, 1),
    "tutorial": Draws(60, 10, 3),
    "bent": Draws(4, 40, 3),
    "real": Draws(1, 1, 1),
}
QUICK = {
    "level": Draws(12, 12, 2),
    "power": Draws(4, 2, 1),
    "blobs": Draws(1, 1, 1),
    "equal distances": Draws(3, 1, 1),
    "tutorial": Draws(10, 5, 2),
    "bent": Draws(2, 10, 1),
    "real": Draws(1, 1, 1),
}
QUICK_NUMBERS = (1, 2, 4, 7, 10)


def run(*, full: bool) -> Table:
    draws, seed = (FULL, SEED) if full else (QUICK, SEED_WHILE_DEVELOPING)
    return tables(measured(draws, seed, CASES if full else quick_cases()), draws, timed(seed))


def quick_cases():
    """Return all cases but the blobs with a number that is not in QUICK_NUMBERS."""
    kept = {
        data.blobs_name(k, d, sizes)
        for k in QUICK_NUMBERS
        for d in data.DIMENSIONS
        for sizes in data.SIZES
    }
    return [case for case in CASES if case.topic != "blobs" or case.name in kept]


# ------------------------------------------------------------------ rates


def share(cases, method, hit):
    """Return the mean over cases of the share of draws for which `hit` is true; NaN if not run."""
    rates = [np.mean([hit(one) for one in case[method]]) for case in cases if method in case]
    return float(np.mean(rates)) if rates else float("nan")


def alone(one):
    return one.k == 1


def exact(one):
    return one.k == one.n_groups


def several(one):
    return one.k > 1


def ari(one):
    return one.ari


def _of(results, topic, *names):
    """Return the cases of a topic, all or those with these names; an absent topic has none."""
    return [by for name, by in results.get(topic, {}).items() if not names or name in names]


def failures(results, method):
    """Return the number of draws that failed, and the number of draws."""
    every = [
        one for cases in results.values() for by in cases.values() for one in by.get(method, ())
    ]
    return sum(one.failed for one in every), len(every)


def overall(results, method):
    """Return the mean share of one cluster on noise, two groups found, and exact k of blobs."""
    return np.mean(
        [
            share(_of(results, "level"), method, alone),
            share(_of(results, "power"), method, several),
            share(_of(results, "blobs"), method, exact),
        ]
    )


def level_limit(n_draws):
    """Return the nominal level plus two binomial standard errors."""
    return ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / n_draws)


# ------------------------------------------------------------------ tables


def tables(results, draws, times) -> Table:
    methods = [m for m in METHODS if any(m in by for c in results.values() for by in c.values())]
    table = _summary(results, methods)
    table.notes += [_targets(results, times).render(), ""]
    for part in (
        _draws(results, draws),
        _level(results, methods),
        _power(results, methods),
        _blobs(results, methods),
        _blobs_by_number(results, methods),
        _equal_distances(results, methods),
        _bent(results, methods),
        _real(results, methods),
        _time(times, methods),
    ):
        table.notes += [part.render(), ""]
    if ABSENT:
        table.notes.append(f"Not installed: {', '.join(ABSENT)}.")
    return table


def _summary(results, methods):
    columns = (
        ("one cluster on noise", "level", alone),
        ("two groups seen", "power", several),
        ("exact k, blobs", "blobs", exact),
    )
    more = (
        ("ARI, blobs", "blobs", ari),
        ("exact k, two groups", "power", exact),
        ("exact k, equal distances", "equal distances", exact),
        ("exact k, tutorial", "tutorial", exact),
        ("exact k, bent", "bent", exact),
        ("ARI, bent", "bent", ari),
        ("ARI, real sets", "real", ari),
    )
    table = Table(
        ("method", *(c[0] for c in columns), "mean of the three", *(c[0] for c in more), "failed")
    )
    for method in sorted(methods, key=lambda m: -np.nan_to_num(overall(results, m))):
        failed, n = failures(results, method)
        if failed == n:
            table.add(method, *["-"] * (len(columns) + len(more) + 1), f"{failed} of {n}")
            continue
        first, rest = (
            [_number(share(_of(results, topic), method, hit)) for _, topic, hit in part]
            for part in (columns, more)
        )
        table.add(method, *first, _number(overall(results, method)), *rest, f"{failed} of {n}")
    table.notes += [
        "Summary, the best mean first. Every case has the same weight; failed draws are wrong.",
        "A method that always splits finds every two groups: compare its level and its exact k.",
        _standing(results, methods),
        "",
    ]
    return table


def _standing(results, methods):
    means = {m: overall(results, m) for m in methods}
    rivals = [m for m in methods if m in RIVALS and not np.isnan(means[m])]
    if not rivals or np.isnan(means.get(LINEAR, np.nan)):
        return ""
    best = max(rivals, key=means.get)
    return (
        f"{LINEAR} has a mean of {means[LINEAR]:.3f}, the best rival, {best}, {means[best]:.3f}."
    )


def _number(value):
    return "" if np.isnan(value) else f"{value:.2f}"


def _cell(runs, *hits, limit=None):
    """Return the means over the draws without failures and the number of failures, as text."""
    ended = [one for one in runs if not one.failed]
    if not ended:
        return "failed" if runs else ""
    values = [np.mean([hit(one) for one in ended]) for hit in hits]
    text = " / ".join(f"{value:.2f}" for value in values)
    if limit is not None and values[0] > limit:
        text = f"**{text}**"
    n_failed = len(runs) - len(ended)
    return f"{text} ({n_failed} failed)" if n_failed else text


def _rows_of_cases(results, topic, methods, first, *hits, rows=None, limits=None):
    """Return a table with one row per case or group of cases and one column per method."""
    table = Table((first, *methods))
    rows = {name: (name,) for name in results.get(topic, {})} if rows is None else rows
    for label, names in rows.items():
        runs = {
            m: [one for by in _of(results, topic, *names) for one in by.get(m, ())]
            for m in methods
        }
        if any(runs.values()):
            cells = (_cell(runs[m], *hits, limit=limits and limits[m]) for m in methods)
            table.add(label, *cells)
    return table


def _draws(results, draws):
    table = Table(("draws of each case", "cases", LINEAR, CURVED, "each rival"))
    for topic, cases in results.items():
        table.add(topic, len(cases), *draws[topic])
    table.notes.append(
        f"Our methods get {data.TARGET_FACTOR} times as many draws of the cases of power with a "
        f"target. A call may take {LIMIT_SECONDS:g} s; one of isosplit6, which can run without "
        f"end on columns of few values, {isosplit.LIMIT_SECONDS:g} s. KMeans, the mixtures and "
        f"the gap statistic look at up to {mixture_bic.MOST_CLUSTERS} clusters (KMeans at 2 or "
        f"more), the other rivals from ClustPy stop splitting after {dip_means.MOST_CLUSTERS}."
    )
    return table


def _level(results, methods):
    limits = {
        m: level_limit(max((len(by.get(m, ())) for by in _of(results, "level")), default=1) or 1)
        for m in methods
    }
    table = _rows_of_cases(results, "level", methods, "one group", several, limits=limits)
    values = ", ".join(f"{limits[m]:.3f} for {m}" for m in OURS if m in limits)
    table.notes.append(
        f"Level: share of draws with more than one cluster, n = {data.N_ROWS}, 10 columns where "
        f"no other number is given. Bold: above {ALPHA} plus two binomial standard errors of the "
        f"draws ({values})."
    )
    return table


def _power(results, methods):
    table = _rows_of_cases(results, "power", methods, "two groups", several)
    table.notes.append(
        f"Power: share of draws with more than one cluster, n = {data.N_ROWS}. Distance of the "
        "groups in standard deviations of a group, share of the smaller one, number of columns, "
        "one of which separates the groups. All columns are standardised."
    )
    return table


def _blobs(results, methods):
    rows = {
        f"d = {d}, {sizes}": tuple(data.blobs_name(k, d, sizes) for k in data.NUMBERS)
        for d in data.DIMENSIONS
        for sizes in data.SIZES
    }
    table = _rows_of_cases(
        results, "blobs", methods, "blobs", exact, ari, rows={**rows, "all": ()}
    )
    table.notes.append(
        f"Blobs: exact k / mean ARI. {data.N_BLOBS:,} rows, k = {data.NUMBERS[0]} to "
        f"{data.NUMBERS[-1]}, unit variance. Centres are uniform in a box, drawn until all pairs "
        f"are {data.MINIMUM:g} sd apart; the root mean square of the distance of two points of "
        f"the box is {data.USUAL:g} sd in every dimension. Geometric: each group has "
        f"{data.RATIO:g} times the rows of the previous one, or more where the smallest would "
        f"have less than {data.SMALLEST:.0%} of the rows."
    )
    return table


def _blobs_by_number(results, methods):
    rows = {
        k: tuple(data.blobs_name(k, d, sizes) for d in data.DIMENSIONS for sizes in data.SIZES)
        for k in data.NUMBERS
    }
    table = _rows_of_cases(results, "blobs", methods, "k", exact, rows=rows)
    table.notes.append("The same blobs by their number: exact k.")
    return table


def _equal_distances(results, methods):
    table = _rows_of_cases(results, "equal distances", methods, "groups", exact)
    for row in _rows_of_cases(results, "tutorial", methods, "groups", exact).rows:
        table.add(*row)
    table.notes.append(
        f"Exact k. First rows: k equal groups, every pair at the same distance, d = "
        f"{data.D_EQUAL}, {data.N_EQUAL:,} rows. Last row: make_blobs of scikit-learn with "
        f"{data.TUTORIAL_ROWS:,} rows, {data.TUTORIAL_CENTRES} centres in two dimensions and a "
        f"standard deviation of {data.TUTORIAL_STD}; seeds for which two centres are less than "
        f"{data.MINIMUM:g} standard deviations apart are left out."
    )
    return table


def _bent(results, methods):
    table = _rows_of_cases(results, "bent", methods, "bent groups", exact, ari)
    table.notes.append(
        f"Bent groups: exact k / mean ARI, n = {data.N_ROWS} where no other number is given."
    )
    return table


def _real(results, methods):
    table = Table(("data set", "classes", *methods))
    for name, by_method in results.get("real", {}).items():
        classes = next(iter(by_method.values()))[0].n_groups
        table.add(name, classes, *(_number_and_ari(by_method.get(m, ())) for m in methods))
    table.notes.append(
        f"Real sets: mean number of clusters / mean ARI. Random subsets of {data.N_REAL:,} rows "
        "of larger sets; images as principal components. Classes need not be clusters."
    )
    return table


def _number_and_ari(runs):
    ended = [one for one in runs if not one.failed]
    if not ended:
        return "failed" if runs else ""
    text = f"{np.mean([one.k for one in ended]):.3g} / {np.mean([one.ari for one in ended]):.2f}"
    n_failed = len(runs) - len(ended)
    return f"{text} ({n_failed} failed)" if n_failed else text


# ------------------------------------------------------------------ time and targets


def _time(times, methods):
    table = Table(("seconds, 1,000 x 10", *methods))
    for name, timings in times.small.items():
        cells = (
            "failed" if timings[m].value.failed else f"{timings[m].median:.2f}" for m in methods
        )
        table.add(name, *cells)
    for name, timings in times.large.items():
        own, fit = timings[LINEAR], timings[FIT]
        table.notes.append(
            f"{LARGE[0]:,} x {LARGE[1]}, {name}: {LINEAR} {own.median:.2f} s ({own.spread}), "
            f"{FIT} {fit.median:.2f} s ({fit.spread}), {own.median / fit.median:.1f} fits."
        )
    table.notes.append("isosplit6 is run in a separate process, and its time includes the start.")
    return table


def targets(results, times):
    """Return the targets with measured values; NaN if a method failed in every draw."""

    def rate(topic, method, hit, *names):
        everywhere = [one for by in _of(results, topic) for one in by.get(method, ())]
        if all(one.failed for one in everywhere):
            return float("nan")
        return share(_of(results, topic, *names), method, hit)

    def level(method):
        rates = {name: 1 - rate("level", method, alone, name) for name in results.get("level", ())}
        name = max(rates, key=lambda name: np.nan_to_num(rates[name]), default="")
        n = max((len(by.get(method, ())) for by in _of(results, "level")), default=0)
        words = f"level, worst case ({name})"
        return Target(words, method, rates.get(name, np.nan), level_limit(max(n, 1)), at_most=True)

    def power(case, wanted):
        name = data.power_name(*case)
        return Target(f"power: {name}", LINEAR, rate("power", LINEAR, several, name), wanted)

    def bent(name, wanted):
        return Target(f"power: {name}", CURVED, rate("bent", CURVED, several, name), wanted)

    def apart(k, distance, wanted):
        name = data.distances_name(k, distance)
        value = rate("equal distances", LINEAR, exact, name)
        return Target(f"exact k, equal distances: {name}", LINEAR, value, wanted)

    plane = [data.blobs_name(k, 2, sizes) for k in data.NUMBERS for sizes in data.SIZES]
    rivals = [overall(results, m) for m in RIVALS]
    best = max((mean for mean in rivals if not np.isnan(mean)), default=np.nan)
    return [
        *(level(method) for method in OURS),
        *(power(case, wanted) for case, wanted in data.POWER_TARGETS.items()),
        bent("moons, noise .15", 0.80),
        bent("circles, noise .05", 0.95),
        bent("circles, noise .1", 0.95),
        Target("exact k, blobs", LINEAR, rate("blobs", LINEAR, exact), 0.93),
        Target("exact k, blobs, d = 2", LINEAR, rate("blobs", LINEAR, exact, *plane), 0.90),
        Target("mean ARI, blobs", LINEAR, rate("blobs", LINEAR, ari), 0.99),
        *(
            apart(k, distance, wanted)
            for distance, wanted in ((4, 0.9), (5, 0.98))
            for k in (3, 5, 8)
        ),
        Target("exact k, tutorial blobs", LINEAR, rate("tutorial", LINEAR, exact), 1.0),
        Target(
            "mean of level, power and k, against the best rival",
            LINEAR,
            overall(results, LINEAR),
            best,
        ),
        *(
            Target(
                f"seconds, 1,000 x 10, {name}", LINEAR, timings[LINEAR].median, 1.0, at_most=True
            )
            for name, timings in times.small.items()
        ),
        *(
            Target(
                f"fits with k given, {LARGE[0]:,} x {LARGE[1]}, {name}",
                LINEAR,
                timings[LINEAR].median / timings[FIT].median,
                3.0,
                at_most=True,
            )
            for name, timings in times.large.items()
        ),
    ]


def _targets(results, times):
    table = Table(("target", "method", "measured", "wanted", "met"))
    for target in targets(results, times):
        table.add(target.words, target.method, *target.cells)
    table.notes.append(
        "Targets of the project. Power is the share of draws with more than one cluster."
    )
    return table
