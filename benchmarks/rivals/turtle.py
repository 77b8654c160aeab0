r"""TURTLE (Gadetsky, Jiang and Brbic, ICML 2024): labels that a linear classifier learns fast.

Written from the formulas of the paper, in NumPy. Labels of a row with embeddings z_v in views v:

    tau(x) = mean over v of softmax(theta_v z_v(x) + b_v),

where the rows of theta_v are weight-normalised (a length and a direction each). Classifiers w_v
start at zero (a cold start) and take ten Adam steps on the cross-entropy with the targets tau. The
outer loss is

    sum over v of CE(tau, softmax(w_v z_v)) - gamma * H(mean of tau over the batch),

with gamma = 10. Its gradient with respect to theta holds w fixed (first order) and goes through
tau. Columns are centred and divided by one common number, so that their mean variance is one.

The paper takes some thousands of outer steps on batches of 10,000 rows on a GPU. Here there are
1,000 steps on batches of at most 2,000 rows. Step sizes are larger for this reason: 0.01 for theta
and 0.1 for the classifier, with which ten steps from zero leave the region where all labels are
equally likely. It was chosen with knowledge of the classes: 0.1 is better than 0.001 and 0.01 on
digits and newsgroups, and better than 0.01 on MNIST and isolet (one seed each), an advantage that
no other method of the benchmark has. On newsgroups 0.3 is better still; it was not tried on the
other sets.
"""

import numpy as np
from scipy.special import softmax

NAME = "TURTLE (1,000 steps)"
GAMMA, INNER_STEPS, OUTER_STEPS, MOST_BATCH = 10.0, 10, 1000, 2000
INNER_RATE, OUTER_RATE = 0.1, 0.01
# Keeps logarithms finite in float32.
TINY = 1e-12


def available() -> bool:
    return True


def fit_predict(X, n_clusters, seed):
    return labels_of_views([X], n_clusters, seed)


def labels_of_views(views, n_clusters, seed, *, n_steps=OUTER_STEPS):
    """Return labels from one or more embeddings of the same rows."""
    rng = np.random.default_rng(seed)
    views = [with_intercept(evenly_scaled(view)) for view in views]
    n = len(views[0])
    theta = [_start(view.shape[1], n_clusters, rng) for view in views]
    adam = Adam([array for pair in theta for array in pair], OUTER_RATE)
    for _ in range(n_steps):
        rows = rng.choice(n, MOST_BATCH, replace=False) if n > MOST_BATCH else slice(None)
        batch = [view[rows] for view in views]
        targets = soft_labels(theta, batch)[0]
        inner = [learnt_classifier(z, targets) for z in batch]
        adam.step([array for pair in outer_loss(theta, inner, batch)[1] for array in pair])
    return soft_labels(theta, views)[0].argmax(axis=1)


class Adam:
    """Adam's steps with its usual decays; changes the arrays in place."""

    def __init__(self, arrays, rate, decays=(0.9, 0.999)):
        self.arrays, self.rate, self.decays, self.n_steps = arrays, rate, decays, 0
        self.means = [np.zeros_like(array) for array in arrays]
        self.squares = [np.zeros_like(array) for array in arrays]

    def step(self, gradients):
        """Move every array against its gradient."""
        self.n_steps += 1
        first, second = self.decays
        rate = self.rate / (1 - first**self.n_steps)
        for i, gradient in enumerate(gradients):
            self.means[i] += (1 - first) * (gradient - self.means[i])
            self.squares[i] += (1 - second) * (gradient**2 - self.squares[i])
            roots = np.sqrt(self.squares[i] / (1 - second**self.n_steps)) + 1e-8
            self.arrays[i] -= rate * self.means[i] / roots


def evenly_scaled(X):
    """Return centred rows whose columns have a mean variance of one."""
    X = np.asarray(X, dtype=np.float32) - np.mean(X, axis=0, dtype=np.float64).astype(np.float32)
    return X / np.sqrt(max(np.mean(X**2, dtype=np.float64), TINY)).astype(np.float32)


def with_intercept(X):
    return np.column_stack([X, np.ones(len(X), dtype=X.dtype)])


def soft_labels(theta, views):
    """Return tau and the softmax of each view, whose mean is tau."""
    each = [softmax(z @ weights(pair).T, axis=1) for pair, z in zip(theta, views, strict=True)]
    return np.mean(each, axis=0), each


def weights(pair):
    """Return rows of the given lengths and directions; the last column is the intercept."""
    lengths, directions = pair
    slopes = directions[:, :-1]
    slopes = slopes * (lengths / np.linalg.norm(slopes, axis=1))[:, None]
    return np.column_stack([slopes, directions[:, -1]])


def learnt_classifier(z, targets, *, n_steps=INNER_STEPS, rate=INNER_RATE):
    """Return the classifier (k, d) after a few steps from zero on the cross-entropy."""
    w = np.zeros((targets.shape[1], z.shape[1]), dtype=z.dtype)
    adam = Adam([w], rate)
    for _ in range(n_steps):
        adam.step([(softmax(z @ w.T, axis=1) - targets).T @ z / len(z)])
    return w


def outer_loss(theta, inner, views, gamma=GAMMA):
    """Return the outer loss at fixed classifiers, and its gradient in the shape of `theta`."""
    tau, each = soft_labels(theta, views)
    n = len(tau)
    scores = [z @ w.T for w, z in zip(inner, views, strict=True)]
    # Minus the logarithm of each label's probability, summed over the views.
    costs = sum(np.logaddexp.reduce(one, axis=1, keepdims=True) - one for one in scores)
    share = np.maximum(tau.mean(axis=0), TINY)
    loss = (tau * costs).sum() / n + gamma * (share * np.log(share)).sum()
    by_tau = (costs + gamma * (np.log(share) + 1.0)) / n / len(views)
    gradients = []
    for pair, s, z in zip(theta, each, views, strict=True):
        by_weight = (s * (by_tau - (s * by_tau).sum(axis=1, keepdims=True))).T @ z
        gradients.append(_by_length_and_direction(pair, by_weight))
    return loss, gradients


def _by_length_and_direction(pair, by_weight):
    lengths, directions = pair
    norms = np.linalg.norm(directions[:, :-1], axis=1)[:, None]
    unit = directions[:, :-1] / norms
    along = (by_weight[:, :-1] * unit).sum(axis=1)
    across = (by_weight[:, :-1] - along[:, None] * unit) * lengths[:, None] / norms
    return along, np.column_stack([across, by_weight[:, -1]])


def _start(n_columns, n_clusters, rng):
    """Return lengths and directions of random rows whose intercept, the last column, is zero."""
    directions = rng.normal(size=(n_clusters, n_columns)) / np.sqrt(n_columns - 1)
    directions[:, -1] = 0.0
    lengths = np.linalg.norm(directions, axis=1)
    return lengths.astype(np.float32), directions.astype(np.float32)
