"""
Which of my clusters are real?
==============================

Labels come from any tool: k-means, HDBSCAN, Leiden, a colleague. ``label_test`` looks for the gaps
between the given clusters on held-out rows, and says which clusters to keep and which to merge.
"""

# %%
# Six clusters of three groups
# ----------------------------
#
# k-means was asked for six clusters where there are three groups.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import make_moons

from volmar.diagnostics import label_test
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
# The closest clusters are joined first. Dashed joins are not separated: no gap was found between
# the two sides on held-out rows.

LabelTestDisplay(result).plot()

# %%
# Clusters of noise
# -----------------
#
# Noise can be cut into any number of clusters, and none of the cuts is a gap.

noise = rng.normal(size=(600, 10))
pieces = KMeans(4, n_init=10, random_state=0).fit_predict(noise)
nothing = label_test(noise, pieces, random_state=0)
print(nothing)

# %%
# Curved clusters, and rows without one
# -------------------------------------
#
# HDBSCAN finds clusters of any shape and leaves rows out (label -1). No hyperplane separates two
# moons, so that the gap is looked for along walks across the border. Rows without a cluster keep
# their label; in the test they count, because they may lie in a gap.

moons, _ = make_moons(600, noise=0.09, random_state=0)
found = HDBSCAN(min_cluster_size=25, copy=True).fit_predict(moons)
curved = label_test(moons, found, random_state=0)
print(curved)

ClusterDisplay.from_labels(moons, curved.merged_labels, title="HDBSCAN")
plt.show()
