"""
Which of my clusters are real?
==============================

``label_test`` takes labels of any tool, such as k-means, HDBSCAN or Leiden. It tests for gaps
between the given clusters on held-out rows, and reports which clusters to keep and which to merge.
"""

# %%
# Six clusters of three groups
# ----------------------------
#
# The data have three groups, and k-means is run with six clusters.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import make_moons

from volmar.evidence import label_test
from volmar.plots import ClusterDisplay, LabelTestDisplay

rng = np.random.default_rng(0)
centres = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0]])
X = centres[np.arange(600) % 3] + rng.normal(size=(600, 2))
labels = KMeans(6, n_init=10, random_state=0).fit_predict(X)

result = label_test(X, labels, random_state=0)
print(result)

fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
ClusterDisplay.from_labels(X, labels, ax=axes[0], title="six clusters of k-means", legend=False)
ClusterDisplay.from_labels(
    X, result.merged_labels, ax=axes[1], title=f"{result.n_real} are separated", legend=False
)

# %%
# The tree of the joins
# ---------------------
#
# The clusters with the most open border are joined first. A dashed join is not separated: there is
# no gap between its two sides.

LabelTestDisplay(result).plot()

# %%
# Clusters of noise
# -----------------
#
# Noise can be cut into any number of clusters, but there is no gap between them.

noise = rng.normal(size=(600, 10))
pieces = KMeans(4, n_init=10, random_state=0).fit_predict(noise)
nothing = label_test(noise, pieces, random_state=0)
print(nothing)

# %%
# Curved clusters, and rows without one
# -------------------------------------
#
# HDBSCAN finds clusters of any shape, and labels some rows as noise (-1). Rows are counted by
# their distance to the border along the data, whatever its shape. Noise rows keep their label.
# They are counted as well, because they may lie in a gap.

moons, _ = make_moons(600, noise=0.09, random_state=0)
found = HDBSCAN(min_cluster_size=25, copy=True).fit_predict(moons)
curved = label_test(moons, found, random_state=0)
print(curved)

ClusterDisplay.from_labels(moons, curved.merged_labels, title="HDBSCAN")
plt.show()
