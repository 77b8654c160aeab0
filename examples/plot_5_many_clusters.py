"""
More than two clusters
======================

Every clusterer takes ``n_clusters``. The volume and the margin family look for all clusters at
once, the separation family and the methods that are binary by nature split again and again, and
keep the tree.
"""

# %%
# Ten digits, three families
# --------------------------
# Nobody sees a label here, and every method has its defaults.

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.metrics import normalized_mutual_info_score

from volmar import CPMMC, MSPC, SoftLabelMVC
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
# Each split is judged on held-out rows; the signs are those of the right side.

wine = load_wine(as_frame=True)
model = MSPC(4, random_state=0).fit(wine.data)
print(model.tree_)

# %%
_ = TreeDisplay.from_estimator(model)

# %%
# How many?
# ---------
# ``n_clusters="auto"`` splits a part only where half of its rows show more than one hump along
# the hyperplane that the other half has found. Noise stays whole, and so does wine, whose three
# kinds overlap along every such hyperplane; irises fall into two, of which one holds two kinds:

samples = {
    "noise": np.random.default_rng(0).normal(size=(500, 10)),
    "wine": wine.data,
    "iris": load_iris().data,
}
for name, rows in samples.items():
    print(f"{name}: {MSPC('auto', random_state=0).fit(rows).tree_.n_leaves}")
