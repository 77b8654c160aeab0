"""Fits and predictions of every clusterer."""

import numpy as np

import volmar
from fuzz.contract import Case, require_finite, require_labels
from volmar import CLUSTERERS


def draw_case(draw):
    """Return a fit, with prediction, of some clusterer to some rows."""
    name = draw.pick(*CLUSTERERS)
    n_clusters = draw.whole(1, 5)
    X = draw.rng.normal(size=(draw.whole(2, 40), draw.whole(1, 5))) * draw.power(-20, 20)

    def fit():
        model = getattr(volmar, name)(n_clusters=n_clusters, random_state=0).fit(X)
        return model.labels_, model.decision_function(X), model.predict(X)

    def check(value):
        labels, scores, predicted = value
        require_labels("labels_", labels, len(X), n_clusters)
        require_labels("predict", predicted, len(X), n_clusters)
        require_finite("decision_function", scores)

    text = f"{name}(n_clusters={n_clusters}, random_state=0).fit({np.shape(X)} of {X.flat[0]:.3g})"
    return Case(text, fit, (X,), check)
