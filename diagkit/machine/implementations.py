"""What published implementations of attention do: whose instructions they use, what they hide behind the products.

These are facts about programs, from their papers and names, or "assumed" where nobody says; the model of
`additive` reads them. Nothing here is chosen by the speed of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from diagkit.machine.facts import MachineError


@dataclass(frozen=True)
class Implementation:
    """One implementation of attention.

    * `pipelined`: whether the operations of softmax other than exponentials run beside products;
    * `mma_sync`: whether products are the synchronous instructions of the generation before Hopper;
    * `source`: where that is said, or "assumed".

    >>> Implementation(pipelined=True, mma_sync=False, source="assumed").pipelined
    True
    """

    pipelined: bool
    mma_sync: bool
    source: str


FA3 = Implementation(True, False, "FlashAttention-3 (arXiv 2407.08608), sections 3.1 and 3.2")
FA2 = Implementation(
    False, True, "FlashAttention-3 (arXiv 2407.08608), section 1: FlashAttention-2 is written for Ampere"
)
SAGE = Implementation(False, True, "assumed: SageAttention's first kernels are written as FlashAttention-2 is")
SAGE_HOPPER = Implementation(
    True, False, "assumed: SageAttention's kernels for Hopper are written as FlashAttention-3 is"
)
CUDNN = Implementation(True, False, "assumed: cuDNN is closed")
TRITON = Implementation(False, False, "compiled for sm_90 and read: tl.dot waits for QK before any softmax")
TLX = Implementation(True, False, "assumed, from its name: pipelined or ping-pong")
TLX_WS = Implementation(False, False, "assumed, from its name: warp-specialized loads and nothing more")
TILELANG = Implementation(False, False, "assumed: nobody says that its softmax runs beside products")

IMPLEMENTATIONS: dict[str, Implementation] = {
    "FA3": FA3, "FA3-fp16": FA3, "FA3-fp8": FA3, "FA2": FA2, "cuDNN9.1": CUDNN,
    "Triton-2024-04": TRITON, "Triton-2024": TRITON, "Triton-tutorial": TRITON, "Triton-baseline": TRITON,
    "Triton3.4": TRITON, "TLX-ws": TLX_WS, "autoWS(Meta fork)": TLX_WS, "TLX-ws-pipelined": TLX,
    "TLX-pingpong-persistent": TLX, "TLX": TLX, "TLX-ops": TLX, "TileLang": TILELANG,
    "SageAttn1": SAGE, "Sage 8+16": SAGE, "Sage 8+8": SAGE, "SageAttn2-8b": SAGE_HOPPER,
}  # fmt: skip


def implementation(name: str) -> Implementation:
    """What the implementation of that name does. Errors: `MachineError` where nothing is known of it.

    >>> implementation("FA2").mma_sync, implementation("FA3").pipelined
    (True, True)
    """
    if name not in IMPLEMENTATIONS:
        remedy = f"add a line to IMPLEMENTATIONS; known: {', '.join(IMPLEMENTATIONS)}"
        raise MachineError(f"nothing is known of the implementation {name!r}", field="impl", remedy=remedy)
    return IMPLEMENTATIONS[name]
