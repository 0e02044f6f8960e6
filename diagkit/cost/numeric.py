"""The general optimum, in logarithms: there a posynomial is convex, and Newton's method inside a barrier
finds the one minimum. A few hundred small steps at most, so the time is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagkit.cost.posynomial import Posynomial
from diagkit.term import DiagkitError

MOST_STEPS = 400
SHARPEST = 1e10


@dataclass(frozen=True)
class LogSum:
    """log of a posynomial as a function of y = log of the tiles: exponents (terms x tiles), log factors."""

    exponents: np.ndarray[Any, Any]
    logs: np.ndarray[Any, Any]

    def __call__(self, y: Any) -> tuple[float, Any, Any]:
        """Value, gradient and Hessian at y."""
        shown = self.exponents @ y + self.logs
        top = shown.max()
        share = np.exp(shown - top)
        total = share.sum()
        share /= total
        gradient = self.exponents.T @ share
        hessian = (self.exponents.T * share) @ self.exponents - np.outer(gradient, gradient)
        return float(top + np.log(total)), gradient, hessian


def log_sum(sum_: Posynomial, scale: float = 1.0) -> LogSum:
    """The log of `sum_` / `scale`, whose factors must be positive numbers."""
    exponents = np.array([[float(power) for power in powers] for powers, _ in sum_.terms])
    factors = np.array([float(factor) for _, factor in sum_.terms])
    if (factors <= 0).any():
        raise DiagkitError("a term of the sum is not positive", remedy="ask for the legal tile, which searches")
    return LogSum(exponents, np.log(factors) - np.log(scale))


def minimise(
    transfers: Posynomial, memory: Sequence[Posynomial], limit: float, most: Sequence[float]
) -> dict[Any, float]:
    """The tiles, from 1 to `most` each, that move least while every memory sum stays within `limit`.

    A DiagkitError where not even tiles of one element fit.
    """
    upper = np.log(np.array(most, dtype=float))
    free = upper > 0
    y = np.zeros(len(most))
    bounds = [log_sum(sum_, limit) for sum_ in memory if sum_.terms]
    fullest = max((bound(y)[0] for bound in bounds), default=-1.0)
    if fullest > 0:
        raise DiagkitError(
            f"tiles of one element need {np.exp(fullest) * limit:.6g}, and the memory is {limit:.6g}",
            remedy="give more memory, or stream in smaller chunks",
        )
    if fullest < -1e-12 and free.any():
        y = _inside(log_sum(transfers), bounds, upper, free)
    return dict(zip(transfers.variables, map(float, np.exp(y)), strict=True))


def _inside(goal: LogSum, bounds: list[LogSum], upper: Any, free: Any) -> Any:
    """Newton's method on goal * sharpness - sum(log(room)), the sharpness growing."""
    y = _start(bounds, upper, free)
    sharpness, steps = 1.0, 0
    while sharpness < SHARPEST and steps < MOST_STEPS:
        step, promise = _newton(goal, bounds, upper, free, y, sharpness)
        before, y, steps = y, _moved(goal, bounds, upper, free, y, step, sharpness), steps + 1
        if promise < 1e-6 or y is before:
            sharpness *= 8.0
    return y


def _start(bounds: list[LogSum], upper: Any, free: Any) -> Any:
    """A point with room on every side: near tiles of one element."""
    reach = 0.5
    while any(bound(np.where(free, reach * upper, 0.0))[0] >= 0 for bound in bounds):
        reach /= 2
    return np.where(free, reach * upper, 0.0)


def _barrier(goal: LogSum, bounds: list[LogSum], upper: Any, free: Any, y: Any, sharpness: float) -> float:
    rooms = [-bound(y)[0] for bound in bounds] + list(y[free]) + list((upper - y)[free])
    if min(rooms) <= 0:
        return float("inf")
    return float(sharpness * goal(y)[0] - np.log(rooms).sum())


def _newton(goal: LogSum, bounds: list[LogSum], upper: Any, free: Any, y: Any, sharpness: float) -> tuple[Any, float]:
    """The Newton step and how much it promises."""
    _, gradient, hessian = goal(y)
    gradient, hessian = sharpness * gradient, sharpness * hessian
    for bound in bounds:
        value, slope, bend = bound(y)
        gradient = gradient - slope / value
        hessian = hessian - bend / value + np.outer(slope, slope) / value**2
    low, high = np.where(free, y, 1.0), np.where(free, upper - y, 1.0)
    gradient = np.where(free, gradient - 1 / low + 1 / high, 0.0)
    hessian = hessian + np.diag(1 / low**2 + 1 / high**2)
    hessian[~free, :] = hessian[:, ~free] = 0
    hessian += np.diag(np.where(free, 0.0, 1.0))
    step = -np.linalg.solve(hessian, gradient)
    return step, float(-gradient @ step)


def _moved(goal: LogSum, bounds: list[LogSum], upper: Any, free: Any, y: Any, step: Any, sharpness: float) -> Any:
    """As far along the step as helps."""
    here, length = _barrier(goal, bounds, upper, free, y, sharpness), 1.0
    while length > 1e-6 and _barrier(goal, bounds, upper, free, y + length * step, sharpness) > here:
        length /= 2
    return y + length * step if length > 1e-6 else y
