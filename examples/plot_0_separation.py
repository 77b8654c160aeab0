"""
A split that does not depend on units
=====================================

Two groups differ in three of ten columns, and the columns have very different units. k-means is
dominated by the column with the largest numbers. MSPC finds the direction that separates the
groups, for any units of the columns.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans

from volmar import MSPC
from volmar.metrics import clustering_error, separation_score

rng = np.random.default_rng(0)
truth = rng.random(600) < 0.5
X = rng.standard_normal((600, 10))
X[:, :3] += 3.0 * truth[:, None]
X *= 10.0 ** rng.uniform(-3, 3, 10)

model = MSPC(random_state=0).fit(X)
kmeans = KMeans(2, n_init=10, random_state=0).fit(X)
for name, labels in (("k-means", kmeans.labels_), ("MSPC", model.labels_)):
    error = clustering_error(truth, labels)
    score = separation_score(X, labels, cross_fit=True, random_state=0)
    print(f"{name:8s} error {100 * error:4.1f} %, separation of held-out rows {score:.2f}")

# %%
# The histogram shows the scores along the direction of MSPC. They are positive for cluster 1, in
# units of the distance between the two means. The worst-case probabilities hold for any
# distribution with the same means and variances of the clusters.

scores = model.decision_function(X)
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for group, colour in ((False, "#0072B2"), (True, "#D55E00")):
    ax.hist(scores[truth == group], bins=40, alpha=0.6, color=colour, label=f"truth: {group}")
ax.axvline(0, color="black", linewidth=1)
ax.set(xlabel="decision_function", ylabel="rows")
ax.legend()
print(f"MSP {model.msp_:.2f}, its lower bound {model.msp_lower_bound_:.2f}")
print(f"worst-case probability of each side {model.side_probability_.round(2)}")
