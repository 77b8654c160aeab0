"""The conditions of the papers' stability theorems, checked on a matrix Q."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse import issparse

from volmar._checks import check_count, check_number, check_symmetric
from volmar._input import check_matrix
from volmar._memory import require_memory
from volmar._threads import one_thread
from volmar.operators.protocol import SPDOperator

# Upper limit of `max_rows_for_si`. Sorting 2^23 values takes about 300 MB and ten seconds.
MAX_ROWS_FOR_SI = 24


@dataclass(frozen=True)
class StabilityReport:
    r"""Conditions of the papers' stability theory, checked for a matrix Q.

    ``print(report)`` shows a summary.

    Attributes
    ----------
    n : int
        Number of rows.
    tol : float
        Entries within this fraction of the largest \|Q_ij\| count as equal.
    irreducible : bool
        Whether no row is isolated (JMLR definition 4). This differs from the irreducibility of
        matrices: Q may still consist of blocks of two or more rows.
    isolated : ndarray
        Rows with :math:`Q_{ii} > 0` and zeros elsewhere.
    anisotropic : bool
        Whether all n eigenvalues are distinct (definition 8).
    eigengap : float
        Smallest difference of two successive eigenvalues, divided by the largest magnitude.
    eigengap_at : int
        Index of the lower of these two eigenvalues in ascending order, from 0.
    closest_eigenvalues : tuple of float
        The two eigenvalues.
    axisymmetric : bool or None
        Whether an involution other than the identity leaves Q unchanged (definition 7). None if
        the work limit was reached first.
    axis : ndarray of shape (n,) or None
        One such permutation, which exchanges row i and row ``axis[i]``.
    si_symmetric : bool or None
        Submatrix-information symmetry (definition 5), which is equivalent to the existence of two
        partitions with the same y'Qy. None if Q is too large to decide.
    si_gap : float
        Smallest absolute value of the left side of eq. 20, divided by the largest \|Q_ij\|. Zero
        if it is zero up to rounding, NaN if it was not computed.
    si_pair : tuple of ndarray or None
        Two partitions, -1 and 1, with the same or the closest values of y'Qy.
    frozen_below : float
        If `reg` is below this value, every one of the :math:`2^{n-1}` partitions is a strict local
        minimum of the volume problem without its balance constraint (JMLR eq. 4), regardless of
        the other conditions. Infinite if Q is zero.
    work : int
        Number of entries of Q read by the search for an axis.
    """

    n: int
    tol: float
    irreducible: bool
    isolated: NDArray[np.intp]
    anisotropic: bool
    eigengap: float
    eigengap_at: int
    closest_eigenvalues: tuple[float, float]
    axisymmetric: bool | None
    axis: NDArray[np.intp] | None
    si_symmetric: bool | None
    si_gap: float
    si_pair: tuple[NDArray[np.int8], NDArray[np.int8]] | None
    frozen_below: float
    work: int

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Return a text with each condition, its meaning and its limits."""
        equal = f"entries within {self.tol:g} of the largest count as equal"
        return "\n".join(
            [
                f"Stability of Q, {self.n} rows ({equal})",
                "",
                f"irreducible:  {self._irreducible()}",
                "  An isolated row can be in either cluster. Irreducible means that no single",
                "  row is isolated; Q may still consist of several blocks.",
                f"anisotropic:  {self._anisotropic()}",
                "  Distinct eigenvalues determine the eigenvectors, and with them the start of",
                "  the method. They do not determine the labels, because an entry of an",
                "  eigenvector may be zero.",
                f"axisymmetric: {self._axisymmetric()}",
                "  Exchanging rows along an axis maps a minimum, with its labels, to an equally",
                "  good one. The best partition may still be unique if it is its own mirror",
                "  image.",
                f"SI-symmetric: {self._si_symmetric()}",
                "  Two partitions with the same y'Qy need not be minima. If there are none, the",
                "  minimum need not be unique.",
                "",
                "The papers' theorem that an anisotropic, SI-asymmetric Q has one local minimum",
                "up to equivalence (JMLR 13, AISTATS 5) is false. For this Q, with reg below",
                f"{self.frozen_below:.3g} and no balance constraint, every partition is a strict",
                "local minimum, and the start determines which one is returned.",
            ]
        )

    def _irreducible(self) -> str:
        if self.irreducible:
            return "yes, no row is isolated"
        shown = ", ".join(map(str, self.isolated[:8])) + ", ..." * (self.isolated.size > 8)
        return f"no, {self.isolated.size} isolated: rows {shown}"

    def _anisotropic(self) -> str:
        i, (low, high) = self.eigengap_at, self.closest_eigenvalues
        return (
            f"{'yes' if self.anisotropic else 'no'}, the closest eigenvalues are numbers {i} and "
            f"{i + 1} of 0 to {self.n - 1}, {low:.6g} and {high:.6g} (relative gap "
            f"{self.eigengap:.1e})"
        )

    def _axisymmetric(self) -> str:
        if self.axisymmetric is None:
            return f"not decided after reading {self.work:.1e} entries; raise max_work"
        if self.axis is None:
            return "no exchange of rows leaves Q unchanged"
        moved = np.flatnonzero(self.axis > np.arange(self.n))
        pairs = [f"{i} with {self.axis[i]}" for i in moved[:5]]
        more = f" and {moved.size - 5} more" if moved.size > 5 else ""
        return f"yes, exchange {', '.join(pairs)}{more}"

    def _si_symmetric(self) -> str:
        if self.si_symmetric is None:
            return f"not decided for {self.n} rows, with {2.0 ** (self.n - 1):.1e} partitions"
        if self.si_symmetric:
            return "yes, two partitions have the same y'Qy (si_pair)"
        return f"no, eq. 20 is {self.si_gap:.1e} for the closest two partitions"


