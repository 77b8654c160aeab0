"""Small problems of the margin family solved by cvxpy or by brute force: references for tests."""

import itertools
import warnings

import cvxpy as cp
import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from volmar.metrics import clustering_error


def kernel(make, n, gamma=2.0, center=False):
    K = rbf_kernel(make(n, random_state=0)[0], gamma=gamma)
    if center:
        H = np.eye(n) - 1 / n
        K = H @ K @ H
    return (K + K.T) / 2


def equation_22(K, box, balance=None, *, row_balance=False, eta=None):
    """Eq. 22 with `box` where it prints C; with a variable eta, AISTATS eq. 10 with Q = K."""
    n = len(K)
    M = cp.Variable((n, n), PSD=True)
    mu, nu = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
    t = cp.Variable()
    column = cp.reshape(1 - mu + nu, (n, 1), order="C")
    constraints = [cp.diag(M) == 1]
    if eta is None:
        top, corner = cp.multiply(K, M), t - 2 * box * cp.sum(mu)
    else:
        multiplier = cp.Variable()
        constraints.append(multiplier == eta)
        top = cp.multiply(K, M) - multiplier * np.eye(n)
        corner = t + multiplier - 2 * box * cp.sum(mu)
    corner = cp.reshape(corner, (1, 1), order="C")
    constraints.append(cp.bmat([[top, column], [column.T, corner]]) >> 0)
    if balance is not None and row_balance:
        constraints.append(cp.abs(cp.sum(M, axis=1)) <= balance)
    elif balance is not None:
        constraints.append(cp.sum(M) <= n * balance)
    program = cp.Problem(cp.Minimize(t), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning "may be inaccurate" concerns the last digits
        program.solve(solver=cp.CLARABEL)
    return program.value


def hard_label_value(Q, reg, C):
    """Value and eta of JMLR eq. 13 as printed, by Clarabel."""
    n = len(Q)
    M = cp.Variable((n, n), PSD=True)
    mu, nu = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
    t, eta = cp.Variable(), cp.Variable()
    column = cp.reshape(1 - mu + nu, (n, 1), order="C")
    corner = cp.reshape(t + eta - 2 * C * cp.sum(mu), (1, 1), order="C")
    top = reg * cp.multiply(Q, M) - eta * np.eye(n)
    block = cp.bmat([[top, column], [column.T, corner]])
    program = cp.Problem(cp.Minimize(t), [cp.diag(M) == 1, block >> 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning "may be inaccurate" concerns the last digits
        program.solve(solver=cp.CLARABEL)
    return program.value, float(eta.value)


def l1_value_by_cvxpy(X, y, c):
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    loss = 0.5 * cp.sum_squares(w) + c @ cp.abs(y - X @ w - b)
    problem = cp.Problem(cp.Minimize(loss))
    problem.solve(solver=cp.CLARABEL)
    return problem.value


def clarabel(constraint, n, C):
    """Return gamma and the status; gamma is None if Clarabel fails."""
    g = cp.Variable(n)
    bounds = [g >= 0] if C is None else [g >= 0, g <= C]
    programme = cp.Problem(cp.Maximize(cp.sum(g)), [constraint(g), *bounds])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            programme.solve(solver=cp.CLARABEL)
        except cp.SolverError:
            return None, "failed"
    return g.value, programme.status


def all_labellings(n, limit, weights=1.0):
    """Every labelling with |sum| at most `limit`, one of each pair y, -y."""
    ys = np.array([(1, *tail) for tail in itertools.product((-1, 1), repeat=n - 1)])
    return ys[np.abs((weights * ys).sum(axis=1)) <= limit].astype(float)


def saddle_by_cvxpy(Z, Y, C, weights=1.0):
    """The saddle's value, as a quadratically constrained programme in alpha."""
    alpha, top = cp.Variable(len(Z), nonneg=True), cp.Variable()
    cuts = [cp.sum_squares((Z * y[:, None]).T @ alpha) <= top for y in Y]
    roots = np.sqrt(weights * np.ones(len(Z)))
    goal = cp.Minimize(top + cp.sum_squares(cp.multiply(1.0 / roots, alpha)) / C)
    problem = cp.Problem(goal, [cp.sum(alpha) == 1, *cuts])
    problem.solve(solver=cp.CLARABEL)
    return -0.5 * problem.value


def centred(rng, n, d):
    Z = rng.standard_normal((n, d))
    return Z - Z.mean(axis=0)


def same_fit(one, other, tol=1e-5):
    assert clustering_error(one.labels_, other.labels_) == 0.0
    assert other.objective_ == pytest.approx(one.objective_, rel=tol)


def weighted_rows(rng, n, d, weights):
    Z = rng.standard_normal((n, d))
    return Z - np.average(Z, axis=0, weights=weights)
