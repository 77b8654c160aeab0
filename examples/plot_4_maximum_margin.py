"""
The widest margin without labels
================================

Maximum margin clustering looks for the hyperplane that a support vector machine would be most
pleased with, over all labels. This page shows what the price C of margin errors does, why the
descent starts at a small one, and what kernels are for.
"""

# %%
# Scores in units of the margin
# -----------------------------
#
# Handwritten 3s and 8s. About one row in C ends inside the margin, between -1 and 1: the larger
# C, the thinner the gap that is looked for.

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
# Why the price rises in steps
# ----------------------------
#
# 8s and 9s from thirty random directions. At C = 10 at once the descent sticks at whatever is
# near. From C = 1.2, where nearly all rows are inside the margin and little can stop it, it ends
# at the same low objective from most of them, and never as high as the others do.

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
ax.set_yticklabels(["at once", "in steps"])

# %%
# Kernels, and new rows
# ---------------------
#
# A hyperplane cannot part two rings; one in the feature space of a kernel can, and its scores are
# defined everywhere.

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
# ``model.result_`` carries the certificate: with the labels found no hyperplane has an objective
# that is lower by more than ``gap``.

print(f"objective {model.objective_:.4f}, gap {model.result_.gap:.4f}, {model.status_.value}")
