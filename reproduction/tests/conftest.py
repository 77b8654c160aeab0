import os

from helpers.pages import browser  # noqa: F401 -- a fixture

# As for the other tests: BLAS threads on top of workers only get in each other's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
