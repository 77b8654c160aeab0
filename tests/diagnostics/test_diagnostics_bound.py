"""The error bound: its terms by hand, lemma 18 by enumeration, and when it is vacuous."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom
from sklearn.exceptions import NotFittedError

from volmar import KernelKMeans, SoftLabelMVC
from volmar.datasets import make_two_moons
from volmar.diagnostics import error_bound, stability_report
from volmar.diagnostics.bound import C0, direct_limit
from volmar.graphs import gaussian_similarity, laplacian
from volmar.operators import as_operator
from volmar.volume.descent import minimise_given_labels
from volmar.volume.problem import VolumeProblem


def partitions(n):
    """One sign vector for each of the 2^(n-1) partitions."""
    for rest in itertools.product([1.0, -1.0], repeat=n - 1):
        yield np.array([1.0, *rest])


@pytest.fixture(scope="module")
def moons():
    X, y = make_two_moons(300, random_state=0)
    return X, y, SoftLabelMVC(reg=10.0).fit(X)


@st.composite
def unit_vectors_with_labels(draw):
    n = draw(st.integers(2, 60))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    h = rng.normal(size=n) ** draw(st.sampled_from([0, 1, 3, 9]))
    rows = rng.permutation(n)[: draw(st.integers(1, n - 1))]
    truth = np.where(h >= 0, 1, -1)[rows]
    if draw(st.booleans()):
        truth = rng.choice([-1, 1], rows.size)
    return h / np.linalg.norm(h), rows, truth


@given(unit_vectors_with_labels(), st.floats(1e-6, 1.0))
@settings(max_examples=200, deadline=None)
def test_the_printed_bound_is_always_vacuous(case, delta):
    """A unit h has |h_L|_1 <= sqrt(n'), so the first two terms alone are above n."""
    h, rows, truth = case
    n = h.size
    # A spectrum of huge eigenvalues makes the complexity negligible.
    bound = error_bound(
        Q=np.full(n, 1e12), reg=1.0, eta=0.0, h=h, revealed=rows, labels=truth, delta=delta
    )
    floor = n * (1 - 1 / math.sqrt(rows.size))
    assert bound.printed.empirical >= floor - 1e-9
    assert bound.printed.empirical + bound.printed.sample_size > n
    assert bound.printed.vacuous
    if rows.size > 4:
        assert bound.printed.empirical > n / 2  # without the help of the second term


def test_no_partition_is_further_than_half_the_rows():
    """Definition 3 prints d_H < n/2; an even n attains n/2, from which a bound is vacuous."""
    for n in range(2, 8):
        ones = np.ones(n)
        most = max(min(np.sum(y != ones), np.sum(y == ones)) for y in partitions(n))
        assert most == n // 2


def test_terms_are_those_of_the_theorem(rng):
    n, n_revealed, reg, eta, delta, rho = 40, 15, 0.7, -4.0, 0.1, 0.2
    values = np.sort(rng.uniform(0.1, 2.0, n))
    h = rng.normal(size=n)
    h /= np.linalg.norm(h)
    rows = rng.permutation(n)[:n_revealed]
    truth = rng.choice([-1, 1], n_revealed)
    bound = error_bound(
        Q=rng.permutation(values),
        reg=reg,
        eta=eta,
        h=h,
        revealed=rows,
        labels=truth,
        delta=delta,
        rho=rho,
    )
    assert pytest.approx(math.sqrt(32 * (1 + math.log(4)) / 3)) == C0 == pytest.approx(5.045, 1e-4)
    assert bound.margin.sample_size == pytest.approx(C0 * n / math.sqrt(n_revealed))
    # El-Yaniv and Pechyony's last term, of which JMLR's is the special case n' <= n / 2.
    u = n - n_revealed
    S = n / ((n - 0.5) * (1 - 1 / (2 * u)))
    confidence = u * math.sqrt(S * (1 / u + 1 / n_revealed) / 2 * math.log(1 / delta))
    assert bound.margin.confidence == bound.printed.confidence == pytest.approx(confidence)
    size = min(
        math.sqrt(n),
        math.sqrt(sum(n / (reg * value - eta) ** 2 for value in values)),
        math.sqrt(sum(np.abs(h).sum() / (reg * value - eta) for value in values)),
    )
    complexity = math.sqrt(2 * u / n_revealed) * size
    assert bound.printed.complexity == pytest.approx(complexity)
    assert bound.margin.complexity == pytest.approx(complexity / rho)
    for terms, width in ((bound.printed, 1.0), (bound.margin, rho)):
        losses = [
            sum(min(1, max(0, 1 - s * h[i] * t / width)) for i, t in zip(rows, truth, strict=True))
            for s in (1, -1)
        ]
        assert terms.empirical == pytest.approx(n / n_revealed * min(losses))
        parts = (terms.empirical, terms.sample_size, terms.confidence, terms.complexity)
        assert terms.total == pytest.approx(sum(parts))
        assert terms.vacuous is bool(terms.total >= n // 2)
    assert bound.total == bound.margin.total


def test_each_of_the_three_sizes_can_be_the_smallest():
    given_class = {"reg": 1.0, "eta": 0.0, "rho": 1.0, "n_revealed": 20}
    first = error_bound(Q=np.full(40, 1.0), **given_class)
    assert first.margin.complexity == pytest.approx(math.sqrt(2 * 40))
    second = error_bound(Q=np.full(40, 1e3), mu=6.0, **given_class)
    assert second.margin.complexity == pytest.approx(math.sqrt(2 * 40 * 40 / 1e6))
    one_soft = np.append(np.full(39, 1e9), 0.1)
    third = error_bound(Q=one_soft, mu=0.2, **given_class)
    assert third.margin.complexity == pytest.approx(math.sqrt(2 * 0.2 * 10))


def test_where_it_begins_to_say_something():
    """The best possible case: no loss, no complexity, 1,000 rows."""
    h = np.full(1000, 1 / math.sqrt(1000))
    given_class = {"Q": np.full(1000, 1e12), "reg": 1.0, "eta": 0.0, "h": h}
    few, more = (error_bound(**given_class, n_revealed=m) for m in (80, 200))
    assert 500 < few.total < 1000
    assert few.vacuous
    assert 300 < more.total < 500
    assert not more.vacuous


def test_lemma_18_bounds_the_rademacher_complexity(rng):
    """All 64 minima of a small problem as the class; the expectation over all 3^7 draws."""
    n, n_revealed = 7, 3
    Q = gaussian_similarity(rng.normal(size=(n, 2)), sigma=1.0)
    reg = 0.999 * stability_report(Q).frozen_below
    problem, values = VolumeProblem(as_operator(Q), reg, np.inf), np.linalg.eigvalsh(Q)
    minima = [minimise_given_labels(problem, y, values) for y in partitions(n)]
    H = np.array([one.h for one in minima])
    np.testing.assert_array_equal(np.sign(H), list(partitions(n)))
    eta = max(one.eta for one in minima)
    inverse = np.linalg.inv(reg * Q - eta * np.eye(n))
    mu = max(np.sign(h) @ inverse @ np.sign(h) for h in H)
    p = n_revealed * (n - n_revealed) / n**2
    draws = np.array(list(itertools.product([-1, 0, 1], repeat=n)))
    chance = np.prod(np.where(draws == 0, 1 - 2 * p, p), axis=1)
    exact = chance @ np.abs(draws @ H.T).max(axis=1) * (1 / n_revealed + 1 / (n - n_revealed))
    given_class = {"Q": Q, "reg": reg, "eta": eta, "mu": mu}
    bound = error_bound(**given_class, n_revealed=n_revealed, rho=1.0)
    assert exact <= bound.margin.complexity / (n - n_revealed)
    # Not by orders of magnitude, so that a wrong constant would fail.
    assert exact > 0.5 * bound.margin.complexity / (n - n_revealed)


@pytest.mark.parametrize(("reg", "balance"), [(1.0, 100.0), (1.0, None), (30.0, None)])
def test_a_model_is_represented_as_the_lemma_needs_it(reg, balance):
    """With the balance constraint active, h = t/n + pinv(P(reg Q - eta I)P) a."""
    n = 120
    rng = np.random.default_rng(3)
    X = np.vstack([rng.normal(-2, 1, (84, 2)), rng.normal(2, 1, (36, 2))])
    W = gaussian_similarity(X, sigma="mean/4")
    model = SoftLabelMVC(reg=reg, balance=balance, affinity="precomputed").fit(W)
    result = model.result_
    active = balance is None
    assert (result.balance_multiplier != 0) is active
    Q = laplacian(W) + np.eye(n) / n
    P = np.eye(n) - np.ones((n, n)) / n * active
    A = P @ (reg * Q - result.multiplier * np.eye(n)) @ P
    inverse = np.linalg.pinv(A, rcond=1e-10)
    total = model.h_.sum() * active
    a = A @ model.h_
    np.testing.assert_allclose(total / n + inverse @ a, model.h_, atol=1e-9)
    rest = min(
        np.linalg.norm(a) * np.linalg.norm(inverse), np.sqrt(a @ inverse @ a * np.trace(inverse))
    )
    size = min(math.sqrt(n), abs(total) / math.sqrt(n) + rest)
    bound = error_bound(model, n_revealed=60)
    assert bound.printed.complexity == pytest.approx(math.sqrt(2) * size, rel=1e-6)
    if not active:
        # The case of the paper, in which a is the vector of signs of h.
        np.testing.assert_allclose(a, np.sign(model.h_), atol=1e-7)
        given_arrays = {"reg": reg, "eta": result.multiplier, "h": model.h_, "n_revealed": 60}
        for matrix in (Q, np.linalg.eigvalsh(Q), as_operator(Q)):
            again = error_bound(Q=matrix, **given_arrays)
            assert again.total == pytest.approx(bound.total, rel=1e-6)


def test_the_spectrum_of_many_rows_is_left_alone(monkeypatch, moons):
    model = moons[2]
    most = math.sqrt(2 * 300) / np.abs(model.h_).mean()
    assert error_bound(model, n_revealed=150).margin.complexity < 0.8 * most
    monkeypatch.setattr("volmar.diagnostics.bound.FULL_SPECTRUM", 299)
    assert error_bound(model, n_revealed=150).margin.complexity == pytest.approx(most)


def test_when_the_bound_is_not_vacuous():
    """Two moons, 1,000 rows, half of them revealed: vacuous at the paper's reg only."""
    X, y = make_two_moons(1000, random_state=0)
    rows = np.random.default_rng(0).choice(1000, 500, replace=False)
    paper, large = (
        error_bound(
            SoftLabelMVC(reg=reg, affinity="local_scaling").fit(X), revealed=rows, labels=y[rows]
        )
        for reg in (0.01, 1e4)
    )
    assert paper.vacuous
    assert paper.total > 1500
    assert paper.printed.empirical == pytest.approx(1000 - math.sqrt(1000), abs=1)
    assert not large.vacuous
    assert 300 < large.total < 500
    assert "The bound is vacuous: no two partitions of 1000 rows" in str(paper)
    assert "The bound is not vacuous" in str(large)
    # The direct limit from the labels is a hundred times smaller.
    assert paper.direct == large.direct < 10


def test_a_hundred_labels_never_suffice(moons):
    """c0 n / sqrt(n') alone is n/2 and more up to n' = 101."""
    assert 101 < 4 * C0**2 < 102
    bound = error_bound(moons[2], n_revealed=101)
    assert bound.margin.sample_size >= 150
    assert bound.vacuous
    assert error_bound(moons[2], n_revealed=102).margin.sample_size < 150


def test_without_labels_the_best_case_is_given(moons):
    _, y, model = moons
    rows = np.arange(0, 300, 2)
    known = error_bound(model, revealed=rows, labels=y[rows])
    best = error_bound(model, revealed=rows)
    assert known.labels_known
    assert not best.labels_known
    assert best.margin.empirical <= known.margin.empirical
    wrong = error_bound(model, revealed=rows, labels=np.arange(150) % 2)
    assert wrong.total > known.total
    assert "if every revealed label agrees" in str(best)
    planned = error_bound(model, n_revealed=150)
    assert planned.direct == best.direct
    expected = np.clip(1 - np.abs(model.h_) / planned.margin.rho, 0, 1).mean()
    assert planned.margin.empirical == pytest.approx(300 * expected)


def test_names_of_the_labels_do_not_matter(moons):
    _, y, model = moons
    rows = np.random.default_rng(5).choice(300, 120, replace=False)
    first = error_bound(model, revealed=rows, labels=y[rows])
    names = np.array(["spam", "ham"])[y[rows]]
    assert error_bound(model, revealed=rows.tolist(), labels=names) == first
    assert error_bound(model, revealed=rows, labels=1 - y[rows]) == first
    one_kind = rows[y[rows] == 0]
    assert error_bound(model, revealed=one_kind, labels=y[one_kind]).margin.empirical < 50


@pytest.mark.parametrize(("n", "n_revealed"), [(9, 4), (20, 12), (31, 7), (40, 39)])
@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_the_direct_limit_fails_with_probability_delta_at_most(n, n_revealed, delta):
    limits = [direct_limit(n, n_revealed, wrong, delta) for wrong in range(n_revealed + 1)]
    for errors in range(n + 1):
        seen = np.arange(n_revealed + 1)
        chance = hypergeom.pmf(seen, n, errors, n_revealed)
        failed = min(errors, n - errors) > np.array(limits)
        assert chance[failed].sum() <= delta + 1e-12
    assert limits[0] == limits[-1]
    # One error more would be refuted by a clean sample.
    if limits[0] < n // 2:
        assert hypergeom.cdf(0, n, limits[0] + 1, n_revealed) <= delta / 2 + 1e-12
        assert hypergeom.cdf(0, n, limits[0], n_revealed) >= delta / 2 - 1e-12


H2 = {"Q": [1.0, 2.0, 3.0], "reg": 1.0, "eta": -1.0, "h": [0.6, 0.8, 0.0]}


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({}, "Q, reg and eta are required"),
        ({**H2, "h": None, "n_revealed": 1}, "^h=None"),
        ({**H2, "h": None, "revealed": [0], "labels": [1], "rho": 1.0}, "h=None requires rho"),
        ({**H2}, "^n_revealed .*revealed"),
        ({**H2, "n_revealed": 3}, "^n_revealed .*between 1"),
        ({**H2, "labels": [1, 1]}, "^revealed .*labels"),
        ({**H2, "revealed": [0, 0]}, "^revealed .*distinct"),
        ({**H2, "revealed": [0, 3]}, "^revealed .*distinct"),
        ({**H2, "revealed": [True, False]}, "^revealed .*got bool"),
        ({**H2, "revealed": [0, 1, 2]}, "indices of 1 to 2 rows"),
        ({**H2, "revealed": [0], "n_revealed": 2}, "^n_revealed=2"),
        ({**H2, "revealed": [0, 1], "labels": [1]}, "one label per revealed row"),
        ({**H2, "eta": 1.5, "n_revealed": 1}, r"^eta\b"),
        ({**H2, "h": [3.0, 4.0, 0.0], "n_revealed": 1}, "norm 5. Divide it"),
        ({**H2, "n_revealed": 1, "delta": 0.0}, "delta must be greater than 0"),
        ({**H2, "n_revealed": 1, "rho": 0.0}, "rho must be greater than 0"),
        ({**H2, "Q": [1.0, np.nan, 2.0], "n_revealed": 1}, "Q must be finite, got nan"),
    ],
)
def test_bad_input_of_the_bound(kwargs, match):
    with pytest.raises(ValueError, match=match):
        error_bound(**kwargs)


