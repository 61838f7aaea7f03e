"""Activations: relu, both forms of GELU (Hendrycks & Gimpel, 2016), SwiGLU's silu(gate) · up and GeGLU's gelu_tanh(gate) ·
up (Shazeer, 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tiles import tiles
from toolkit.ops.tolerance import BitExact, Within, spacing


def silu(x: Array) -> Array:
    """x / (1 + e^-x), unrounded."""
    result: Array = x / (1.0 + np.exp(-x))
    return result


def _twice_u(x: Array) -> Array:
    result: Array = 2.0 * np.sqrt(2.0 / np.pi) * (x + 0.044715 * (x * x * x))
    return result


def _gelu_tanh(x: Array) -> Array:
    # x/2 · (1 + tanh u), in a form that does not cancel where u is negative.
    result: Array = x / (1.0 + np.exp(-_twice_u(x)))
    return result


def _halves(gate_up: Array) -> tuple[Array, Array]:
    half = gate_up.shape[-1] // 2
    return gate_up[..., :half], gate_up[..., half:]


def _check(name: str, gate_up: Array) -> None:
    if gate_up.shape[-1] % 2:
        raise ToolkitError(
            f"{name} takes gate and up side by side, an even number of columns, not {list(gate_up.shape)}"
        )


def _gated(name: str, activation: Callable[[Array], Array], gate_up: Array) -> Array:
    _check(name, gate_up)
    gate, up = _halves(gate_up)
    active = widen(narrow(activation(widen(gate)), gate_up.dtype))
    return narrow(active * widen(up), gate_up.dtype)


def _spec(name: str, gate_up: Array) -> Spec:
    _check(name, gate_up)
    return Spec((*gate_up.shape[:-1], gate_up.shape[-1] // 2), gate_up.dtype)


def _launch(name: str, out: Array, gate_up: Array) -> Launch:
    columns = out.shape[-1]
    rows = out.size // columns if columns else 0
    return Launch(f"{name}_{suffix(gate_up)}", (rows, tiles(columns)), (gate_up, out, columns))


def _bound(activation: Callable[[Array], Array], exponent: Callable[[Array], Array], gate: Array, up: Array) -> Array:
    """The activation's error times |up|. See the tolerances' reasons for its terms."""
    wide = gate.astype(np.float64)
    with np.errstate(all="ignore"):
        active = activation(wide)
        float32 = (3.0 + 3.0 * np.abs(exponent(wide))) * 2.0**-23 * np.abs(active) + 2.0**-121
        boundary = 0.0 if gate.dtype == FLOAT32 else spacing(active.astype(gate.dtype))
        bound: Array = (float32 + boundary) * np.abs(up.astype(np.float64))
    return bound


def silu_bound(gate: Array, up: Array) -> Array:
    """How far silu(gate) · up, rounded to the gate's dtype in between, can be from the reference."""
    return _bound(silu, np.zeros_like, gate, up)


REASON = (
    "1 + e^-t and the quotient are rounded after an exp within 1.1 ULP: 3 ULP of float32; below t = -88.7 e^-t overflows "
    "and the activation is zero, at most 2^-121 away; in a narrower dtype it may fall on the other side of one rounding "
    "boundary, and it is multiplied by up after that"
)


@op(
    kernel="activation.hip",
    tolerance=Within(lambda gate_up: _bound(silu, np.zeros_like, *_halves(gate_up)), because=REASON),
)
def silu_mul(gate_up: Array) -> Array:
    """gate_up [..., 2 · columns], the gate first → silu(gate) · up, [..., columns] in the same dtype.

    silu(x) = x / (1 + e^-x) is rounded to the storage dtype before the product, as the models do. Raises ToolkitError
    when the number of columns is odd.
    """
    return _gated("silu_mul", silu, gate_up)


@silu_mul.outputs
def _(gate_up: Array) -> Spec:
    return _spec("silu_mul", gate_up)


@silu_mul.provider("tiles")
def _(out: Array, gate_up: Array) -> Launch:
    return _launch("silu_mul", out, gate_up)


@op(
    kernel="activation.hip",
    tolerance=Within(
        lambda gate_up: _bound(_gelu_tanh, _twice_u, *_halves(gate_up)),
        because=REASON + "; t = 2 u carries six roundings of half an ULP each, which e^-t magnifies |t| times",
    ),
)
def gelu_tanh_mul(gate_up: Array) -> Array:
    """gate_up [..., 2 · columns], the gate first → gelu(gate) · up, [..., columns] in the same dtype.

    gelu(x) = x/2 · (1 + tanh u), u = sqrt(2/π) (x + 0.044715 x³) (Hendrycks & Gimpel, 2016), which is x / (1 + e^-2u), is
    rounded to the storage dtype before the product, as the models do. Raises ToolkitError when the number of columns is
    odd.
    """
    return _gated("gelu_tanh_mul", _gelu_tanh, gate_up)


@gelu_tanh_mul.outputs
def _(gate_up: Array) -> Spec:
    return _spec("gelu_tanh_mul", gate_up)


@gelu_tanh_mul.provider("tiles")
def _(out: Array, gate_up: Array) -> Launch:
    return _launch("gelu_tanh_mul", out, gate_up)