@one_thread()
def stability_report(
    Q: Any, *, tol: float = 1e-9, max_rows_for_si: int = 20, max_work: float = 2e9
) -> StabilityReport:
    r"""Check the conditions of the stability theory of maximum volume clustering for a matrix Q.

    From definitions 4 to 8 of JMLR section 5.1, the papers conclude that symmetry of the data
    makes clusters unstable, and that without symmetry all local minima are equivalent. The first
    holds in part (theorem 12). The second (theorem 13) is false, and so is theorem 11; theorem 10
    requires three rows. The report lists the conditions that hold. Little follows from them: a
    symmetric Q is a warning, but an asymmetric one is no guarantee.

    Parameters
    ----------
    Q : array of shape (n, n), sparse matrix or SPDOperator
        Symmetric matrix of pairwise information, such as :math:`L_{sym} + I/n`.
    tol : float, default=1e-9
        Entries and eigenvalues within this fraction of the largest count as equal. SI-symmetry is
        decided at the rounding error of floats instead: from 17 rows on, two of the
        :math:`2^{n-1}` values are likely to be within 1e-9 by coincidence.
    max_rows_for_si : int, default=20
        Maximum n for which SI-symmetry is decided by sorting :math:`2^{n-1}` values. For larger n,
        it is decided only if it follows from an isolated row or an axis. At most 24.
    max_work : float, default=2e9
        Maximum number of entries of Q that the search for an axis may read (about ten seconds).
        The search may take exponential time on specially constructed matrices; matrices of data
        take one to a few passes.

    Returns
    -------
    StabilityReport
        ``print`` shows a summary.

    Notes
    -----
    Theorem 13 fails because two partitions may be minima with different multipliers, and because
    a sphere and an ellipsoid intersect in more than mirror images of one point (JMLR eq. 33 and
    34). The opposite can be proved. A stationary point with labels y is
    :math:`h = (\gamma Q - \eta I)^{-1} y`. From :math:`\|h\| = 1` follows
    :math:`|\eta| \ge \sqrt n - \gamma \lambda_n`. If :math:`\gamma \|Q\|_\infty < |\eta| / 2`,
    h has the signs of y. Therefore, for

    .. math:: \gamma < \frac{\sqrt n}{2 \|Q\|_\infty + \lambda_n}

    there is a strict local minimum in every orthant. The right side is `frozen_below`.

    References
    ----------
    Niu, Dai, Shang and Sugiyama (2013), Maximum volume clustering: a new discriminative clustering
    approach, JMLR 14, section 5 and appendix A.

    Examples
    --------
    The corners of a square, which has two equally good partitions into halves:

    >>> import numpy as np
    >>> from volmar.diagnostics import stability_report
    >>> from volmar.graphs import gaussian_similarity
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> report = stability_report(gaussian_similarity(square, sigma=1.0))
    >>> report.axisymmetric, report.anisotropic, report.si_symmetric
    (True, False, True)
    """
    tol = check_number("tol", tol, low=0.0, high=0.1)
    max_rows_for_si = check_count("max_rows_for_si", max_rows_for_si, low=0, high=MAX_ROWS_FOR_SI)
    max_work = check_number("max_work", max_work, low=0.0)
    Q = dense_symmetric(Q)
    n = len(Q)
    threshold = tol * float(np.abs(Q).max())

    # 1. Definition 4.
    zero = np.abs(Q) <= threshold
    np.fill_diagonal(zero, True)
    isolated = np.flatnonzero(zero.all(axis=1) & (Q.diagonal() > threshold))

    # 2. Definition 8. Eigenvalues have an error of about n units in the last place.
    values = linalg.eigvalsh(Q, check_finite=False)
    steps = np.diff(values)
    at = int(np.argmin(steps))
    gap = float(steps[at] / (np.abs(values).max() or 1.0))
    anisotropic = gap > max(tol, n * float(np.finfo(np.float64).eps))

    # 3. Definition 7.
    axis, is_decided, work = find_axis(Q, threshold=threshold, max_work=max_work)

    # 4. Definition 5.
    si_pair = _tied_by_theorem_10(n, isolated, axis)
    si_symmetric, si_gap = (True, 0.0) if si_pair else (None, np.nan)
    if si_pair is None and n <= max_rows_for_si:
        si_gap, si_pair = _closest_partitions(Q)
        si_symmetric = si_gap == 0.0

    reach = 2 * float(np.abs(Q).sum(axis=1).max()) + float(values[-1])
    return StabilityReport(
        n=n,
        tol=tol,
        irreducible=not isolated.size,
        isolated=isolated,
        anisotropic=anisotropic,
        eigengap=gap,
        eigengap_at=at,
        closest_eigenvalues=(float(values[at]), float(values[at + 1])),
        axisymmetric=axis is not None if is_decided else None,
        axis=axis,
        si_symmetric=si_symmetric,
        si_gap=si_gap,
        si_pair=si_pair,
        frozen_below=float(np.sqrt(n) / reach) if reach > 0 else np.inf,
        work=work,
    )


