"""
More than two clusters
======================

Every clusterer has the parameter ``n_clusters``. The volume and the margin family find all
clusters jointly. The separation family and the binary methods split recursively, and keep the
tree.
"""

# %%
# Ten digits, three families
# --------------------------
# No method uses labels, and all parameters have their defaults.

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.metrics import normalized_mutual_info_score

from volmar import CPMMC, MSPC, AutoClusterer, SoftLabelMVC
from volmar.plots import TreeDisplay

X, y = load_digits(return_X_y=True)
X = X / 16.0
for model in (
    KMeans(10, n_init=10, random_state=0),
    SoftLabelMVC(10, random_state=0),
    CPMMC(10, random_state=0),
    MSPC(10, random_state=0),
):
    nmi = normalized_mutual_info_score(y, model.fit(X).labels_)
    print(f"{type(model).__name__:12s} NMI with the digits {nmi:.2f}")

# %%
# The tree of a recursive fit
# ---------------------------
# Each split is evaluated on held-out rows. The signs of the features are those of the right side.

wine = load_wine(as_frame=True)
model = MSPC(4, random_state=0).fit(wine.data)
print(model.tree_)

# %%
_ = TreeDisplay.from_estimator(model)

# %%
# Number of clusters
# ------------------
# `AutoClusterer` splits a part only if the density at the border is clearly below that of both
# sides. Noise stays a single cluster. Of the wines, no border is confirmed. Iris has two clusters,
# one of which contains two species:

samples = {
    "noise": np.random.default_rng(0).normal(size=(500, 10)),
    "wine": wine.data,
    "iris": load_iris().data,
}
for name, rows in samples.items():
    print(f"{name}: {AutoClusterer(random_state=0).fit(rows).n_clusters_}")
