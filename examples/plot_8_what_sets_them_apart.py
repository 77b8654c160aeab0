"""
What sets the clusters apart
============================

Clusters have numbers, and a reader wants names: the large ones, the young ones. The columns that
differ most are soon found. Which of these differences are more than the work of the clusterer is
another question, because it was the clusterer that looked for them.
"""

# %%
# Customers of a shop
# -------------------
#
# Two groups that differ in income, in the number of visits and in how they pay. Eight further
# columns are noise. k-means is asked for three clusters, one more than there are groups.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import ttest_ind
from sklearn.cluster import KMeans

from volmar.diagnostics import describe_clusters

noise = [f"noise {j}" for j in range(1, 9)]


def customers(seed, n=600):
    """Draw a table, and its numbers in standard units."""
    rng = np.random.default_rng(seed)
    regular = rng.random(n) < 0.4
    table = pd.DataFrame(
        {
            "income": rng.normal(np.where(regular, 52.0, 34.0), 5.0),
            "visits": rng.normal(np.where(regular, 20.0, 8.0), 3.0),
            "pays": np.where(rng.random(n) < np.where(regular, 0.8, 0.2), "card", "cash"),
        }
    )
    table[noise] = rng.normal(size=(n, 8))
    numbers = table.drop(columns="pays")
    return table, (numbers - numbers.mean()) / numbers.std()


table, rows = customers(1)
model = KMeans(3, n_init=10, random_state=0).fit(rows)

# %%
# P-values of the clustered rows
# ------------------------------
#
# A t-test of each column between a cluster and the others. The cluster that is not there was cut
# along the noise, and the noise is highly significant.

for label in range(3):
    inside = model.labels_ == label
    p = ttest_ind(rows[inside], rows[~inside]).pvalue
    significant = [name for name, value in zip(rows, p, strict=True) if value < 0.001]
    print(f"cluster {label}: {', '.join(significant)}")

# %%
# Differences that other rows show again
# --------------------------------------
#
# ``describe_clusters`` clusters disjoint subsets of the rows independently. A cluster that the
# subsets do not agree on has no real differences. The column of text, which k-means did not see,
# is described as well: ``model_input`` is what k-means takes, the table is what is described.

found = describe_clusters(table, model, model_input=rows, random_state=0)
print(found)

# %%
# With two clusters, what differs is what was put in.

model = KMeans(2, n_init=10, random_state=0).fit(rows)
found = describe_clusters(table, model, model_input=rows, random_state=0)
print(found)

# %%
# The table
# ---------

print(found.table[["cluster", "column", "level", "inside", "outside", "effect", "real"]].head(6))

# %%
# Not every table is as kind as this one. The rate is an average: over twenty tables, the share of
# the claims that are about noise is to stay near the false discovery rate of 0.05, and some tables
# have a false claim.

shares = []
for seed in range(20):
    other, other_rows = customers(seed)
    two = KMeans(2, n_init=10, random_state=0).fit(other_rows)
    claims = describe_clusters(other, two, model_input=other_rows, random_state=0)
    real = [one.column in noise for one in claims.differences(0, real_only=True)]
    shares.append(np.mean(real) if real else 0.0)
print(f"tables with a false claim: {np.count_nonzero(shares)} of {len(shares)}")
print(f"mean share of false claims: {np.mean(shares):.3f}")

# %%
# The picture shows the differences of the first cluster; those that are real are filled.

differences = found.differences(0)[::-1]
names = [f"{one.column} = {one.level}" if one.level else one.column for one in differences]
fig, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
ax.barh(
    names,
    [one.effect for one in differences],
    color=["tab:blue" if one.real else "none" for one in differences],
    edgecolor="tab:blue",
)
ax.axvline(0, color="black", linewidth=0.8)
ax.set(xlabel="difference from the other cluster / standard deviation", title="cluster 0")
plt.show()
