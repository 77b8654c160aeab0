"""
Three baselines for two clusters
================================

Kernel k-means, normalised spectral clustering and the normalised cut on three data sets, each with
its default settings. The last two separate these groups by a graph. Kernel k-means does not: with
a Gaussian kernel of the default width, its clusters are nearly those of k-means. (The two
gaussians differ in their third feature, which the plots do not show.)
"""

import matplotlib.pyplot as plt

from volmar import KernelKMeans, NormalizedCut, NormalizedSpectralClustering
from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.metrics import clustering_error
from volmar.plots import ClusterDisplay

data = {
    "two moons": make_two_moons(300, random_state=0),
    "two circles": make_two_circles(300, random_state=0),
    "two gaussians": make_two_gaussians(300, random_state=0),
}
methods = [
    KernelKMeans(random_state=0),
    NormalizedSpectralClustering(random_state=0),
    NormalizedCut(),
]

figure, axes = plt.subplots(3, 3, figsize=(9, 8), layout="constrained")
for row, (name, (X, y)) in zip(axes, data.items(), strict=True):
    for ax, method in zip(row, methods, strict=True):
        labels = method.fit(X).labels_
        if (labels == y).mean() < 0.5:
            labels = 1 - labels  # the same colours in all plots
        ClusterDisplay.from_labels(X, labels, ax=ax, legend=False)
        error = clustering_error(y, labels)
        ax.set(xticks=[], yticks=[], xlabel=f"error {100 * error:.1f} %", ylabel="")
    row[0].set_ylabel(name)
for ax, method in zip(axes[0], methods, strict=True):
    ax.set_title(type(method).__name__)

# %%
# Every fit has a certificate. The second eigenvalue is a lower bound on every two-way cut. The gap
# is therefore an upper bound on the improvement by the best cut.

for name, (X, _) in data.items():
    result = NormalizedCut().fit(X).result_
    print(f"{name:14s} cut {result.objective:.2e}, gap {result.gap:.2e}, {result.status.value}")
