"""
Is there any structure?
=======================

A clusterer with ``n_clusters=3`` returns three clusters, even on pure noise. This example learns a
split on one half of the rows and tests it on the other half. Clusters of noise do not pass this
test.
"""

# %%
# Three clusters of noise
# -----------------------
#
# The data are noise in a hundred features, without any groups. k-means finds three clusters. In
# the plane that separates them best (linear discriminants of the labels), they look convincing.
# In the same plane, held-out rows form a single cloud.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from volmar import AutoClusterer
from volmar.evidence import split_test

rng = np.random.default_rng(0)
noise = rng.normal(size=(600, 100))
seen, unseen = noise[:300], noise[300:]
kmeans = KMeans(3, n_init=10, random_state=0).fit(seen)
plane = LinearDiscriminantAnalysis(n_components=2).fit(seen, kmeans.labels_)

fig, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharex=True, sharey=True, layout="constrained")
for ax, rows, title in zip(
    axes, (seen, unseen), ("rows of the fit", "held-out rows"), strict=True
):
    ax.scatter(*plane.transform(rows).T, c=kmeans.predict(rows), cmap="viridis", s=14)
    ax.set(title=title, xlabel="first discriminant")
_ = axes[0].set_ylabel("second discriminant")

# %%
# The test finds no groups
# ------------------------
#
# ``split_test`` learns a border on one half of the rows and counts the rows of the other half at
# the border and beside it. It then swaps the halves, and repeats this with other random halves.
# The histogram shows the distances of held-out rows to the border.


def show(result, title):
    """Plot a histogram of the distances of held-out rows to the border."""
    _, ax = plt.subplots(figsize=(6, 3), layout="constrained")
    ax.hist(result.scores, bins=50, color="tab:blue", alpha=0.7)
    ax.set(
        title=f"{title}: p = {result.p_value:.2g}",
        xlabel="distance of held-out rows to the border",
        ylabel="rows",
    )


nothing = split_test(noise, random_state=0)
print(nothing)
show(nothing, "noise")

# %%
# A small group is found
# ----------------------
#
# 10 % of the rows are shifted by seven standard deviations in one of ten features. The units of
# the features differ by a factor of up to ten thousand.

planted = rng.normal(size=(600, 10))
planted[:60, 3] += 7.0
planted *= np.logspace(-2, 2, 10)
something = split_test(planted, random_state=0)
print(something)
show(something, "a group of 60 among 600")

# %%
# Number of clusters
# ------------------
#
# `AutoClusterer` splits as long as a border is confirmed. The noise of the first section stays a
# single cluster.

print("clusters in noise:", AutoClusterer(random_state=0).fit(noise).n_clusters_)
groups = np.repeat([[0.0, 0.0], [8.0, 0.0], [4.0, 7.0]], 200, axis=0)
groups = groups + rng.normal(size=groups.shape)
model = AutoClusterer(random_state=0).fit(groups)
print("clusters in three groups:", model.n_clusters_)
print(model.tree_)

fig, ax = plt.subplots(figsize=(4.6, 4), layout="constrained")
ax.scatter(*groups.T, c=model.labels_, cmap="viridis", s=14)
ax.set(xlabel="first feature", ylabel="second feature")
plt.show()