def _tied_by_theorem_10(
    n: int, isolated: NDArray[np.intp], axis: NDArray[np.intp] | None
) -> tuple[NDArray[np.int8], NDArray[np.int8]] | None:
    """Return two partitions that tie because of an isolated row or of two mirror images.

    Each separates a single row from the others. For n = 2 both partitions are the same, which the
    theorem and its proof overlook.
    """
    apart = 1 - 2 * np.eye(n, dtype=np.int8)
    if isolated.size:
        return np.ones(n, dtype=np.int8), apart[isolated[0]]
    if axis is not None and n > 2:
        i = np.flatnonzero(axis != np.arange(n))[0]
        return apart[i], apart[axis[i]]
    return None


def _closest_partitions(Q: NDArray) -> tuple[float, tuple[NDArray[np.int8], NDArray[np.int8]]]:
    r"""Return the smallest value of eq. 20 relative to the largest \|Q_ij\|, and its partitions.

    JMLR definition 5 requires signs :math:`\delta` and a proper, non-empty subset K of the rows
    with (eq. 20)

    .. math:: \Bigl(\sum_{k \in K} \delta_k e_k\Bigr)' Q
              \Bigl(\sum_{k \notin K} \delta_k e_k\Bigr) = 0.

    The left side is a quarter of :math:`y'Qy - z'Qz`, where y are the signs :math:`\delta` and z
    the same signs reversed outside K. Hence eq. 20 has a solution if and only if two partitions y
    and z, neither equal nor opposite, have the same value. Sorting the :math:`2^{n-1}` values
    finds it; enumerating all K and :math:`\delta` would take :math:`4^n` sums.
    """
    n = len(Q)
    # (y'Qy - trace) / 2 of all y whose first entry is 1; bit i of the index is y_{i+1}.
    values = np.zeros(1)
    for k in range(1, n):
        field = np.full(1, Q[k, 0])  # Q[k, :k] y of the same y, in the same order
        for i in range(1, k):
            field = np.concatenate([field + Q[k, i], field - Q[k, i]])
        values = np.concatenate([values + field, values - field])
    order = np.argsort(values, kind="stable")
    closest = int(np.argmin(np.diff(values[order])))
    bits = (order[closest : closest + 2, None] >> np.arange(n - 1)) & 1
    first, second = np.hstack([np.ones((2, 1)), 1 - 2 * bits]).astype(np.int8)
    same = first == second
    products = Q[np.ix_(same, ~same)] * np.outer(first[same], first[~same])
    gap = abs(math.fsum(products.ravel()))
    # Entries of Q and sums of them are rounded: closer values count as ties.
    if gap <= 8 * np.finfo(np.float64).eps * float(np.abs(Q).sum()):
        gap = 0.0
    return gap / (float(np.abs(Q).max()) or 1.0), (first, second)


def dense_symmetric(Q: Any) -> NDArray[np.float64]:
    """Return Q as a dense float64 array, exactly symmetric, after checks."""
    n = Q.n if isinstance(Q, SPDOperator) else (getattr(Q, "shape", None) or (0,))[0]
    require_memory(
        6 * 8.0 * n**2,
        f"A dense Q of {n} rows, with its eigenvalues and colours,",
        "Use a sample of the rows.",
    )
    if isinstance(Q, SPDOperator):
        Q = Q.matvec(np.eye(n))
    matrix = Q.toarray() if issparse(Q) else Q
    Q = check_matrix(matrix, name="Q", accept_sparse=False, min_rows=2).astype(np.float64)
    if Q.shape[0] != Q.shape[1]:
        raise ValueError(
            f"Q must be square, got shape {Q.shape}. Pass the matrix between rows, not the rows."
        )
    check_symmetric(Q, "Q")
    return (Q + Q.T) / 2


# -------------------------------------------------------------------- search for a reflection of Q


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
