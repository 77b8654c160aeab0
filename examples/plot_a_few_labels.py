"""
A few labels
============

Without labels, a clusterer confuses some handwritten digits with others. The classes of 40 rows
halve this error.
"""

# %%
# Without labels
# --------------
#
# The data are 1,797 handwritten digits. The error is the share of rows in a wrong cluster.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from volmar import SoftLabelMVC
from volmar.metrics import clustering_error

X, y = load_digits(return_X_y=True)
free = clustering_error(y, SoftLabelMVC(10, random_state=0).fit(X).labels_)
print(f"without labels: {free:.3f}")

# %%
# With labels of rows drawn at random
# -----------------------------------
#
# ``fit`` takes the labels as ``y``, with -1 for all other rows. The error is that of the rows
# without a label, the mean of five draws.


def error_with(n_labels, seed):
    """Return the error on the unlabelled rows, with the classes of `n_labels` random rows."""
    rows = np.random.default_rng(seed).choice(y.size, n_labels, replace=False)
    given = np.full(y.size, -1)
    given[rows] = y[rows]
    labels = SoftLabelMVC(10, random_state=0).fit(X, given).labels_
    return clustering_error(y[given == -1], labels[given == -1])


COUNTS = [5, 10, 20, 40]
errors = [free, *(np.mean([error_with(n, seed) for seed in range(5)]) for n in COUNTS)]
for count, error in zip([0, *COUNTS], errors, strict=True):
    print(f"{count:3d} labels: {error:.3f}")

fig, ax = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
ax.plot([0, *COUNTS], errors, "o-")
ax.set(xlabel="labelled rows", ylabel="error on all other rows", ylim=(0, 1.2 * free))
plt.show()
