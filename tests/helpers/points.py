"""Random points and graphs of them for tests of similarities."""

import numpy as np
import scipy.sparse as sp
from hypothesis import settings
from hypothesis import strategies as st

from volmar import NormalizedCut, NormalizedSpectralClustering
from volmar.graphs.graph import make_similarity

quick = settings(deadline=None, max_examples=25)
seeds = st.integers(0, 2**32 - 1)


def points(seed, n=40, d=3):
    return np.random.default_rng(seed).random((n, d))


def dense(W):
    return W.toarray() if sp.issparse(W) else W


def build(affinity, params, X):
    return dense(make_similarity(affinity, **params).build(X)[0])


BOTH = [NormalizedSpectralClustering, NormalizedCut]
WRAPS = [np.asarray, sp.csr_array]
