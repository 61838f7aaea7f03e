"""The gate of an attention's output (Qwen3-Next, Qwen3.5): x · sigmoid(gate)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tiles import tiles
from toolkit.ops.tolerance import Within, spacing


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), unrounded."""
    result: Array = 1.0 / (1.0 + np.exp(-x))
    return result


def gate_bound(x: Array, gate: Array) -> Array:
    """How far x · sigmoid(gate), the sigmoid rounded to the gate's dtype, can be from the reference before it is rounded."""
    with np.errstate(all="ignore"):
        opened = sigmoid(gate.astype(np.float64))
        boundary = 0.0 if gate.dtype == FLOAT32 else spacing(opened.astype(gate.dtype))
        bound: Array = (4.0 * 2.0**-23 * opened + 2.0**-121 + boundary) * np.abs(x.astype(np.float64))
    return bound


BECAUSE = (
    "1 + e^-g and the quotient are rounded after an exp within 1.1 ULP: 4 ULP of float32 at most, less than 2^-121 where "
    "e^-g overflows; rounded to a narrower dtype the sigmoid may fall on the other side of one boundary"
)


def _check(x: Array, gate: Array) -> None:
    if x.shape != gate.shape:
        raise ToolkitError(f"sigmoid_gate takes x and gate of one shape, not {list(x.shape)} and {list(gate.shape)}")


@op(kernel="activation.hip", tolerance=Within(gate_bound, because=BECAUSE))
def sigmoid_gate(x: Array, gate: Array) -> Array:
    """x and gate of one shape, each of its own dtype → x · sigmoid(gate) in x's shape and dtype.

    The sigmoid is rounded to the *gate's* dtype before the product: with a gate in the model's dtype that is what
    transformers computes, with a float32 gate it is one rounding at the end. Raises ToolkitError when shapes differ.
    """
    _check(x, gate)
    return narrow(widen(x) * widen(narrow(sigmoid(widen(gate)), gate.dtype)), x.dtype)


@sigmoid_gate.outputs
def _(x: Array, gate: Array) -> Spec:
    _check(x, gate)
    return Spec(x.shape, x.dtype)


@sigmoid_gate.provider("tiles", when=lambda x, gate: gate.dtype == x.dtype or FLOAT32 in (x.dtype, gate.dtype))
def _(out: Array, x: Array, gate: Array) -> Launch:
    return Launch(f"sigmoid_gate_{suffix(x, gate)}", (tiles(x.size),), (x, gate, out, np.int64(x.size)))


@sigmoid_gate.cases
def _(draw: Draw) -> Iterator[Case]:
    for dtype in dict.fromkeys((draw.dtype, FLOAT32)):
        for shape in ((1,), (3, 17), (2, 1024), (5, 1025), (2, 3, 64)):
            yield draw.case(draw.normal(*shape), draw.normal(*shape, scale=3.0, dtype=dtype))
        special = draw.special()
        yield draw.case(special, np.full(special.shape, 0.5, dtype))
        yield draw.case(np.full(special.shape, 1.5, draw.dtype), special.astype(dtype))
        yield draw.case(np.full(4801, 1.5, draw.dtype), np.linspace(-120.0, 120.0, 4801).astype(dtype))
    if draw.dtype == FLOAT32:
        yield draw.case(draw.normal(3, 65), draw.normal(3, 65, dtype=np.dtype(np.float16)))
