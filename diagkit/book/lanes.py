"""The schedule of a pipeline as a picture: what each warpgroup does, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from diagkit.draw import LaneBox
from diagkit.draw import lanes as lanes_svg
from diagkit.machine import PIPELINE_UNITS, Pipeline

TIME = "time, in what the products of a step take"


@dataclass(frozen=True)
class Lanes:
    """A schedule drawn: `svg` is its text, `caption` says in words what it shows."""

    svg: str
    caption: str

    def __str__(self) -> str:
        return self.caption

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> Mapping[str, Any]:
        return {"image/svg+xml": self.svg, "text/plain": self.caption}


def lane_boxes(pipeline: Pipeline, steps: int) -> list[LaneBox]:
    """The operations of the first steps as boxes, a lane for each warpgroup.

    >>> from diagkit.machine import load, pipeline
    >>> lane_boxes(pipeline(load("H100-SXM"), "fp16", "intra"), 2)[0].label
    'QK 0'
    """
    return [
        LaneBox(
            f"warpgroup {slot.warpgroup}", PIPELINE_UNITS[slot.kind], f"{slot.kind} {slot.step}", float(slot.start),
            float(slot.end), None if (at := pipeline.exponentials_end(slot)) is None else float(at),
        )
        for slot in pipeline.schedule(steps)
    ]  # fmt: skip


def lanes(pipeline: Pipeline, steps: int = 4, title: str = "", theme: str = "light") -> Lanes:
    """The first steps of a pipeline as lanes: boxes as wide as they take, coloured by unit, overhead hatched,
    a dotted line where the tensor cores had to wait for a softmax."""
    named = title or f"{pipeline.overlap}-warpgroup overlap"
    boxes = sorted(lane_boxes(pipeline, steps), key=lambda box: (box.lane, box.start, box.unit))
    waits = [float(at) for at in pipeline.barriers(steps)]
    busy = f"tensor cores busy {pipeline.tensor_busy:.1%} of the time in the long run"
    return Lanes(lanes_svg(boxes, waits, f"{named}: {busy}", TIME, theme), f"{named}, {steps} steps: {busy}")
