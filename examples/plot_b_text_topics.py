"""
From documents to topics
========================

Raw text in, named topics out: count words, cluster the counts, and read off the words that set
each cluster apart. New texts get a topic, and similar documents are found in the same space.
"""

# %%
# The documents
# -------------
#
# Every installation has some text: the docstrings of numpy, scipy and scikit-learn. A document is
# the description and the notes of a public function or class. Code in backticks, LaTeX commands
# and signatures are dropped. So are lines that more than three docstrings share: these come from
# templates, and say nothing about the subject. Texts of fewer than eight words are left out.

import importlib
import inspect
import re
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patheffects import withStroke
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.manifold import TSNE
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from volmar import CPMMC

MODULES = {
    "numpy": "fft linalg ma random",
    "scipy": "cluster.hierarchy fft integrate interpolate linalg ndimage optimize signal sparse "
    "sparse.csgraph sparse.linalg spatial spatial.distance special stats",
    "sklearn": "cluster covariance datasets decomposition ensemble feature_selection linear_model "
    "manifold metrics model_selection neighbors preprocessing svm tree",
}


def description(docstring):
    """Return the text before the first section, and the section Notes, without code."""
    head, *sections = re.split(r"\n(\w[\w ]*)\n-{3,}", docstring)
    notes = dict(zip(sections[::2], sections[1::2], strict=True)).get("Notes", "")
    return re.sub(r"(:[\w:]+:)?`+[^`]*`+|\\\w+|^\w+\(.*\)$", "", head + notes, flags=re.MULTILINE)


raw = {}  # text: where it is from; a text that is found again is left out
for package, submodules in MODULES.items():
    for submodule in submodules.split():
        module = importlib.import_module(f"{package}.{submodule}")
        for name in module.__all__:
            member = vars(module).get(name)
            if callable(member) and inspect.getdoc(member):
                raw.setdefault(description(inspect.getdoc(member)), (module.__name__, name))

lines = Counter(line.strip() for text in raw for line in set(text.splitlines()))
documents, modules, names = [], [], []
for text, (module, name) in raw.items():
    own = " ".join(line.strip() for line in text.splitlines() if lines[line.strip()] <= 3)
    if len(own.split()) >= 8:
        documents.append(own)
        modules.append(module)
        names.append(f"{module}.{name}")
names = np.array(names)
print(f"{len(documents)} documents of {len(set(modules))} submodules, the first of them:")
print(documents[0][:90])

# %%
# Count and cluster
# -----------------
#
# ``CountVectorizer`` returns a sparse matrix of counts. The next steps are sublinear TF-IDF, a
# truncated SVD and unit length (see :doc:`/embeddings`). The documents are short, so 50 singular
# vectors are kept. The number of topics is a free choice, 16 here. The submodules are not used
# before the last section.

n_topics = 16
word = r"\b[a-z]{3,}\b"
vectorizer = CountVectorizer(stop_words="english", token_pattern=word, min_df=3)
counts = vectorizer.fit_transform(documents)
to_rows = make_pipeline(
    TfidfTransformer(sublinear_tf=True), TruncatedSVD(50, random_state=0), Normalizer()
)
rows = to_rows.fit_transform(counts)
model = CPMMC(n_topics, random_state=0).fit(rows)
print(f"{counts.shape[1]} words; documents of each topic: {np.bincount(model.labels_)}")

# %%
# Names of topics
# ---------------
#
# Class-based TF-IDF: the share of a word in the documents of a topic, times a weight that is small
# for words which all topics use. The square root gives frequent words less influence. The
# documents with the largest score of a topic are the most typical.

words = vectorizer.get_feature_names_out()
by_topic = np.eye(n_topics)[model.labels_].T @ counts  # (topics, words)
shares = by_topic / by_topic.sum(axis=1, keepdims=True)
weights = np.log1p(by_topic.sum() / n_topics / by_topic.sum(axis=0))
top_words = words[np.argsort(-np.sqrt(shares) * weights, axis=1)[:, :3]]
titles = [", ".join(row) for row in top_words]

