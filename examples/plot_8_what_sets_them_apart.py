"""
What sets the clusters apart
============================

To describe a cluster, one looks for the columns in which it differs from the other clusters. Such
differences always exist, because the clusterer has searched for them. This example tests which of
them are real.
"""

# %%
# Customers of a shop
# -------------------
#
# The table has two groups, which differ in income, number of visits and payment method. Eight
# further columns are noise. k-means is run with three clusters, one more than there are groups.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import ttest_ind
from sklearn.cluster import KMeans

from volmar import describe_clusters

noise = [f"noise {j}" for j in range(1, 9)]


def customers(seed, n=600):
    """Generate a table, and its standardised numeric columns."""
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
# A t-test compares each column between a cluster and the other rows. One of the two groups was
# cut along the noise columns, and t-tests of these columns are highly significant.

for label in range(3):
    inside = model.labels_ == label
    p = ttest_ind(rows[inside], rows[~inside]).pvalue
    significant = [name for name, value in zip(rows, p, strict=True) if value < 0.001]
    print(f"cluster {label}: {', '.join(significant)}")

# %%
# Differences that are found again in other rows
# ----------------------------------------------
#
# ``describe_clusters`` clusters disjoint subsets of the rows independently. A cluster that is not
# found again in the subsets has no real differences. ``model_input`` is the input of k-means. The
# whole table is described, including the text column, which k-means does not use.

found = describe_clusters(table, model, model_input=rows, random_state=0)
print(found)

# %%
# With two clusters, the real differences are those of the two groups.

model = KMeans(2, n_init=10, random_state=0).fit(rows)
found = describe_clusters(table, model, model_input=rows, random_state=0)
print(found)

# %%
# The table
# ---------

print(found.table[["cluster", "column", "level", "inside", "outside", "effect", "real"]].head(6))

# %%
# The false discovery rate of 0.05 is an average over tables, and some tables have a false claim.
# In twenty tables, the mean share of claims about noise columns should be near this rate.

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
# The plot shows the differences of the first cluster. Bars of real differences are filled.

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
