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
    r"""Look for a permutation other than the identity, its own inverse, that leaves Q as it is.

    JMLR definition 7, with :math:`|Q_{ij} - Q_{\phi(i) \phi(j)}| \le` `threshold` for equality.
    Rows get colours that any such permutation preserves: at first the value on the diagonal, then,
    over and over, the multiset of (value, colour) along the row. A row alone in its colour stays.
    Elsewhere a row i is sent to another j of its colour and j to i; colours are refined in pairs
    (of a row, of its image), and so on down a tree. Where no j serves, i stays too, which makes it
    a colour of its own.

    Two things keep this complete. Values fall into classes at gaps wider than the threshold, so
    that values which may be exchanged are always in one class; and colours are hashes, which may
    take two multisets for one but never one for two. Both can only leave more to try, and what is
    found is checked entry by entry.

    Returns one such permutation or None, whether the search came to an end before it had read
    `max_work` entries of Q, and how many it has read.
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
        # A random number for each class of values: a row's multiset of (value, colour) is hashed
        # as its product with random numbers for the colours.
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
        """Refine one colouring until the number of colours stays."""
        count = 0
        while (new := int(colours.max()) + 1) > count:
            count = new
            self._read(self.n**2)
            colours = _compact(_mix(colours) + _mix(self.weights @ _mix(colours)))
        return colours

    def _refine_pairs(self, own: Colours, image: Colours) -> tuple[Colours, Colours] | None:
        """Refine a colouring and that of the images; None where they cannot be matched.

        Row v with the colours (own, image) = (a, b) can only go to a row with (b, a).
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
        """Look for an involution that preserves the colours and exchanges i and j."""
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
                # Rows that are alike often may just stay (copies of one point always may).
                resting = np.where(settled, partner, np.arange(self.n))
                if self._holds(resting, np.ones(self.n, dtype=bool)):
                    return resting
            stack.append(self._children(own, image))
        return None

    def _children(self, own: Colours, image: Colours) -> Iterator[tuple[Colours, Colours]]:
        """Send the first row of the smallest shared colour to each of its possible images."""
        v = int(np.flatnonzero(own == _smallest_shared(own))[0])
        for w in np.flatnonzero((own == image[v]) & (image == own[v])):
            yield _sent(own, image, v, int(w))

    def _holds(self, partner: NDArray[np.intp], settled: NDArray[np.bool_]) -> bool:
        """Whether Q agrees with its image on the rows whose partner is settled."""
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
    """Colours that say: v goes to w and w to v."""
    own, image = own.copy(), image.copy()
    first, second = 2 * own.size, 2 * own.size + 1
    own[v] = image[w] = first
    if v != w:
        own[w] = image[v] = second
    return own, image


def _partners(own: Colours, image: Colours) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Partner of each row that is alone in its colour, and which rows these are."""
    counts = np.bincount(own.astype(np.intp))
    at = np.empty(counts.size, dtype=np.intp)
    at[own.astype(np.intp)] = np.arange(own.size)
    settled = counts[own.astype(np.intp)] == 1
    return at[image.astype(np.intp)], settled


def _smallest_shared(colours: Colours) -> int | None:
    """Return the rarest colour that more than one row has."""
    counts = np.bincount(colours.astype(np.intp))
    shared = np.flatnonzero(counts > 1)
    return int(shared[np.argmin(counts[shared])]) if shared.size else None


def _compact(hashed: Colours) -> Colours:
    """Renumber from 0."""
    return np.unique(hashed, return_inverse=True)[1].astype(np.uint64)


def _mix(x: Colours) -> Colours:
    """Scramble 64-bit words, one to one (the finaliser of Steele, Lea and Flood's SplitMix)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
