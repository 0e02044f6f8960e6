"""The schedule of a pipeline as a picture: what each warpgroup does, step by step."""

from __future__ import annotations

from diagkit.diagram import Picture
from diagkit.draw import LaneBox, lanes_scene
from diagkit.machine import PIPELINE_UNITS, Pipeline, Slot

TIME = "time, in what the products of a step take"
CLOCKS = "clocks"


def lane_boxes(pipeline: Pipeline, steps: int) -> list[LaneBox]:
    """The operations of the first steps as boxes, a lane for each warpgroup; in clocks where the pipeline has them.

    >>> from diagkit.machine import load, pipeline
    >>> lane_boxes(pipeline(load("H100-SXM"), "fp16", "intra"), 2)[0].label
    'QK 0'
    """
    unit = pipeline.clocks or 1
    return [
        LaneBox(
            f"warpgroup {slot.warpgroup}", PIPELINE_UNITS[slot.kind], f"{slot.kind} {slot.step}",
            unit * float(slot.start), unit * float(slot.end), _overhead(pipeline, slot, unit),
        )
        for slot in pipeline.schedule(steps)
    ]  # fmt: skip


def _overhead(pipeline: Pipeline, slot: Slot, unit: float) -> float | None:
    at = pipeline.exponentials_end(slot)
    return None if at is None else unit * float(at)


def lanes(pipeline: Pipeline, steps: int = 4, title: str = "", theme: str = "light") -> Picture:
    """The first steps of a pipeline as lanes: boxes as wide as they take, coloured by unit, overhead hatched,
    a dotted line where the tensor cores had to wait for a softmax.

    >>> from diagkit.machine import load, pipeline
    >>> lanes(pipeline(load("H100-SXM"), "fp16", "intra"), 2).caption
    'intra-warpgroup overlap, 2 steps: tensor cores busy 75.0% of the time in the long run'
    """
    named = title or f"{pipeline.overlap}-warpgroup overlap"
    boxes = sorted(lane_boxes(pipeline, steps), key=lambda box: (box.lane, box.start, box.unit))
    waits = [(pipeline.clocks or 1) * float(at) for at in pipeline.barriers(steps)]
    busy = f"tensor cores busy {pipeline.tensor_busy:.1%} of the time in the long run"
    time = CLOCKS if pipeline.clocks else TIME
    return Picture(lanes_scene(boxes, waits, f"{named}: {busy}", time), f"{named}, {steps} steps: {busy}", theme)
