"""
Is there any structure?
=======================

A clusterer that is asked for three clusters returns three, of noise as well. A split that was
learnt on one half of the rows and looked at on the other half is not so obliging.
"""

# %%
# Three clusters of nothing
# -------------------------
#
# Noise in a hundred features, without any groups. k-means finds three clusters, and in the plane
# that tells them apart best (linear discriminants of its own labels) they look convincing.
# Held-out rows, in the same plane, are one cloud.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from volmar import MSPC
from volmar.diagnostics import split_test

rng = np.random.default_rng(0)
noise = rng.normal(size=(600, 100))
seen, unseen = noise[:300], noise[300:]
kmeans = KMeans(3, n_init=10, random_state=0).fit(seen)
plane = LinearDiscriminantAnalysis(n_components=2).fit(seen, kmeans.labels_)

fig, axes = plt.subplots(1, 2, figsize=(8, 3.6), sharex=True, sharey=True, layout="constrained")
for ax, rows, title in zip(
    axes, (seen, unseen), ("rows that k-means has seen", "rows that it has not"), strict=True
):
    ax.scatter(*plane.transform(rows).T, c=kmeans.predict(rows), cmap="viridis", s=14)
    ax.set(title=title, xlabel="first discriminant")
_ = axes[0].set_ylabel("second discriminant")

# %%
# volmar declines
# ---------------
#
# ``split_test`` learns a split on one half, tests the scores of the other half for one mode
# against more, swaps the halves and repeats. The histogram shows the scores of held-out
# rows.


def show(result, title):
    """Draw the held-out scores of a test."""
    _, ax = plt.subplots(figsize=(6, 3), layout="constrained")
    ax.hist(result.scores, bins=50, color="tab:blue", alpha=0.7)
    ax.set(
        title=f"{title}: p = {result.p_value:.2g}",
        xlabel="held-out score / standard deviation",
        ylabel="rows",
    )


nothing = split_test(noise, random_state=0)
print(nothing)
show(nothing, "noise")

# %%
# A small group is found
# ----------------------
#
# One row in ten is moved by five standard deviations, in one of ten features whose units differ
# by a factor of up to ten thousand.

planted = rng.normal(size=(600, 10))
planted[:60, 3] += 5.0
planted *= np.logspace(-2, 2, 10)
something = split_test(planted, random_state=0)
print(something)
show(something, "a group of 60 among 600")

# %%
# How many clusters
# -----------------
#
# ``n_clusters="auto"`` splits as long as there is a reason to. The first block's noise stays
# whole.

print("clusters in noise:", len(np.unique(MSPC("auto", random_state=0).fit_predict(noise))))
groups = np.repeat([[0.0, 0.0], [8.0, 0.0], [4.0, 7.0]], 200, axis=0)
groups = groups + rng.normal(size=groups.shape)
model = MSPC("auto", random_state=0).fit(groups)
print("clusters in three groups:", len(np.unique(model.labels_)))
print(model.tree_)

fig, ax = plt.subplots(figsize=(4.6, 4), layout="constrained")
ax.scatter(*groups.T, c=model.labels_, cmap="viridis", s=14)
ax.set(xlabel="first feature", ylabel="second feature")
plt.show()
