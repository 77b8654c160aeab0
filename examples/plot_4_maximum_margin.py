"""
The widest margin without labels
================================

Maximum margin clustering finds the labels for which a support vector machine has the widest
margin. This example shows the effect of the penalty C of margin errors, why the descent starts
with a small C, and the use of kernels.
"""

# %%
# Scores in units of the margin
# -----------------------------
#
# The data are handwritten 3s and 8s. A fraction of about 1 / C of the rows is inside the margin,
# between -1 and 1. With a larger C, the method searches for a narrower gap.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from volmar import CPMMC, KernelCPMMC
from volmar.datasets import make_two_circles

digits = load_digits()
pair = (digits.target == 3) | (digits.target == 8)
X = digits.data[pair]

fig, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
for ax, C in zip(axes, (1.2, 2.0, 10.0), strict=True):
    model = CPMMC(C=C, random_state=0).fit(X)
    scores = model.decision_function(X)
    ax.hist(scores, bins=40, color="tab:blue", alpha=0.7)
    for side in (-1, 1):
        ax.axvline(side, color="black", linewidth=0.8, linestyle="--")
    inside = np.mean(np.abs(scores) < 1)
    ax.set(title=f"C = {C:g}: {100 * inside:.0f} % inside", xlabel="score / margin")
axes[0].set_ylabel("rows")

# %%
# Why C increases in steps
# ------------------------
#
# 8s and 9s are clustered from thirty random directions. If the descent starts with C = 10, it
# stops at a local minimum near its start. At C = 1.2 nearly all rows are inside the margin, and
# there are few local minima. If C increases from there in steps, most starts reach nearly the same
# low objective, and even the worst result is lower than nearly all results without steps.

pair = (digits.target == 8) | (digits.target == 9)
X = digits.data[pair]
rng = np.random.default_rng(0)
fig, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
for height, anneal in enumerate([(), "auto"]):
    models = [
        CPMMC(C=10, anneal=anneal, init="random", n_init=1, random_state=seed).fit(X)
        for seed in range(30)
    ]
    found = [model.objective_ for model in models]
    ax.scatter(found, height + 0.15 * rng.uniform(-1, 1, len(found)), alpha=0.6)
ax.set(xlabel="objective J at C = 10 (lower is better)", yticks=[0, 1], ylim=(-0.5, 1.5))
ax.set_yticklabels(["C = 10 only", "in steps"])

# %%
# Kernels, and new rows
# ---------------------
#
# No hyperplane separates two rings, but a hyperplane in the feature space of a kernel does. Its
# scores are defined everywhere.

X, _ = make_two_circles(300, noise=0.05, factor=0.3, random_state=0)
model = KernelCPMMC(random_state=0).fit(X)
side = np.linspace(-1.5, 1.5, 120)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2) * np.abs(X).max()
scores = model.decision_function(grid).reshape(120, 120)

fig, ax = plt.subplots(figsize=(4.6, 4), layout="constrained")
extent = np.array([-1.5, 1.5, -1.5, 1.5]) * np.abs(X).max()
picture = ax.imshow(scores, origin="lower", extent=extent, cmap="RdBu", vmin=-3, vmax=3)
ax.contour(scores, levels=[-1, 0, 1], extent=extent, colors="black", linewidths=[0.7, 1.4, 0.7])
ax.scatter(*X.T, c=model.labels_, cmap="RdBu", edgecolor="white", s=20)
fig.colorbar(picture, label="score / margin")
plt.show()

# %%
# ``model.result_`` has the certificate: for the labels found, no hyperplane has an objective that
# is lower by more than ``gap``.

print(f"objective {model.objective_:.4f}, gap {model.result_.gap:.4f}, {model.status_.value}")