def test_bad_models(moons):
    X, _, model = moons
    with pytest.raises(TypeError, match="SoftLabelMVC, got KernelKMeans"):
        error_bound(KernelKMeans(random_state=0).fit(X), n_revealed=10)
    with pytest.raises(NotFittedError):
        error_bound(SoftLabelMVC(), n_revealed=10)
    with pytest.raises(ValueError, match="n_clusters=1"):
        error_bound(SoftLabelMVC(n_clusters=1).fit(X), n_revealed=10)
    with pytest.raises(ValueError, match=r"^reg\b"):
        error_bound(model, reg=1.0, h=model.h_, n_revealed=10)
    for unknown in (np.nan, None):
        with pytest.raises(ValueError, match=r"^labels .*got NaN or None"):
            error_bound(model, revealed=np.arange(3), labels=[1.0, unknown, 1.0])
    with pytest.raises(ValueError, match=r"^labels .*got 3"):
        error_bound(model, revealed=[0, 1, 2], labels=[0, 1, 2])


def test_without_h_the_best_h_is_assumed():
    bound = error_bound(Q=np.linspace(0.1, 2, 400), reg=1.0, eta=-20.0, n_revealed=200, rho=0.05)
    assert bound.margin.empirical == 0.0
    assert bound.printed.empirical == pytest.approx(400 - 20)
    assert bound.printed.vacuous
