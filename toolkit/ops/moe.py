"""Mixture of experts (Shazeer et al., 2017; in the form of Switch, Mixtral and Qwen3-MoE): every token goes to the k experts
that its router prefers, and what they give is added by the router's weights.

A *pair* is one token at one of its experts: pair p is rank p % k of token p // k. ``moe_sort`` puts pairs of one expert
next to each other, ``moe_linear`` multiplies each with its expert's weight, ``moe_combine`` adds them per token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices import arithmetic
from toolkit.devices.arithmetic import Array, narrow, narrow_product, to_float32, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32
from toolkit.errors import ToolkitError
from toolkit.ops.activation import silu, silu_bound
from toolkit.ops.alignment import aligned
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.gating import BECAUSE, gate_bound, sigmoid
from toolkit.ops.linear import MATRIX_TILE, rounding_bound
from toolkit.ops.tiles import tiles
from toolkit.ops.tolerance import BitExact, PerOutput, Within, spacing

# Geometry of kernels/moe.hip.
EXPERT_COLUMNS = 8
LARGEST_COUNT = 1024


# ------------------------------------------------------------------------------------------------------------- router


def _check_router(logits: Array, k: int) -> None:
    if logits.ndim != 2 or not 1 <= k <= logits.shape[1]:
        raise ToolkitError(
            f"moe_router takes logits [tokens, experts] and a k from 1 to the number of experts, "
            f"not {list(logits.shape)} and k = {k}"
        )


def _router_bound(logits: Array, *, k: int, renormalise: bool, factor: float, narrow_weights: bool) -> Array:
    wide = logits.astype(np.float64)
    indices = np.argsort(-wide, axis=-1, kind="stable")[:, :k]
    with np.errstate(all="ignore"):
        shifted = wide - wide.max(axis=-1, keepdims=True)
        probabilities = np.exp(shifted)
        probabilities /= probabilities.sum(axis=-1, keepdims=True)
        mean_shift = (probabilities * np.abs(np.where(probabilities > 0, shifted, 0.0))).sum(axis=-1, keepdims=True)
        chosen = np.take_along_axis(probabilities, indices, axis=-1)
        weights = factor * (chosen / chosen.sum(axis=-1, keepdims=True) if renormalise else chosen)
        own_shift = np.abs(np.take_along_axis(shifted, indices, axis=-1))
        relative = 64.0 + logits.shape[1] / 256 + k + own_shift + 2.0 * mean_shift
        bound: Array = relative * 2.0**-24 * np.abs(weights) + 2.0**-120
        if narrow_weights and logits.dtype != FLOAT32:
            bound = bound + spacing(weights.astype(logits.dtype))
    return bound


@op(
    kernel="moe.hip",
    tolerance=PerOutput(
        Within(
            _router_bound,
            because="a weight is a quotient of exps within 1.1 ULP of a rounded argument, their sum by threads "
            "(experts/256 terms each, then some forty partial sums), the sum of the k chosen and the factor, each rounded; "
            "rounded to a narrower dtype it may fall on the other side of one boundary",
        ),
        BitExact(because="experts are selected by comparing logits, which computes nothing"),
    ),
)
def moe_router(
    logits: Array, *, k: int, renormalise: bool = True, factor: float = 1.0, narrow_weights: bool = False
) -> tuple[Array, Array]:
    """logits [tokens, experts] → weights float32 [tokens, k] and experts int32 [tokens, k], the best first.

    The softmax over all experts in float32, then the k most probable; among equals the lowest index comes first.
    Probabilities are compared by their logits, whose order is that of the exact probabilities, so that no device selects
    by how its exp rounds. With ``renormalise`` the k weights are divided by their sum; then they are multiplied by
    ``factor``. With ``narrow_weights`` they are rounded to the logits' dtype, as transformers does.

    A token whose logits hold NaN gets NaN weights and expert -1, which is none. Raises ToolkitError unless
    1 <= k <= experts.
    """
    _check_router(logits, k)
    wide = widen(logits)
    experts = np.argsort(-logits.astype(np.float64), axis=-1, kind="stable")[:, :k]
    powers = np.exp(wide - np.max(wide, axis=-1, keepdims=True))
    probabilities = to_float32(powers / np.sum(powers, axis=-1, keepdims=True))
    weights = np.take_along_axis(probabilities, experts, axis=-1)
    if renormalise:
        weights = to_float32(weights / to_float32(np.sum(weights, axis=-1, keepdims=True)))
    weights = to_float32(weights * to_float32(np.asarray(factor, np.float64)))
    if narrow_weights:
        weights = widen(narrow(weights, logits.dtype))
    broken = np.isnan(wide).any(axis=-1)
    weights[broken], experts[broken] = np.nan, -1
    return narrow(weights, FLOAT32), experts.astype(INT32)


@moe_router.outputs
def _(logits: Array, k: int, **_: Any) -> tuple[Spec, Spec]:
    _check_router(logits, k)
    shape = (logits.shape[0], k)
    return Spec(shape, FLOAT32), Spec(shape, INT32)


@moe_router.provider("token-per-block")
def _(
    out: tuple[Array, Array], logits: Array, k: int, renormalise: bool, factor: float, narrow_weights: bool
) -> Launch:
    arguments = (logits, *out, logits.shape[1], k, renormalise, float(factor), narrow_weights)
    return Launch(f"moe_router_{suffix(logits)}", (logits.shape[0],), arguments)


@moe_router.cases
def _(draw: Draw) -> Iterator[Case]:
    for tokens, experts, k in ((1, 1, 1), (3, 4, 4), (5, 8, 2), (2, 60, 4), (4, 128, 8), (3, 512, 10), (2, 300, 64)):
        for renormalise in (True, False):
            logits = draw.normal(tokens, experts, scale=2.0)
            yield draw.case(logits, k=k, renormalise=renormalise, narrow_weights=experts == 60)
    yield draw.case(draw.normal(2, 16), k=4, factor=2.5)
    # Ties: across the boundary of the k, everywhere, and of both zeros.
    tied = draw.normal(4, 128)
    tied[0, [5, 70, 100, 127]] = 9.0
    tied[1] = 1.0
    tied[2] = -0.0
    tied[2, 64:] = 0.0
    tied[3, ::2] = -np.inf
    for k in (2, 3, 8):
        yield draw.case(tied, k=k)
    broken = draw.normal(4, 32)
    broken[0, 7] = np.nan
    broken[1, 31] = np.inf
    broken[2, :] = -np.inf
    yield draw.case(broken, k=4)
    yield draw.case(draw.normal(3, 24, scale=60.0), k=8, renormalise=False)  # all but a few probabilities are zero
    yield draw.case(draw.normal(0, 8), k=2)


# --------------------------------------------------------------------------------------------------------------- sort


def _check_sort(experts: Array, count: int) -> None:
    if experts.ndim != 2 or np.dtype(experts.dtype) != INT32 or count < 1:
        raise ToolkitError(
            f"moe_sort takes experts int32 [tokens, k] of a positive count, "
            f"not {experts.dtype}{list(experts.shape)} of {count}"
        )


@op(
    kernel="moe.hip",
    tolerance=BitExact(because="a stable sort has one result"),
    dtypes=(FLOAT32,),
)
def moe_sort(experts: Array, *, count: int) -> tuple[Array, Array, Array]:
    """experts int32 [tokens, k], of ``count`` experts → the pairs by expert: a counting sort.

    order int32 [tokens · k]: order[offsets[e]] to order[offsets[e + 1] - 1] are the pairs of expert e, ascending. What
    is no expert's (-1, of a token whose router gave NaN) follows at the end, ascending. offsets is int32 [count + 1].
    active int32 [count] lists the experts that have pairs, ascending, then -1. Raises ToolkitError for other shapes.
    """
    _check_sort(experts, count)
    flat = experts.reshape(-1)
    belongs = (flat >= 0) & (flat < count)
    keys = np.where(belongs, flat, count)
    counts = np.bincount(keys, minlength=count + 1)[:count]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    active = np.full(count, -1, INT32)
    used = np.flatnonzero(counts)
    active[: len(used)] = used
    return np.argsort(keys, kind="stable").astype(INT32), offsets.astype(INT32), active


@moe_sort.outputs
def _(experts: Array, count: int) -> tuple[Spec, Spec, Spec]:
    _check_sort(experts, count)
    return Spec((experts.size,), INT32), Spec((count + 1,), INT32), Spec((count,), INT32)


@moe_sort.provider("one-block", when=lambda count, **_: count <= LARGEST_COUNT)
def _(out: tuple[Array, Array, Array], experts: Array, count: int) -> Launch:
    return Launch("moe_sort", (1,), (experts, *out, experts.size, count))


@moe_sort.cases
def _(draw: Draw) -> Iterator[Case]:
    for tokens, k, count in (
        (1, 1, 1),
        (1, 8, 128),
        (8, 8, 128),
        (5, 2, 3),
        (300, 4, 60),
        (130, 10, 512),
        (2, 3, 1024),
    ):
        yield draw.case(draw.integers(0, count, tokens, k), count=count)
    yield draw.case(np.full((40, 2), 3, np.int32), count=5)  # one expert takes all, the others are empty
    yield draw.case(np.full((3, 2), 7, np.int32), count=8)
    missing = draw.integers(0, 4, 9, 2)
    missing[[0, 4]] = -1
    yield draw.case(missing, count=4)
    yield draw.case(np.full((3, 2), -1, np.int32), count=4)
    yield draw.case(np.zeros((0, 2), np.int32), count=4)


# ----------------------------------------------------------------------------------------------------------- products


def _check_linear(x: Array, weight: Array, order: Array, offsets: Array, active: Array) -> None:
    pairs = order.shape[0]
    if (
        x.ndim != 2
        or weight.ndim != 3
        or x.shape[1] != weight.shape[2]
        or (pairs % x.shape[0] if x.shape[0] else pairs)
    ):
        raise ToolkitError(
            f"moe_linear takes x [tokens or pairs, K] and a weight [experts, N, K], not {list(x.shape)} and "
            f"{list(weight.shape)} for {pairs} pairs"
        )
    if offsets.shape != (weight.shape[0] + 1,) or active.shape != (weight.shape[0],):
        raise ToolkitError(
            f"moe_linear has {weight.shape[0]} experts, but the pairs were sorted for {active.shape[0]}; sort them with "
            f"count={weight.shape[0]}"
        )


def _groups(x: Array, order: Array, offsets: Array) -> Iterator[tuple[int, Array, Array]]:
    """For every active expert: its number, its pairs and their rows of x."""
    share = order.shape[0] // x.shape[0] if x.shape[0] else 1
    for expert in np.flatnonzero(np.diff(offsets)):
        pairs = order[offsets[expert] : offsets[expert + 1]]
        yield int(expert), pairs, x[pairs // share]


def _linear_bound(x: Array, weight: Array, order: Array, offsets: Array, active: Array) -> Array:
    bound = np.zeros((order.shape[0], weight.shape[1]))
    for expert, pairs, rows in _groups(x, order, offsets):
        bound[pairs] = rounding_bound(rows, weight[expert])
    return bound


@op(
    kernel="moe.hip",
    tolerance=Within(
        _linear_bound,
        because="as for linear: the order of a float32 sum is the kernel's; its roundings are bounded by their number times "
        "2^-24 of sum |x w|, and may then cross one boundary of the output dtype",
    ),
)
def moe_linear(x: Array, weight: Array, order: Array, offsets: Array, active: Array) -> Array:
    """The products of pairs with their experts' weights: → [pairs, N] in x's dtype, in the order of the pairs.

    weight is [experts, N, K]; order, offsets and active are what ``moe_sort`` gives. x is [pairs, K], or [tokens, K]
    where a token's k pairs share its row. Products are summed in float32 and rounded once. The row of a pair that has
    no expert is NaN. Raises ToolkitError when shapes do not fit.
    """
    _check_linear(x, weight, order, offsets, active)
    exact = arithmetic.current().exact
    out = np.full((order.shape[0], weight.shape[1]), np.nan, np.float64 if exact else x.dtype)
    for expert, pairs, rows in _groups(x, order, offsets):
        out[pairs] = narrow_product(rows, weight[expert], x.dtype)
    return out


@moe_linear.outputs
def _(x: Array, weight: Array, order: Array, offsets: Array, active: Array) -> Spec:
    _check_linear(x, weight, order, offsets, active)
    return Spec((order.shape[0], weight.shape[1]), x.dtype)


def _arguments(out: Array, x: Array, weight: Array, order: Array, offsets: Array, active: Array) -> tuple[Any, ...]:
    pairs, (experts, columns, depth) = order.shape[0], weight.shape
    share = pairs // x.shape[0] if x.shape[0] else 1
    return (x, weight, order, offsets, active, out, pairs, share, experts, min(experts, pairs), columns, depth)


def _few_pairs(x: Array, weight: Array, order: Array, **_: Any) -> bool:
    return order.shape[0] <= 4 * weight.shape[0] and x.shape[1] % 8 == 0 and aligned(x) and aligned(weight)


@moe_linear.provider("vectors", when=_few_pairs)
def _(out: Array, x: Array, weight: Array, order: Array, offsets: Array, active: Array) -> Launch:
    experts, columns, _ = weight.shape
    grid = (-(-columns // EXPERT_COLUMNS), min(experts, order.shape[0]) + 1)
    arguments = _arguments(out, x, weight, order, offsets, active)
    return Launch(f"expert_vectors_{suffix(x)}", grid if order.shape[0] else (0,), arguments)


@moe_linear.provider("tiled")
def _(out: Array, x: Array, weight: Array, order: Array, offsets: Array, active: Array) -> Launch:
    experts, columns, _ = weight.shape
    grid = (-(-x.shape[0] // MATRIX_TILE), -(-columns // MATRIX_TILE), min(experts, order.shape[0]) + 1)
    return Launch(f"expert_tiles_{suffix(x)}", grid, _arguments(out, x, weight, order, offsets, active))


@moe_linear.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(experts: Array, count: int, columns: int, depth: int, *, per_pair: bool = False) -> Case:
        rows = experts.size if per_pair else experts.shape[0]
        weight = draw.normal(count, columns, depth, scale=depth**-0.5)
        return draw.case(draw.normal(rows, depth), weight, *moe_sort.reference(experts, count=count))

    for tokens, k, count, columns, depth in (
        (1, 8, 16, 13, 576),
        (8, 2, 9, 24, 64),
        (1, 1, 1, 5, 8),
        (3, 4, 4, 9, 264),
    ):
        for per_pair in (False, True):
            yield case(draw.integers(0, count, tokens, k), count, columns, depth, per_pair=per_pair)
    for tokens, k, count, columns, depth in ((70, 2, 3, 70, 72), (40, 4, 2, 65, 96), (9, 2, 3, 19, 37)):  # tiles
        yield case(draw.integers(0, count, tokens, k), count, columns, depth)
    yield case(draw.integers(0, 2, 30, 2), 2, 20, 40, per_pair=True)
    yield case(np.full((6, 2), 3, np.int32), 5, 16, 32)  # one expert takes all
    yield case(np.full((130, 1), 1, np.int32), 3, 12, 48)
    for tokens in (2, 40):
        missing = draw.integers(0, 4, tokens, 2)
        missing[1] = -1
        yield case(missing, 4, 11, 16)
    yield case(np.zeros((0, 2), np.int32), 4, 8, 16)
    broken = case(draw.integers(0, 3, 4, 2), 3, 8, 16)
    broken.args[0][1, 3] = np.nan
    broken.args[0][2, 5] = np.inf
    yield broken


# ------------------------------------------------------------------------------------------------------------ the rest


def _check_combine(x: Array, weights: Array) -> None:
    if x.ndim != 2 or weights.ndim != 2 or x.shape[0] != weights.size:
        raise ToolkitError(
            f"moe_combine takes a row of x [tokens · k, columns] for each of the weights [tokens, k], "
            f"not {list(x.shape)} and {list(weights.shape)}"
        )


@op(
    kernel="moe.hip",
    tolerance=BitExact(because="the order of the sum is stated, and each of its operations is exactly rounded"),
)
def moe_combine(x: Array, weights: Array, *, narrow_sums: bool = False) -> Array:
    """The experts' rows x [tokens · k, columns], weighted by float32 weights [tokens, k] → [tokens, columns].

    From zero, rank by rank: the product weight · x is rounded to float32 and added in float32; the sum is rounded to
    x's dtype. With ``narrow_sums`` each product and each partial sum is rounded to x's dtype, as in transformers' eager
    code. Raises ToolkitError when shapes do not fit.
    """
    _check_combine(x, weights)
    tokens, k = weights.shape
    rows, of = widen(x).reshape(tokens, k, x.shape[1]), widen(weights)[:, :, None]
    sums = np.zeros((tokens, x.shape[1]))
    for rank in range(k):
        term = to_float32(of[:, rank] * rows[:, rank])
        if narrow_sums:
            term = widen(narrow(term, x.dtype))
        sums = to_float32(sums + term)
        if narrow_sums:
            sums = widen(narrow(sums, x.dtype))
    return narrow(sums, x.dtype)


@moe_combine.outputs
def _(x: Array, weights: Array, **_: Any) -> Spec:
    _check_combine(x, weights)
    return Spec((weights.shape[0], x.shape[1]), x.dtype)


@moe_combine.provider("tiles")
def _(out: Array, x: Array, weights: Array, narrow_sums: bool) -> Launch:
    columns = x.shape[1]
    grid = (weights.shape[0], tiles(columns))
    return Launch(f"moe_combine_{suffix(x)}", grid, (x, weights, out, weights.shape[1], columns, narrow_sums))


@moe_combine.cases
def _(draw: Draw) -> Iterator[Case]:
    for tokens, k, columns in ((1, 8, 2048), (5, 2, 17), (3, 4, 1025), (2, 1, 64), (0, 2, 8)):
        for narrow_sums in (False, True):
            weights = np.abs(draw.normal(tokens, k, scale=0.3, dtype=FLOAT32))
            yield draw.case(draw.normal(tokens * k, columns), weights, narrow_sums=narrow_sums)
    x, weights = draw.normal(8, 16), np.abs(draw.normal(4, 2, dtype=FLOAT32))
    weights[1] = np.nan
    weights[2] = 0.0
    x[4, 3] = np.inf
    yield draw.case(x, weights)


def _check_gate(x: Array, gate: Array) -> None:
    if x.ndim != 2 or gate.shape != (x.shape[0], 1) or gate.dtype != x.dtype:
        raise ToolkitError(
            f"shared_expert_gate takes x [tokens, columns] and a gate [tokens, 1] of one dtype, "
            f"not {x.dtype}{list(x.shape)} and {gate.dtype}{list(gate.shape)}"
        )


@op(kernel="moe.hip", tolerance=Within(gate_bound, because=BECAUSE))
def shared_expert_gate(x: Array, gate: Array) -> Array:
    """The shared expert's rows x [tokens, columns] times sigmoid(gate), gate [tokens, 1] of the same dtype → x's shape.

    The sigmoid is rounded to the storage dtype before the product, as the models do. Raises ToolkitError when shapes or
    dtypes do not fit.
    """
    _check_gate(x, gate)
    opened = narrow(sigmoid(widen(gate)), gate.dtype)
    return narrow(widen(opened) * widen(x), x.dtype)


@shared_expert_gate.outputs
def _(x: Array, gate: Array) -> Spec:
    _check_gate(x, gate)
    return Spec(x.shape, x.dtype)


@shared_expert_gate.provider("tiles")
def _(out: Array, x: Array, gate: Array) -> Launch:
    columns = x.shape[1]
    return Launch(f"shared_expert_gate_{suffix(x)}", (x.shape[0], tiles(columns)), (x, gate, out, columns))


@shared_expert_gate.cases
def _(draw: Draw) -> Iterator[Case]:
    for tokens, columns in ((1, 1), (3, 17), (2, 2048), (5, 1025)):
        yield draw.case(draw.normal(tokens, columns), draw.normal(tokens, 1, scale=3.0))
    gates = np.concatenate([draw.special(), np.linspace(-120.0, 120.0, 97).astype(draw.dtype)])[:, None]
    yield draw.case(draw.normal(len(gates), 5), gates)
    yield draw.case(np.stack([draw.special()] * 2), np.array([[0.5], [-90.0]], draw.dtype))


def _check_silu_mul(gate: Array, up: Array, dtype: np.dtype[Any]) -> None:
    if gate.shape != up.shape:
        raise ToolkitError(f"moe_silu_mul takes gate and up of one shape, not {list(gate.shape)} and {list(up.shape)}")
    if dtype not in (BFLOAT16, FLOAT16, FLOAT32):
        raise ToolkitError(f"moe_silu_mul gives bfloat16, float16 or float32, not {np.dtype(dtype)}")


@op(
    kernel="moe.hip",
    tolerance=Within(
        lambda gate, up, dtype: silu_bound(gate, up),
        because="1 + e^-t and the quotient are rounded after an exp within 1.1 ULP: 3 ULP of float32; below t = -88.7 e^-t "
        "overflows and the activation is zero, at most 2^-121 away; in a gate narrower than float32 it may fall on the "
        "other side of one rounding boundary, and it is multiplied by up after that",
    ),
)
def moe_silu_mul(gate: Array, up: Array, *, dtype: np.dtype[Any]) -> Array:
    """gate and up of one shape, each of its own dtype → silu(gate) · up of that shape in ``dtype``.

    silu(x) = x / (1 + e^-x) is rounded to the *gate's* dtype before the product, whatever the others are: a kernel that
    leaves this out is wrong by up to half a ULP of the gate's dtype (a public report of one is vllm.cpp #1513). Where
    gate and up lie side by side in one dtype this is ``silu_mul``. Raises ToolkitError when shapes differ and for
    another ``dtype``.
    """
    _check_silu_mul(gate, up, dtype)
    return narrow(widen(narrow(silu(widen(gate)), gate.dtype)) * widen(up), dtype)


@moe_silu_mul.outputs
def _(gate: Array, up: Array, dtype: np.dtype[Any]) -> Spec:
    _check_silu_mul(gate, up, dtype)
    return Spec(gate.shape, np.dtype(dtype))


def _silu_mul_takes(gate: Array, up: Array, dtype: np.dtype[Any]) -> bool:
    used = {np.dtype(gate.dtype), np.dtype(up.dtype), np.dtype(dtype)}
    return used <= {BFLOAT16, FLOAT32} or used == {FLOAT16}


@moe_silu_mul.provider("tiles", when=_silu_mul_takes)
def _(out: Array, gate: Array, up: Array, dtype: np.dtype[Any]) -> Launch:
    entry = f"moe_silu_mul_{suffix(gate, up, out)}"
    return Launch(entry, (tiles(out.size),), (gate, up, out, np.int64(out.size)))


@moe_silu_mul.cases
def _(draw: Draw) -> Iterator[Case]:
    others = (draw.dtype,) if draw.dtype == FLOAT16 else (BFLOAT16, FLOAT32)
    for up in others:
        for dtype in others:
            for shape in ((1, 1), (3, 17), (2, 768), (5, 1025)):
                yield draw.case(draw.normal(*shape, scale=3.0), draw.normal(*shape, dtype=up), dtype=dtype)
            special = draw.special()
            yield draw.case(special, np.full(special.shape, 1.5, up), dtype=dtype)
            yield draw.case(np.full(special.shape, 1.5, draw.dtype), special.astype(up), dtype=dtype)
