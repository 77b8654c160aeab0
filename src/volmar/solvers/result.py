"""The result class of all solvers, with its certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from volmar._notebook import html_card


class Status(Enum):
    """How a solver ended.

    - ``CONVERGED``: the requested tolerance was reached.
    - ``MAX_ITER``: the iteration limit was reached first.
    - ``CYCLE``: labels, or a cut, recurred.
    - ``DEGENERATE``: the data do not determine a unique solution.
    - ``UNBOUNDED``: the objective has no lower bound.
    - ``STOPPED``: a rule of the algorithm ended it before convergence.
    - ``FAILED``: numerical errors prevented further progress.
    """

    CONVERGED = "converged"
    MAX_ITER = "iteration limit reached"
    CYCLE = "the iteration cycles, because labels or a cut recurred"
    DEGENERATE = "the problem does not determine a unique solution"
    UNBOUNDED = "the objective has no lower bound"
    STOPPED = "the algorithm's own rule ended it before convergence"
    FAILED = "numerical errors prevented further progress"

    @property
    def ok(self) -> bool:
        """Whether the status is CONVERGED."""
        return self is Status.CONVERGED

    def __reduce__(self) -> tuple[type[Status], tuple[str]]:
        return Status, (self.value,)  # model files cannot hold the attributes of a member


@dataclass(frozen=True)
class Certificate:
    """Objective, gap and residuals of a point, computed by a problem from its own data.

    `gap` and `residuals` are defined as in `Result`.
    """

    objective: float
    residuals: Mapping[str, float] = field(default_factory=dict)
    gap: float = float("nan")


class CertifyingProblem(Protocol):
    """A problem that computes the certificate of any point."""

    #: Function of the fields named in `Result._solution`; returns a `Certificate`.
    certificate: Any


@dataclass(frozen=True)
class Result:
    """Solution of a solver, with the quantities that certify it.

    Attributes
    ----------
    objective : float
        Value of the minimised objective at the returned point.
    gap : float
        Certified upper bound on the distance of `objective` to the optimum; NaN if unknown.
    residuals : mapping of str to float
        Named optimality residuals, each zero at an exact solution; NaN if undefined.
    status : Status
        How the solver ended.
    n_iter : int
        Number of iterations of the run that was kept.
    history : tuple of float
        Objective after each iteration of that run; a single value for a direct solver.
    """

    #: Fields that are passed to the problem's `certificate`.
    _solution: ClassVar[tuple[str, ...]] = ()
    #: What `gap` is relative to.
    _optimum: ClassVar[str] = "the optimum"
    #: Fields that contain cluster numbers.
    _numbers: ClassVar[tuple[str, ...]] = ("labels",)
    #: Fields whose sign distinguishes two clusters. With more clusters, they have one entry per
    #: cluster on the last axis.
    _signed: ClassVar[tuple[str, ...]] = ()
    #: Fields with one entry per cluster on the given axis, for two clusters or more.
    _per_cluster: ClassVar[Mapping[str, int]] = MappingProxyType({})

    objective: float
    gap: float = float("nan")
    residuals: Mapping[str, float] = field(default_factory=dict)
    status: Status = Status.CONVERGED
    n_iter: int = 0
    history: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "residuals", MappingProxyType(dict(self.residuals)))

    def __repr__(self) -> str:
        """Return all fields by name, with arrays and long tuples abbreviated."""
        parts = []
        for one in fields(self):
            name, value = one.name, getattr(self, one.name)
            if isinstance(value, np.ndarray):
                value = f"<array of shape {value.shape}>"
            elif isinstance(value, tuple) and len(value) > 3:
                last = value[-1]  # of history or warnings
                last = f"{last:.6g}" if isinstance(last, float) else repr(last)
                value = f"<{len(value)} values, last {last}>"
            elif isinstance(value, Mapping):
                value = dict(value)
            elif isinstance(value, float):
                value = f"{value:.6g}"
            elif isinstance(value, Enum):
                value = value.name
            parts.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __str__(self) -> str:
        """Return a summary of the run and of its certificate, one line for each."""
        lines = [f"{type(self).__name__}: {self._ending()}", *map(": ".join, self._summary())]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the summary as HTML for a notebook."""
        return html_card(type(self).__name__, [self._ending()], rows=self._summary())

    def _ending(self) -> str:
        plural = "" if self.n_iter == 1 else "s"
        return f"{self.status.value}, {self.n_iter} iteration{plural}."

    def _summary(self) -> list[tuple[str, str]]:
        gap = "no bound is known for this problem"
        if np.isfinite(self.gap):
            gap = f"at most {self.gap:.3g} above {self._optimum}"
        rows = [("objective", f"{self.objective:.6g}"), ("gap", gap)]
        if self.residuals:
            shown = ", ".join(f"{name} {value:.2g}" for name, value in self.residuals.items())
            rows.append(("residuals", f"{shown} (0 at a solution)"))
        return rows

    def __reduce__(self):
        """Pickle `residuals` as a dict, because a mapping proxy cannot be pickled."""
        state = {one.name: getattr(self, one.name) for one in fields(self)}
        return _rebuild, (type(self), state | {"residuals": dict(self.residuals)})

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a model file. Pickles and copies use `__reduce__`."""
        return vars(self) | {"residuals": dict(self.residuals), "history": ()}

    def renumbered(self, order: NDArray) -> Self:
        """Return the same result with cluster ``order[j]`` renumbered to j."""
        if np.array_equal(order, np.arange(len(order))):
            return self
        changed: dict[str, Any] = {}
        for name in self._numbers:
            changed[name] = _renumbered(getattr(self, name), order)
        for name in self._signed:
            value = getattr(self, name)
            changed[name] = -value if len(order) == 2 else np.take(value, order, axis=-1)
        for name, axis in self._per_cluster.items():
            value = getattr(self, name)  # empty clusters, which are last, may have no entry
            changed[name] = np.take(value, order[order < value.shape[axis]], axis=axis)
        if "scores" in self._signed and len(order) == 2:
            # A row on the border always belongs to cluster 0.
            changed["labels"] = changed["labels"] * (changed["scores"] != 0)
        return replace(self, **changed)

    def is_certified(self, tol: float) -> bool:
        """Return whether the solver converged, with gap and residuals within `tol`.

        The gap is compared with ``tol * max(1, abs(objective))``. A NaN gap is never certified;
        use `is_stationary` for problems without a lower bound.
        """
        is_near = self.gap <= tol * max(1.0, abs(self.objective))  # NaN is not
        return bool(self.status.ok and is_near and all(r <= tol for r in self.residuals.values()))

    def is_stationary(self, tol: float) -> bool:
        """Return whether residuals exist and are all within `tol`; NaN is not."""
        return bool(self.residuals) and all(r <= tol for r in self.residuals.values())

    def check(self, problem: CertifyingProblem) -> Self:
        """Return this result with objective, gap and residuals recomputed from its problem.

        `problem` is the one that was solved, e.g. a VolumeProblem, AVRProblem or WorkingSet.
        """
        if not self._solution:
            raise TypeError(f"{type(self).__name__} does not support check.")
        solution = (getattr(self, name) for name in self._solution)
        return replace(self, **vars(problem.certificate(*solution)))


def _rebuild(cls: type[Result], state: dict) -> Result:
    return cls(**state)


def _renumbered(labels: Any, order: NDArray) -> Any:
    if len(order) == 2:
        return (labels == 0).astype(np.int64)
    ranks = np.argsort(order)
    # Rows in blocks have no array of labels.
    return ranks[labels] if isinstance(labels, np.ndarray) else labels.choose(ranks)
