"""Most violated cuts of the multivariate losses, against all labellings and all tables."""

import itertools
import math
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import entr
from sklearn.metrics import normalized_mutual_info_score, rand_score

from volmar.margin.engine.multivariate_losses import ErrorLoss, FBetaLoss, NMILoss, RandLoss
from volmar.margin.engine.problem import HingeLoss
from volmar.metrics import pair_f_measure

LOSSES = [ErrorLoss(), RandLoss(), FBetaLoss(), FBetaLoss(0.3), FBetaLoss(4.0), NMILoss()]
TABLES = [FBetaLoss(), FBetaLoss(0.3), NMILoss()]


def all_flips(n):
    return np.array(list(itertools.product([False, True], repeat=n)))


def deltas(loss, y, flips):
    """Losses of the sets in the rows of `flips`, pair by pair and from the joint frequencies."""
    n = y.size
    changed = np.where(flips, -y, y)
    if isinstance(loss, ErrorLoss):
        return 2 * flips.mean(axis=1)
    if isinstance(loss, NMILoss):
        joint = np.stack(
            [((y == a) & (changed == b)).mean(axis=1) for a in (1, -1) for b in (1, -1)]
        )
        h_joint = entr(joint).sum(axis=0)
        h_y = entr((y == 1).mean()) + entr((y == -1).mean())
        h_changed = entr((changed == 1).mean(axis=1)) + entr((changed == -1).mean(axis=1))
        norm = np.sqrt(h_y * h_changed)
        nmi = np.divide(
            h_y + h_changed - h_joint, norm, out=np.zeros_like(norm), where=norm > 1e-9
        )
        nmi[(h_y < 1e-9) & (h_changed < 1e-9)] = 1.0
        return 1 - nmi
    i, j = np.triu_indices(n, 1)
    true, new = y[i] == y[j], changed[:, i] == changed[:, j]
    fp, fn, tp = ((new & ~true).sum(1), (~new & true).sum(1), (new & true).sum(1))
    if isinstance(loss, RandLoss):
        return (fp + fn) / max(i.size, 1)
    top = loss.beta**2 * fn + fp
    bottom = (1 + loss.beta**2) * tp + top
    return np.divide(top, bottom, out=np.zeros(len(flips)), where=bottom > 0)


def slacks(loss, y, f, rho, flips):
    return rho * deltas(loss, y, flips) - 2 / y.size * flips @ (y * f)


def assert_most_violated(loss, y, f, rho, flips, tol=1e-12):
    cut = loss.violated(y, f, rho)
    assert cut.chosen.shape == y.shape
    assert cut.chosen.dtype == bool
    scale = tol * max(1.0, rho, np.abs(f).max())
    assert cut.m == pytest.approx(deltas(loss, y, cut.chosen[None])[0], abs=1e-12)
    assert cut.xi == pytest.approx(slacks(loss, y, f, rho, cut.chosen[None])[0], abs=scale)
    assert cut.xi == pytest.approx(slacks(loss, y, f, rho, flips).max(), abs=scale)
    assert cut.xi >= 0


def case(rng, n):
    """Labels, scores and a margin: with and without ties, wrong signs and single labels."""
    y = np.where(rng.random(n) < rng.choice([0.1, 0.5, 0.8]), 1.0, -1.0)
    f = rng.choice([0.1, 1.0, 10.0]) * (rng.normal(size=n) + rng.choice([0.0, 0.5, 2.0]) * y)
    if rng.random() < 0.3:
        f = np.round(2 * f) / 2
    return y, f, rng.choice([0.0, 0.01, 0.3, 1.0, 5.0, 1e6])


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_no_labelling_is_violated_more(loss):
    rng = np.random.default_rng(0)
    flips = all_flips(9)
    for _ in range(120):
        assert_most_violated(loss, *case(rng, 9), flips)


