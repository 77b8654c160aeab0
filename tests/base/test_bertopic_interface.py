"""Clusterers as the cluster model of BERTopic: the calls it makes, and the package itself."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import Normalizer, normalize

from volmar import CPMMC, MSPC, KernelCPMMC, SoftLabelMVC

CLUSTERERS = [CPMMC, MSPC, SoftLabelMVC, KernelCPMMC]
TOPICS = np.arange(200) % 4


def four_topics(clusterer):
    return clusterer(4, random_state=0)


@pytest.fixture(scope="module")
def embeddings():
    """Rows of unit norm in float32, as sentence encoders return them, in four directions."""
    rng = np.random.default_rng(0)
    rows = 3.0 * np.eye(16)[TOPICS] + 0.4 * rng.normal(size=(200, 16))
    return normalize(rows).astype(np.float32)


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(0)
    words = [
        ["flour", "sugar", "butter", "oven", "dough", "bread"],
        ["wind", "sail", "boat", "harbour", "anchor", "tide"],
        ["violin", "piano", "chord", "melody", "rhythm", "song"],
        ["soil", "seed", "root", "leaf", "water", "rain"],
    ]
    return [" ".join(rng.choice(words[topic], 8)) for topic in TOPICS]


def assert_labels_of(model, X, n_topics=4):
    """Assert what BERTopic needs: one integer per row, no -1, and equal predictions."""
    assert model.labels_.shape == (len(X),)
    assert np.issubdtype(model.labels_.dtype, np.integer)
    assert model.labels_.min() >= 0
    assert np.unique(model.labels_).size == n_topics
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    # BERTopic would take an attribute of this name for HDBSCAN's.
    assert not hasattr(model, "probabilities_")


@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_fit_with_y_of_none_then_predict_new_rows(clusterer, embeddings):
    model = four_topics(clusterer)
    model.fit(embeddings[:150], y=None)
    assert_labels_of(model, embeddings[:150])
    assert adjusted_rand_score(TOPICS[:150], model.labels_) == 1.0
    new = model.predict(embeddings[150:])
    assert new.shape == (50,)
    assert adjusted_rand_score(TOPICS, np.r_[model.labels_, new]) == 1.0


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("names", [[0, 1, 2, 3], [7, 2]], ids=["all", "some"])
@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_topics_of_some_documents_are_seeds(clusterer, names, as_list, embeddings):
    y = np.full(200, -1)
    seeds = np.flatnonzero(np.isin(TOPICS, np.arange(len(names))))[:12]
    y[seeds] = np.array(names)[TOPICS[seeds]]
    model = four_topics(clusterer)
    model.fit(embeddings, y=y.tolist() if as_list else y)
    assert_labels_of(model, embeddings)
    for topic, name in enumerate(names):
        assert (model.labels_[topic == TOPICS] == name).all()


@pytest.mark.parametrize("y", [np.full(200, -1), TOPICS], ids=["none known", "all known"])
@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_y_without_seeds_changes_nothing(clusterer, y, embeddings):
    """Guided topic modelling may match no document; a complete y is a target, not seeds."""
    free = four_topics(clusterer).fit(embeddings)
    model = four_topics(clusterer)
    model.fit(embeddings, y=y)
    assert_labels_of(model, embeddings)
    np.testing.assert_array_equal(model.labels_, free.labels_)


def test_partial_fit_returns_the_model_with_labels_of_the_batch(embeddings):
    model = four_topics(MSPC)
    labels = []
    for batch in (embeddings[:100], embeddings[100:160], embeddings[160:]):
        assert model.partial_fit(batch) is model
        assert model.labels_.shape == (len(batch),)
        assert np.issubdtype(model.labels_.dtype, np.integer)
        np.testing.assert_array_equal(model.predict(batch), model.labels_)
        labels.append(model.labels_)
    assert adjusted_rand_score(TOPICS, np.concatenate(labels)) == 1.0


@pytest.mark.parametrize("clusterer", [CPMMC, SoftLabelMVC, KernelCPMMC])
def test_only_mspc_has_partial_fit(clusterer):
    """BERTopic checks with hasattr, and raises an error if `partial_fit` is missing."""
    assert not hasattr(four_topics(clusterer), "partial_fit")


def bertopic_with(model, **params):
    bertopic = pytest.importorskip("bertopic")
    pytest.importorskip("hdbscan")  # BERTopic.transform needs it, for any cluster model
    return bertopic.BERTopic(hdbscan_model=model, umap_model=Normalizer(), **params)


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_bertopic_end_to_end(clusterer, seeded, documents, embeddings):
    topic_model = bertopic_with(four_topics(clusterer), calculate_probabilities=True)
    y = np.where(np.arange(150) < 12, TOPICS[:150] + 10, -1).tolist() if seeded else None
    topics, probabilities = topic_model.fit_transform(documents[:150], embeddings[:150], y=y)
    assert probabilities is None
    assert sorted(set(topics)) == [0, 1, 2, 3]
    assert len(topic_model.get_topic_info()) == 4
    new, _ = topic_model.transform(documents[150:], embeddings[150:])
    assert adjusted_rand_score(TOPICS, [*topics, *new]) == 1.0
    for topic in range(4):
        own = " ".join(documents[row] for row in range(150) if topics[row] == topic).split()
        assert {word for word, _ in topic_model.get_topic(topic)[:5]} <= set(own)
    if seeded:  # BERTopic numbers topics by their size, the cluster model by y
        np.testing.assert_array_equal(topic_model.hdbscan_model.labels_, TOPICS[:150] + 10)


def test_bertopic_in_batches(documents, embeddings):
    pytest.importorskip("bertopic")
    from bertopic.vectorizers import OnlineCountVectorizer

    topic_model = bertopic_with(four_topics(MSPC), vectorizer_model=OnlineCountVectorizer())
    topics = []
    for batch in (slice(0, 100), slice(100, 200)):
        topic_model.partial_fit(documents[batch], embeddings[batch])
        topics.extend(topic_model.topics_)
    assert adjusted_rand_score(TOPICS, topics) == 1.0
    new, _ = topic_model.transform(documents[:20], embeddings[:20])
    assert adjusted_rand_score(TOPICS[:20], new) == 1.0
