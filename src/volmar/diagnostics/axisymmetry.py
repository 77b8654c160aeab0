"""Search for a reflection of Q: colour refinement, then backtracking over involutions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Colours = NDArray[np.uint64]


class _OutOfWorkError(Exception):
    """The limit on work was reached."""


def find_axis(
    Q: NDArray, *, threshold: float, max_work: float
) -> tuple[NDArray[np.intp] | None, bool, int]:
    r"""Search for an involution, a permutation that is its own inverse, that leaves Q unchanged.

    The identity is excluded (JMLR definition 7). Entries count as equal if
    :math:`|Q_{ij} - Q_{\phi(i) \phi(j)}| \le` `threshold`.

    Rows get colours that any such permutation preserves: initially the value on the diagonal, then
    repeatedly the multiset of (value, colour) along the row. A row with a unique colour is fixed.
    Otherwise row i is exchanged with another row j of its colour, the colours of rows and of their
    images are refined together, and the search continues recursively. If no j is possible, i is
    fixed as well and gets a colour of its own.

    The search is complete for two reasons. Values are divided into classes at gaps wider than the
    threshold, so that values that may be exchanged are always in the same class. Colours are
    hashes, which may merge two multisets but never separate equal ones. Both can only add
    candidates, and every permutation found is checked entry by entry.

    Returns one such permutation or None, whether the search finished before it had read `max_work`
    entries of Q, and the number of entries read.
    """
    search = _AxisSearch(Q, threshold, max_work)
    try:
        return search.run(), True, search.work
    except _OutOfWorkError:
        return None, False, search.work


class _AxisSearch:
    def __init__(self, Q: NDArray, threshold: float, max_work: float):
        self.Q = Q
        self.n = len(Q)
        self.threshold = threshold
        self.max_work = max_work
        self.work = 0
        classes = value_classes(Q, threshold)
        self.diagonal = _compact(classes.diagonal().astype(np.uint64))
        # One random number per class of values. The multiset of (value, colour) of a row is hashed
        # as its product with the random numbers of the colours.
        self.weights = _mix(classes.astype(np.uint64))

    def run(self) -> NDArray[np.intp] | None:
        colours = self._refine(self.diagonal)
        while True:
            shared = _smallest_shared(colours)
            if shared is None:
                return None
            i, *others = np.flatnonzero(colours == shared).tolist()
            for j in others:
                permutation = self._exchange(colours, i, j)
                if permutation is not None:
                    return permutation
            colours = colours.copy()
            colours[i] = self.n
            colours = self._refine(colours)

    def _read(self, n_entries: int) -> None:
        self.work += n_entries
        if self.work > self.max_work:
            raise _OutOfWorkError

    def _refine(self, colours: Colours) -> Colours:
        """Refine one colouring until the number of colours no longer changes."""
        count = 0
        while (new := int(colours.max()) + 1) > count:
            count = new
            self._read(self.n**2)
            colours = _compact(_mix(colours) + _mix(self.weights @ _mix(colours)))
        return colours

    def _refine_pairs(self, own: Colours, image: Colours) -> tuple[Colours, Colours] | None:
        """Refine a colouring and that of the images; None if they cannot be matched.

        Row v with the colours (own, image) = (a, b) can only be mapped to a row with (b, a).
        """
        count = 0
        while True:
            there = _mix(_mix(own) + image)
            back = _mix(_mix(image) + own)
            self._read(2 * self.n**2)
            hashed = np.concatenate(
                [there + _mix(self.weights @ there), back + _mix(self.weights @ back)]
            )
            both = _compact(hashed)
            own, image = both[: self.n], both[self.n :]
            if not np.array_equal(np.sort(own), np.sort(image)):
                return None
            if (new := int(both.max()) + 1) == count:
                return own, image
            count = new

    def _exchange(self, colours: Colours, i: int, j: int) -> NDArray[np.intp] | None:
        """Search for an involution that preserves the colours and exchanges i and j."""
        stack: list[Iterator[tuple[Colours, Colours]]] = [iter([_sent(colours, colours, i, j)])]
        while stack:
            pair = next(stack[-1], None)
            if pair is None:
                stack.pop()
                continue
            refined = self._refine_pairs(*pair)
            if refined is None:
                continue
            own, image = refined
            partner, settled = _partners(own, image)
            if not self._holds(partner, settled):
                continue
            if settled.all():
                return partner
            if (own == image)[~settled].all():
                # Rows with equal colours can often be fixed (copies of a row always can).
                resting = np.where(settled, partner, np.arange(self.n))
                if self._holds(resting, np.ones(self.n, dtype=bool)):
                    return resting
            stack.append(self._children(own, image))
        return None

    def _children(self, own: Colours, image: Colours) -> Iterator[tuple[Colours, Colours]]:
        """Map the first row of the rarest shared colour to each of its possible images."""
        v = int(np.flatnonzero(own == _smallest_shared(own))[0])
        for w in np.flatnonzero((own == image[v]) & (image == own[v])):
            yield _sent(own, image, v, int(w))

    def _holds(self, partner: NDArray[np.intp], settled: NDArray[np.bool_]) -> bool:
        """Return whether Q agrees with its image on the rows whose partner is known."""
        rows = np.flatnonzero(settled)
        self._read(rows.size**2)
        images = partner[rows]
        difference = self.Q[np.ix_(rows, rows)] - self.Q[np.ix_(images, images)]
        return bool(np.abs(difference).max(initial=0.0) <= self.threshold)


def value_classes(Q: NDArray, threshold: float) -> NDArray[np.intp]:
    """Return the class of each value of Q; a gap wider than `threshold` starts a new class."""
    values, inverse = np.unique(Q, return_inverse=True)
    number = np.concatenate([[0], np.cumsum(np.diff(values) > threshold)])
    return number[inverse].reshape(Q.shape)


def _sent(own: Colours, image: Colours, v: int, w: int) -> tuple[Colours, Colours]:
    """Return colours that force the exchange of v and w."""
    own, image = own.copy(), image.copy()
    first, second = 2 * own.size, 2 * own.size + 1
    own[v] = image[w] = first
    if v != w:
        own[w] = image[v] = second
    return own, image


def _partners(own: Colours, image: Colours) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the partner of each row with a unique colour, and a mask of these rows."""
    counts = np.bincount(own.astype(np.intp))
    at = np.empty(counts.size, dtype=np.intp)
    at[own.astype(np.intp)] = np.arange(own.size)
    settled = counts[own.astype(np.intp)] == 1
    return at[image.astype(np.intp)], settled


def _smallest_shared(colours: Colours) -> int | None:
    """Return the rarest colour of more than one row, or None."""
    counts = np.bincount(colours.astype(np.intp))
    shared = np.flatnonzero(counts > 1)
    return int(shared[np.argmin(counts[shared])]) if shared.size else None


def _compact(hashed: Colours) -> Colours:
    """Renumber the colours from 0."""
    return np.unique(hashed, return_inverse=True)[1].astype(np.uint64)


def _mix(x: Colours) -> Colours:
    """Scramble 64-bit words, one to one (the finaliser of Steele, Lea and Flood's SplitMix)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