@settings(max_examples=150, deadline=None)
@given(
    loss=st.sampled_from(LOSSES),
    rows=st.lists(
        st.tuples(st.sampled_from([1.0, -1.0]), st.integers(-6, 6)), min_size=1, max_size=7
    ),
    rho=st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0, 1e9]),
)
def test_no_labelling_of_any_few_rows_is_violated_more(loss, rows, rho):
    y, f = np.array(rows, dtype=float).T
    assert_most_violated(loss, y, f, rho, all_flips(y.size))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize(
    ("y", "f"),
    [
        ([1], [1.0]),
        ([1, -1], [0.5, -0.5]),
        ([1, -1], [-0.5, 0.5]),
        ([1, 1], [1.0, 2.0]),
        ([-1, -1], [1.0, -2.0]),
        ([1] * 6, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        ([-1] * 6, [0.1, 0.2, 0.3, -0.4, -0.5, -0.6]),
        ([1, 1, 1, -1, -1], [0.0] * 5),
        ([1, 1, 1, -1, -1], [1.0] * 5),
        ([1, 1, 1, -1, -1, -1, -1], [0.5, 0.5, 0.5, -0.5, -0.5, -0.5, -0.5]),
    ],
)
def test_degenerate_labels_and_scores(loss, y, f):
    y, f = np.array(y, dtype=float), np.array(f)
    for rho in (0.0, 0.2, 1.0, 1e12):
        assert_most_violated(loss, y, f, rho, all_flips(y.size))
    if (y * f >= 0).all():
        assert loss.violated(y, f, 0.0).xi == 0.0
    check_first(loss, y, f)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("n_plus", [0, 2, 4, 9])
def test_losses_are_those_of_scikit_learn_and_the_metrics(loss, n_plus):
    """Scores constructed for a set of flips give this set, with its loss."""
    y = np.where(np.arange(9) < n_plus, 1, -1)
    for chosen in all_flips(9)[::7]:
        cut = loss.violated(y, np.where(chosen, -9.0, 9.0) * y, 1.0)
        np.testing.assert_array_equal(cut.chosen, chosen)
        changed = np.where(chosen, -y, y)
        if isinstance(loss, ErrorLoss):
            expected = 2 * np.mean(changed != y)
        elif isinstance(loss, RandLoss):
            expected = 1 - rand_score(y, changed)
        elif isinstance(loss, FBetaLoss):
            expected = 1 - pair_f_measure(y, changed, beta=loss.beta)
        else:
            expected = 1 - normalized_mutual_info_score(y, changed, average_method="geometric")
        assert cut.m == pytest.approx(expected, abs=1e-12)
        assert loss.value(y, chosen) == pytest.approx(expected, abs=1e-12)


def test_recall_is_what_a_large_beta_weighs():
    y = np.array([1, 1, 1, 1, -1, -1, -1, -1])
    join, split = np.array([False] * 4 + [True] * 4), np.array([True, True] + [False] * 6)

    def loss_of(beta, chosen):
        return FBetaLoss(beta).value(y, chosen)

    assert loss_of(3.0, join) < loss_of(1 / 3, join)
    assert loss_of(3.0, split) > loss_of(3.0, join)
    assert loss_of(1 / 3, split) < loss_of(1 / 3, join)


def check_first(loss, y, f):
    cut = loss.first(y, f)
    flips = all_flips(y.size)
    losses, costs = deltas(loss, y, flips), 2 / y.size * flips @ (y * f)
    assert cut.m == pytest.approx(losses.max(), abs=1e-12)
    assert cut.m == pytest.approx(deltas(loss, y, cut.chosen[None])[0], abs=1e-12)
    cheapest = costs[losses > losses.max() - 1e-10].min()
    assert 2 / y.size * cut.chosen @ (y * f) == pytest.approx(cheapest, abs=1e-12)
    assert math.isnan(cut.xi)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("n", [8, 9])
def test_the_first_cut_has_the_largest_loss_and_of_those_the_most_slack(loss, n):
    rng = np.random.default_rng(1)
    for _ in range(40):
        y, f, _ = case(rng, n)
        check_first(loss, y, f)


def scan(loss, y, f, rho):
    """The largest slack over all contingency tables, one row of them at a time."""
    n = y.size
    plus, minus = np.sort((y * f)[y > 0]), np.sort((y * f)[y < 0])
    a, b = (np.append(0.0, np.cumsum(s)) * 2 / n for s in (plus, minus))
    q = np.arange(minus.size + 1)
    best = -np.inf
    for p in range(plus.size + 1):
        cells = np.stack([np.full(q.size, plus.size - p), q, np.full(q.size, p), minus.size - q])
        new = np.stack([cells[0] + cells[1], cells[2] + cells[3]])
        if isinstance(loss, NMILoss):
            h_y = entr(np.array([plus.size, minus.size]) / n).sum()
            h_new = entr(new / n).sum(axis=0)
            mutual = h_y + h_new - entr(cells / n).sum(axis=0)
            norm = np.sqrt(h_y * h_new)
            delta = 1 - np.divide(mutual, norm, out=np.zeros(q.size), where=norm > 0)
        else:
            pairs = (cells * (cells - 1) // 2).sum(axis=0)
            found = (new * (new - 1) // 2).sum(axis=0)
            true = sum(k * (k - 1) // 2 for k in (plus.size, minus.size))
            delta = 1 - (1 + loss.beta**2) * pairs / (loss.beta**2 * true + found)
        best = max(best, (rho * delta - a[p] - b).max())
    return best


@pytest.mark.parametrize("loss", TABLES, ids=str)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.5])
def test_no_contingency_table_of_some_hundred_rows_is_violated_more(loss, share):
    rng = np.random.default_rng(2)
    n = 401
    y = np.where(np.arange(n) < share * n, 1.0, -1.0)
    for kind, rho in itertools.product(["apart", "mixed", "equal", "tailed"], [0.05, 0.7, 3, 1e4]):
        f = {
            "apart": y * rng.uniform(0.5, 2, n),
            "mixed": rng.normal(size=n) + 0.3 * y,
            "equal": 0.4 * y,
            "tailed": rng.standard_t(2, n) + y,
        }[kind]
        cut = loss.violated(y, f, rho)
        assert cut.xi == pytest.approx(scan(loss, y, f, rho), abs=1e-12 * max(rho, 1))
        cost = 2 / n * (cut.chosen @ (y * f))
        assert cut.xi == pytest.approx(rho * cut.m - cost, abs=1e-12 * max(rho, 1))


def margins_of(kind, rng, y):
    return {
        "apart": lambda: rng.uniform(0.5, 2, y.size),
        "mixed": lambda: rng.normal(size=y.size) + 0.3,
        "wrong": lambda: -rng.uniform(0, 1, y.size),
        "lopsided": lambda: rng.exponential(size=y.size) * np.where(y > 0, 0.1, 3.0) - 0.2,
        "ties": lambda: rng.integers(-1, 4, y.size) / 2,
        "equal": lambda: np.full(y.size, 0.4),
        "zero": lambda: np.zeros(y.size),
    }[kind]()


KINDS = ["apart", "mixed", "wrong", "lopsided", "ties", "equal", "zero"]
RHOS = [1e-3, 0.05, 0.7, 3.0, 1e3]


@pytest.mark.parametrize("loss", TABLES, ids=str)
@pytest.mark.parametrize("n_plus", [1, 2, 7, 23, 30, 44, 59])
def test_no_better_table_is_left_out(loss, n_plus):
    rng = np.random.default_rng(n_plus)
    y = rng.permutation(np.where(np.arange(60) < n_plus, 1.0, -1.0))
    for kind, rho in itertools.product(KINDS, RHOS):
        f = y * margins_of(kind, rng, y)
        xi = loss.violated(y, f, rho).xi
        assert xi == pytest.approx(scan(loss, y, f, rho), abs=1e-12 * max(rho, 1)), (kind, rho)


@pytest.mark.parametrize("loss", TABLES, ids=str)
@pytest.mark.parametrize("n_plus", [1, 7, 30, 31, 59])
def test_the_first_cut_is_the_cheapest_of_all_tables_of_the_largest_loss(loss, n_plus):
    rng = np.random.default_rng(n_plus)
    y = np.where(np.arange(60) < n_plus, 1.0, -1.0)
    p, q = np.divmod(np.arange((n_plus + 1) * (61 - n_plus)), 61 - n_plus)
    i = np.arange(60)
    flips = np.where(y > 0, i < p[:, None], i - n_plus < q[:, None])
    losses = np.array([loss.value(y, chosen) for chosen in flips])
    for kind in KINDS:
        f = y * margins_of(kind, rng, y)
        f[:n_plus], f[n_plus:] = np.sort(f[:n_plus]), -np.sort(-f[n_plus:])
        cut = loss.first(y, f)
        costs = 2 / 60 * flips @ (y * f)
        assert cut.m == pytest.approx(losses.max(), abs=1e-12)
        cheapest = costs[losses > losses.max() - 1e-11].min()
        assert 2 / 60 * cut.chosen @ (y * f) == pytest.approx(cheapest, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_many_rows_in_single_precision_need_no_table_of_pairs(loss):
    rng = np.random.default_rng(3)
    n = 20_000
    y = np.where(rng.random(n) < 0.35, 1, -1).astype(np.int8)
    f = (rng.normal(size=n) + y).astype(np.float32)
    tracemalloc.start()
    cut, first = loss.violated(y, f, 1.0), loss.first(y, f)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400 * n
    exact = loss.violated(y.astype(float), f.astype(float), 1.0)
    assert cut.xi == pytest.approx(exact.xi, abs=1e-12)
    margins = y * f.astype(float)
    assert cut.xi == pytest.approx(cut.m - 2 / n * margins[cut.chosen].sum(), abs=1e-12)
    assert cut.xi >= first.m - 2 / n * margins[first.chosen].sum()
    for label in (1, -1):
        inside, outside = (margins[(y == label) & part] for part in (cut.chosen, ~cut.chosen))
        assert inside.max() <= outside.min()


@settings(max_examples=60, deadline=None)
@given(loss=st.sampled_from(LOSSES), seed=st.integers(0, 2**32 - 1))
def test_neither_names_nor_order_nor_units_matter(loss, seed):
    rng = np.random.default_rng(seed)
    y, f, rho = case(rng, int(rng.integers(2, 40)))
    cut = loss.violated(y, f, rho)
    close = {"rel": 1e-9, "abs": 1e-12 * (1 + rho)}
    order = rng.permutation(y.size)
    assert loss.violated(y[order], f[order], rho).xi == pytest.approx(cut.xi, **close)
    assert loss.violated(-y, -f, rho).xi == pytest.approx(cut.xi, **close)
    assert loss.violated(y, 8 * f, 8 * rho).xi == pytest.approx(8 * cut.xi, **close)
    assert loss.first(y[order], f[order]).m == pytest.approx(loss.first(y, f).m)
    # The slack is a maximum of functions that are linear in rho with coefficients m.
    above = loss.violated(y, f, rho + 0.5)
    assert cut.xi + 0.5 * cut.m <= above.xi + close["abs"]
    assert above.xi - 0.5 * above.m <= cut.xi + close["abs"]


def test_equal_margins_are_flipped_to_the_exact_number():
    y = np.array([1.0] * 6 + [-1.0] * 4)
    f = 0.5 * y
    cut = RandLoss().violated(y, f, 2.0)
    # 2 e (10 - e) / 45 - e / 10 is largest at e = 4 (0.0667 more than at 3, 0.0556 than at 5).
    assert cut.chosen.sum() == 4
    assert cut.xi == pytest.approx(2 * 24 / 45 - 0.4)
    np.testing.assert_array_equal(cut.chosen, [True] * 4 + [False] * 6)


def test_the_error_loss_is_the_hinge_twice():
    rng = np.random.default_rng(4)
    y, f = np.where(rng.random(50) < 0.5, 1.0, -1.0), rng.normal(size=50)
    hinge, error = HingeLoss().violated(y, f, 0.8), ErrorLoss().violated(y, f, 0.8)
    np.testing.assert_array_equal(hinge.chosen, error.chosen)
    assert (error.m, error.xi) == pytest.approx((2 * hinge.m, 2 * hinge.xi))
    assert ErrorLoss().scale == 2 * HingeLoss().scale


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_losses_leave_their_input_alone_and_are_values(loss):
    rng = np.random.default_rng(5)
    y, f, _ = case(rng, 30)
    before = y.copy(), f.copy()
    loss.violated(y, f, 1.0)
    loss.first(y, f)
    np.testing.assert_array_equal((y, f), before)
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert loss.scale == 2.0


@pytest.mark.parametrize("beta", [0.0, -1.0, math.inf, math.nan])
def test_bad_beta_is_named(beta):
    with pytest.raises(ValueError, match=rf"beta must be a positive finite number, got {beta}"):
        FBetaLoss(beta)
