"""
Maximum volume: from an eigenvector to a border
===============================================

Spectral clustering cuts an eigenvector of the graph. Soft-label maximum volume clustering starts
from this cut. It repeatedly computes the smoothest field that agrees with the labels, and takes
new labels from the field. On noisy moons, the cut of the eigenvector assigns a few rows to the
wrong moon, most of them at a tip. The field moves the border into the gap and corrects most of
them.
"""

import matplotlib.pyplot as plt
import numpy as np

from volmar import SoftLabelMVC
from volmar.datasets import make_two_gaussians, make_two_moons
from volmar.metrics import clustering_error
from volmar.plots import ClusterDisplay

X, y = make_two_moons(3000, noise=0.1, random_state=0)
model = SoftLabelMVC().fit(X)
start = (model.result_.start > 0).astype(int)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for ax, title, labels in [
    (axes[0], "the start: an eigenvector, cut at its mean", start),
    (axes[1], "the end: signs of the smooth field", model.labels_),
]:
    ClusterDisplay.from_labels(X, labels, ax=ax, legend=False)
    ax.set(title=title, xlabel=f"error {100 * clustering_error(y, labels):.1f} %", ylabel="")
    ax.set(xticks=[], yticks=[])

# %%
# The field is defined everywhere: at a new row, it is the mean of the values of its neighbours,
# weighted by similarity. Its magnitude measures how deep inside a cluster the row is.

grid_x, grid_y = np.meshgrid(np.linspace(-1.4, 2.4, 160), np.linspace(-0.9, 1.4, 100))
field = model.decision_function(np.column_stack([grid_x.ravel(), grid_y.ravel()]))
size = np.abs(field).max()
field = field.reshape(grid_x.shape)
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
image = ax.pcolormesh(grid_x, grid_y, field, cmap="PuOr", vmin=-size, vmax=size)
ax.contour(grid_x, grid_y, field, levels=[0.0], colors="black")
ax.set(title="the field for new rows, border in black", xticks=[], yticks=[])
figure.colorbar(image, ax=ax, label="decision_function")

# %%
# The result is a stationary point of the problem up to these residuals. The second line has the
# number of labels that changed during the fit.

print(model.result_.status.value, dict(model.result_.residuals))
print(f"{model.n_moved_} of {len(X)} labels moved in {model.n_iter_} steps")

# %%
# ``mode="paper"`` is the algorithm of the paper without changes, with the similarity of the paper.
# Two gaussians that cross have outliers with separate eigenvectors. Here the algorithm needs the
# paper's set of up to ten starts.

errors = {"one start": [], "the paper's starts": []}
for seed in range(5):
    X, y = make_two_gaussians(200, random_state=seed)
    for name, n_candidates in [("one start", 1), ("the paper's starts", None)]:
        paper = SoftLabelMVC(mode="paper", n_candidates=n_candidates).fit(X)
        errors[name].append(clustering_error(y, paper.labels_))
for name, found in errors.items():
    print(f"{name}: mean error {100 * np.mean(found):.1f} %")
