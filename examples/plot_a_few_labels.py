"""
A few labels
============

Without labels, a clusterer confuses some handwritten digits with others. The classes of a few rows
reduce this error. `volmar.diagnostics.suggest_labels` suggests rows with an uncertain cluster.
"""

# %%
# Without labels
# --------------
#
# The data are 1,797 handwritten digits. The error is the share of rows in a wrong cluster.

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from volmar import SoftLabelMVC
from volmar.diagnostics import suggest_labels
from volmar.metrics import clustering_error

X, y = load_digits(return_X_y=True)
model = SoftLabelMVC(10, random_state=0)
free = clustering_error(y, model.fit(X).labels_)
print(f"without labels: {free:.3f}")

# %%
# Rows worth a label
# ------------------
#
# The suggested rows are near a border between two clusters, in different regions. Clusterings of
# random halves of the rows disagree on them. Some of these digits are hard to read for people,
# too.

first = suggest_labels(model, X, 5, random_state=0)
fig, axes = plt.subplots(1, 5, figsize=(7, 1.8), layout="constrained")
for ax, row in zip(axes, first, strict=True):
    ax.imshow(X[row].reshape(8, 8), cmap="gray_r")
    ax.set(title=f"a {y[row]}", xticks=[], yticks=[])

# %%
# Label, fit, repeat
# ------------------
#
# ``fit`` takes the labels as ``y``, with -1 for all other rows. After each fit, further rows are
# suggested and labelled. For comparison, the same number of rows is drawn at random (mean of five
# draws).


def errors_by(choose):
    """Return the error on the unlabelled rows after each round of labels."""
    given = np.full(y.size, -1)
    model = SoftLabelMVC(10, random_state=0).fit(X)
    errors = [free]
    for before, count in pairwise(COUNTS):
        rows = choose(model, given, count - before)
        given[rows] = y[rows]
        model.fit(X, given)
        unknown = given == -1
        errors.append(clustering_error(y[unknown], model.labels_[unknown]))
    return errors


def at_random(seed):
    """Return a rule that draws unlabelled rows at random."""
    rng = np.random.default_rng(seed)
    return lambda _, given, n: rng.choice(np.flatnonzero(given == -1), n, replace=False)


COUNTS = [0, 5, 10, 20, 40]
suggested = errors_by(lambda model, given, n: suggest_labels(model, X, n, y=given, random_state=0))
drawn = np.mean([errors_by(at_random(seed)) for seed in range(5)], axis=0)
for count, one, other in zip(COUNTS, suggested, drawn, strict=True):
    print(f"{count:3d} labels: {one:.3f} suggested, {other:.3f} at random")

fig, ax = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
ax.plot(COUNTS, suggested, "o-", label="suggested rows")
ax.plot(COUNTS, drawn, "s--", label="rows at random")
ax.set(xlabel="labelled rows", ylabel="error on all other rows", ylim=(0, 1.2 * free))
ax.legend()
plt.show()