@silu_mul.cases
@gelu_tanh_mul.cases
def _(draw: Draw) -> Iterator[Case]:
    for rows, columns in ((1, 1), (3, 17), (2, 1024), (5, 1152)):
        yield draw.case(draw.normal(rows, 2 * columns))
    yield draw.case(draw.normal(2, 3, 128, scale=4.0))
    yield draw.case(draw.normal(3, 4096, scale=30.0))
    # Special gates with an ordinary up, then the reverse.
    special, ordinary = draw.special(), np.full(draw.special().shape, 1.5, draw.dtype)
    yield draw.case(np.stack([np.concatenate([special, ordinary]), np.concatenate([ordinary, special])]))
    # From where the activation vanishes to where it is the gate itself.
    yield draw.case(np.concatenate([np.linspace(-120.0, 120.0, 4801), np.full(4801, 1.5)])[None, :].astype(draw.dtype))


# -------------------------------------------------------------------------------------------------------- without a gate


def _plain_cases(draw: Draw) -> Iterator[Case]:
    for shape in ((1,), (3, 17), (2, 1024), (5, 1025), (2, 3, 64)):
        yield draw.case(draw.normal(*shape, scale=2.0))
    yield draw.case(draw.special())
    yield draw.case(draw.normal(4, 1024, scale=1e-3))
    # From where the activation vanishes to where it is the number itself.
    yield draw.case(np.linspace(-20.0, 20.0, 8001).astype(draw.dtype))


def _plain_launch(name: str, out: Array, x: Array) -> Launch:
    return Launch(f"{name}_{suffix(x)}", (tiles(x.size),), (x, out, np.int64(x.size)))


@op(kernel="activation.hip", tolerance=BitExact(because="a comparison; what is chosen keeps its bits"))
def relu(x: Array) -> Array:
    """x of any shape → max(x, 0) in x's dtype. NaN stays NaN, -0.0 becomes 0.0, denormals keep their bits."""
    return np.where(np.signbit(x) & ~np.isnan(x), np.zeros((), x.dtype), x)


@relu.outputs
def _(x: Array) -> Spec:
    return Spec(x.shape, x.dtype)


@relu.provider("tiles")
def _(out: Array, x: Array) -> Launch:
    return _plain_launch("relu", out, x)


@relu.cases
def _(draw: Draw) -> Iterator[Case]:
    yield from _plain_cases(draw)


def _gelu_tanh_bound(x: Array) -> Array:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        relative = 3.0 + 3.0 * np.abs(_twice_u(wide))
        bound: Array = relative * 2.0**-23 * np.abs(_gelu_tanh(wide)) + 2.0**-121
    return bound


@op(
    kernel="activation.hip",
    tolerance=Within(
        _gelu_tanh_bound,
        because="1 + e^-t and the quotient are rounded after an exp within 1.1 ULP: 3 ULP of float32; t = 2 u carries six "
        "roundings of half an ULP each, which e^-t magnifies |t| times; below t = -88.7 e^-t overflows and the "
        "activation is zero, at most 2^-121 away",
    ),
)
def gelu_tanh(x: Array) -> Array:
    """x of any shape → gelu(x) = x/2 · (1 + tanh u), u = sqrt(2/π) (x + 0.044715 x³), in x's dtype, rounded once.

    The tanh form of Hendrycks & Gimpel (2016), evaluated as x / (1 + e^-2u), which does not cancel for negative x.
    """
    return narrow(_gelu_tanh(widen(x)), x.dtype)


@gelu_tanh.outputs
def _(x: Array) -> Spec:
    return Spec(x.shape, x.dtype)


@gelu_tanh.provider("tiles")
def _(out: Array, x: Array) -> Launch:
    return _plain_launch("gelu_tanh", out, x)


@gelu_tanh.cases
def _(draw: Draw) -> Iterator[Case]:
    yield from _plain_cases(draw)


_erfc = np.frompyfunc(math.erfc, 1, 1)


def _gelu_erf(x: Array) -> Array:
    # erfc, not 1 + erf, which would cancel for negative x.
    result: Array = x * (0.5 * np.asarray(_erfc(x * -math.sqrt(0.5)), np.float64))
    return result


def _gelu_erf_bound(x: Array) -> Array:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        bound: Array = 8.0 * 2.0**-23 * np.abs(_gelu_erf(wide)) + 2.0**-121
    return bound


@op(
    kernel="activation.hip",
    tolerance=Within(
        _gelu_erf_bound,
        because="the normal distribution's tail is within 6.7 ULP of float32, its difference from one and the product round "
        "once each; where the tail is below the smallest normal float32 it is zero, which the product with x makes 2^-122",
    ),
)
def gelu_erf(x: Array) -> Array:
    """x of any shape → gelu(x) = x · Φ(x) = x/2 · (1 + erf(x / sqrt 2)) in x's dtype, rounded once.

    The exact form of Hendrycks & Gimpel (2016). -inf gives NaN, as -inf · 0 does.
    """
    return narrow(_gelu_erf(widen(x)), x.dtype)


@gelu_erf.outputs
def _(x: Array) -> Spec:
    return Spec(x.shape, x.dtype)


@gelu_erf.provider("tiles")
def _(out: Array, x: Array) -> Launch:
    return _plain_launch("gelu_erf", out, x)


@gelu_erf.cases
def _(draw: Draw) -> Iterator[Case]:
    yield from _plain_cases(draw)
