"""Random choices of a case, which depend only on its domain and number."""

import zlib

import numpy as np


class Draw:
    """A random generator with the choices that cases need.

    ``rng`` is the generator itself, for arrays.
    """

    def __init__(self, domain, number):
        self.rng = np.random.default_rng([zlib.crc32(domain.encode()), number])

    def chance(self, probability):
        """Return True with a probability."""
        return bool(self.rng.random() < probability)

    def pick(self, *options):
        """Return one of the options."""
        return options[int(self.rng.integers(len(options)))]

    def some(self, options, probability=0.3):
        """Return some of the options, each with a probability."""
        return [option for option in options if self.chance(probability)]

    def whole(self, low, high):
        """Return an integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def power(self, low, high):
        """Return ten to a uniform power."""
        return float(10.0 ** self.rng.uniform(low, high))