scores = model.decision_function(rows)
for title, typical in zip(titles, np.argsort(-scores, axis=0)[:3].T, strict=True):
    print(f"{title:36s} {', '.join(names[typical])}")

# %%
# Documents between two topics
# ----------------------------
#
# Documents whose two largest scores are nearly equal.

ordered = np.argsort(-scores, axis=1)
gaps = np.subtract(*np.take_along_axis(scores, ordered[:, :2], axis=1).T)
for row in np.argsort(gaps)[:4]:
    first, second = ordered[row, :2]
    print(f"{names[row]:36s} {titles[first]}  |  {titles[second]}")

# %%
# A map
# -----
#
# t-SNE of the rows of unit length. The clusterer does not see the map:
# a topic may have several pieces there. Its name is at the document with the smallest median
# distance to the others.

positions = TSNE(perplexity=20, max_iter=500, init="pca", random_state=0).fit_transform(rows)
colours = plt.colormaps["tab20"].colors
colours = np.array(colours[::2] + colours[1::2])  # the dark ones first
halo = [withStroke(linewidth=3, foreground="white")]
fig, ax = plt.subplots(figsize=(8, 7.2))
ax.scatter(*positions.T, s=9, c=colours[model.labels_])
for topic, row in enumerate(top_words):
    own = positions[model.labels_ == topic]
    x, y = own[np.median(cdist(own, own), axis=1).argmin()]
    ax.text(x, y, "\n".join(row[:2]), ha="center", va="center", weight="bold", path_effects=halo)
ax.set_position([0, 0, 1, 1])
ax.margins(0.04)
ax.set_axis_off()
plt.show()

# %%
# Topics of new texts
# -------------------
#
# New texts pass through the same steps. Every text gets a topic, even one with no known word: look
# at the counts.

sentences = [
    "Is the difference between two groups significant?",
    "eigenvalues of a large symmetric matrix",
    "Draw a smooth curve through a few points.",
    "Train a model on half of the samples.",
    "What is the probability of rain?",
    "Which customers are alike?",
]
new = vectorizer.transform(sentences)
topics = model.predict(to_rows.transform(new))
for sentence, counted, topic in zip(sentences, new, topics, strict=True):
    print(f"{sentence:50s} known words: {counted.nnz}  {titles[topic]}")

# %%
# Similar documents
# -----------------
#
# Products of rows of unit length are cosine similarities: the nearest documents to a query, or to
# another document.

queries = ["the shortest route in a network of roads", "blur the edges of an image"]
similar = to_rows.transform(vectorizer.transform(queries)) @ rows.T
for query, nearest in zip(queries, np.argsort(-similar, axis=1)[:, :3], strict=True):
    print(f"{query}: {', '.join(names[nearest])}")

for name in ["scipy.signal.butter", "scipy.stats.ttest_ind", "sklearn.cluster.DBSCAN"]:
    nearest = np.argsort(-rows @ rows[names == name][0])[1:4]  # the first is the document itself
    print(f"{name}: {', '.join(names[nearest])}")

# %%
# Comparison with the submodules
# ------------------------------
#
# A submodule is not a topic: ``scipy.stats`` has tests and distributions, and Fourier transforms
# are in three submodules. A perfect agreement is not expected. For comparison, k-means on the same
# rows. Means over three seeds, for several numbers of topics: the two agree with the submodules
# about equally well.

print("adjusted Rand index  CPMMC  KMeans")
for k in (8, 12, 16, 24):
    agreement = []
    for seed in range(3):
        model.set_params(n_clusters=k, random_state=seed).fit(rows)
        means = KMeans(k, n_init=10, random_state=seed).fit_predict(rows)
        agreement.append([adjusted_rand_score(modules, each) for each in (model.labels_, means)])
    ours, theirs = np.mean(agreement, axis=0)
    print(f"{k:2d} topics            {ours:6.2f} {theirs:7.2f}")
