"""Causal depthwise convolution with a state, as gated delta nets use it before their recurrence (Qwen3-Next, 2025).

A step's tokens are rows in any arrangement: ``runs`` [sequences, 2] holds each sequence's first row and its number of
rows, which follow each other; rows of no run (padding) have the sequence -1. The state of a slot, [width - 1, channels],
is the last inputs of its sequence, the oldest first, in the dtype of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, total, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.state import initial, valid
from toolkit.ops.tiles import tiles
from toolkit.ops.tolerance import BitExact, PerOutput, Within, spacing


def _silu(x: Array) -> Array:
    result: Array = x / (1.0 + np.exp(-x))
    return result


def _check(name: str, x: Array, weight: Array, state: Array, bias: Array | None) -> None:
    channels, width = weight.shape
    if x.ndim != 2 or x.shape[1] != channels or state.shape[1:] != (width - 1, channels):
        raise ToolkitError(
            f"{name} takes x [tokens, channels], a weight [channels, width] and a state [slots, width - 1, channels], "
            f"not {list(x.shape)}, {list(weight.shape)} and {list(state.shape)}"
        )
    if x.dtype != state.dtype or (bias is not None and bias.shape != (channels,)):
        raise ToolkitError(f"{name}: the state has the inputs' dtype and a bias is [channels]; give them so")


def _windows(x: Array, state: Array, runs: Array, slots: Array, kept: Array) -> tuple[Array, Array, Array]:
    """The inputs under every window, [tokens, width, channels], of the tokens of a run (and which those are), and the
    states [sequences, width - 1, channels] after it."""
    states = initial(state, slots, kept)
    width = states.shape[1] + 1
    windows = np.zeros((x.shape[0], width, x.shape[1]), x.dtype)
    inside = np.zeros(x.shape[0], bool)
    for sequence, ((first, count), known) in enumerate(zip(runs.tolist(), valid(slots, state), strict=True)):
        if not known or not count:
            continue
        line = np.concatenate([states[sequence], x[first : first + count]])
        view = np.lib.stride_tricks.sliding_window_view(line, width, axis=0)
        windows[first : first + count] = np.swapaxes(view, 1, 2)
        inside[first : first + count] = True
        states[sequence] = line[count:]
    return windows, inside, states


def _sums(windows: Array, weight: Array, bias: Array | None, *, magnitudes: bool = False) -> Array:
    """The windows' products with the weight, summed in float64; of magnitudes instead where asked for."""
    x, w = windows.astype(np.float64), weight.astype(np.float64).T
    b = np.zeros(weight.shape[0]) if bias is None else bias.astype(np.float64)
    if magnitudes:
        x, w, b = np.abs(x), np.abs(w), np.abs(b)
    result: Array = (x * w).sum(1) + b
    return result


def _convolved(windows: Array, weight: Array, bias: Array | None, narrow_sum: bool, dtype: np.dtype[Any]) -> Array:
    products = widen(windows) * widen(weight).T
    if bias is not None:
        products = np.concatenate([np.broadcast_to(widen(bias), products[:, :1].shape), products], axis=1)
    summed = total(products, axis=1)
    if narrow_sum:
        summed = widen(narrow(summed, dtype))
    return narrow(_silu(summed), dtype)


def _bound(windows: Array, weight: Array, bias: Array | None, narrow_sum: bool, dtype: np.dtype[Any]) -> Array:
    """How far a kernel's result can be from the reference's; see REASON for its terms."""
    with np.errstate(all="ignore"):
        sums = _sums(windows, weight, bias)
        error = (weight.shape[1] + 2) * 2.0**-24 * _sums(windows, weight, bias, magnitudes=True)
        if narrow_sum and dtype != FLOAT32:
            error = error + spacing(sums.astype(dtype))
        active = np.abs(_silu(sums))
        # silu's slope is at most 1.1.
        bound: Array = 1.1 * error + 4.0 * 2.0**-23 * active + 2.0**-121
    return bound


REASON = (
    "each of the width + 1 terms is rounded into a float32 sum, which may fall on the other side of one boundary of the "
    "inputs' dtype; silu, whose slope is at most 1.1, adds four ULP of float32 and the result is rounded once"
)


def _prefill_bound(
    x: Array,
    weight: Array,
    state: Array,
    sequence: Array,
    runs: Array,
    slots: Array,
    kept: Array,
    bias: Array | None,
    narrow_sum: bool,
) -> Array:
    windows, inside, _ = _windows(x, state, runs, slots, kept)
    return _bound(windows, weight, bias, narrow_sum, x.dtype) * inside[:, None]


@op(
    kernel="conv.hip",
    tolerance=PerOutput(Within(_prefill_bound, because=REASON), BitExact(because="the state is a copy of inputs")),
    mutates=("state",),
)
def causal_conv(
    x: Array,
    weight: Array,
    state: Array,
    sequence: Array,
    runs: Array,
    slots: Array,
    kept: Array,
    bias: Array | None = None,
    *,
    narrow_sum: bool = True,
) -> Array:
    """silu(bias + Σ_j weight[c, j] · x[t - (width - 1) + j, c]) over each run, [tokens, channels] in x's dtype.

    x [tokens, channels]; weight [channels, width]; state [slots, width - 1, channels]; sequence int32 [tokens], -1 for
    padding; runs int32 [sequences, 2]; slots and kept int32 [sequences]; bias [channels]. To the left of a run lies its
    slot's state where kept, else zeros; afterwards the slot holds the last inputs. Padding and runs without a slot give
    zeros. transformers rounds the sum to the storage dtype before silu (``narrow_sum``), fused kernels round once, after
    it. Raises ToolkitError for shapes that do not fit.
    """
    _check("causal_conv", x, weight, state, bias)
    windows, inside, states = _windows(x, state, runs, slots, kept)
    out = _convolved(windows, weight, bias, narrow_sum, x.dtype)
    out[~inside] = 0
    touched = valid(slots, state) & (runs[:, 1] > 0)
    state[slots[touched]] = states[touched]
    return out


@causal_conv.outputs
def _(x: Array, weight: Array, state: Array, bias: Array | None, **_: Any) -> Spec:
    _check("causal_conv", x, weight, state, bias)
    return Spec(x.shape, x.dtype)


@causal_conv.provider("channel-per-thread")
def _(
    out: Array,
    x: Array,
    weight: Array,
    state: Array,
    sequence: Array,
    runs: Array,
    slots: Array,
    kept: Array,
    bias: Array | None,
    narrow_sum: bool,
) -> tuple[Launch, Launch]:
    channels, width = weight.shape
    over = tiles(channels)
    arguments = (x, weight, bias, state, sequence, runs, slots, kept, out)
    return (
        Launch(
            f"causal_conv_{suffix(x)}", (x.shape[0], over), (*arguments, state.shape[0], channels, width, narrow_sum)
        ),
        Launch(
            f"conv_state_{suffix(x)}",
            (runs.shape[0], over if width > 1 else 0),
            (x, state, runs, slots, kept, state.shape[0], channels, width),
        ),
    )


def _drawn(draw: Draw, channels: int, width: int) -> tuple[Array, Array]:
    """A weight as models have it, and a state of five slots."""
    return draw.normal(channels, width, scale=width**-0.5), draw.normal(5, width - 1, channels)


@causal_conv.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(
        lengths: tuple[int, ...], channels: int, width: int, *, kept: tuple[int, ...] = (), gap: int = 0, **options: Any
    ) -> Case:
        """Runs of these lengths in slots of any order, ``gap`` rows of padding after each."""
        weight, state = _drawn(draw, channels, width)
        runs = np.array([(sum(lengths[:i]) + i * gap, count) for i, count in enumerate(lengths)], np.int32)
        sequence = np.full(sum(lengths) + gap * len(lengths), -1, np.int32)
        for i, (first, count) in enumerate(runs):
            sequence[first : first + count] = i
        slots = draw.random.permutation(5)[: len(lengths)].astype(np.int32)
        flags = np.array(kept or (0,) * len(lengths), np.int32)
        return draw.case(draw.normal(len(sequence), channels), weight, state, sequence, runs, slots, flags, **options)

    yield case((1,), 8, 4)
    yield case((7,), 40, 4)
    yield case((1, 2, 3, 9), 96, 4, kept=(1, 1, 0, 1))
    yield case((5, 2), 1030, 4, kept=(1, 0), gap=3)
    yield case((5, 0, 2), 64, 4, kept=(1, 1, 1))
    for width in (1, 2, 3, 7):
        yield case((4, 1), 24, width, kept=(0, 1))
    yield case((6,), 64, 4, bias=draw.normal(64), narrow_sum=False)
    yield case((3, 20), 64, 4, kept=(1, 1), narrow_sum=False)
    without = case((3, 2), 32, 4, kept=(1, 1))
    without.args[5][0] = -1
    yield without
    broken = case((4, 4), 16, 4, kept=(0, 1))
    broken.args[0][1, 3], broken.args[0][6, 2] = np.nan, np.inf
    yield broken


def _update_bound(
    x: Array, weight: Array, state: Array, slots: Array, kept: Array, bias: Array | None, narrow_sum: bool
) -> Array:
    return _prefill_bound(x, weight, state, None, _ones(slots), slots, kept, bias, narrow_sum)  # type: ignore[arg-type]


def _ones(slots: Array) -> Array:
    """A run of one token for each slot."""
    return np.stack([np.arange(slots.size), np.ones(slots.size)], axis=1).astype(np.int32)


@op(
    kernel="conv.hip",
    tolerance=PerOutput(Within(_update_bound, because=REASON), BitExact(because="the state is a copy of inputs")),
    mutates=("state",),
)
def causal_conv_update(
    x: Array,
    weight: Array,
    state: Array,
    slots: Array,
    kept: Array,
    bias: Array | None = None,
    *,
    narrow_sum: bool = True,
) -> Array:
    """``causal_conv`` for one token of each sequence: x [sequences, channels], row r in slot slots[r]."""
    _check("causal_conv_update", x, weight, state, bias)
    return causal_conv.reference(x, weight, state, None, _ones(slots), slots, kept, bias, narrow_sum=narrow_sum)  # type: ignore[arg-type]


@causal_conv_update.outputs
def _(x: Array, weight: Array, state: Array, bias: Array | None, **_: Any) -> Spec:
    _check("causal_conv_update", x, weight, state, bias)
    return Spec(x.shape, x.dtype)


@causal_conv_update.provider("channel-per-thread")
def _(
    out: Array,
    x: Array,
    weight: Array,
    state: Array,
    slots: Array,
    kept: Array,
    bias: Array | None,
    narrow_sum: bool,
) -> Launch:
    channels, width = weight.shape
    arguments = (x, weight, bias, state, slots, kept, out, state.shape[0], channels, width, narrow_sum)
    return Launch(f"conv_update_{suffix(x)}", (x.shape[0], tiles(channels)), arguments)


@causal_conv_update.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(rows: int, channels: int, width: int, **options: Any) -> Case:
        weight, state = _drawn(draw, channels, width)
        slots = draw.random.permutation(5)[:rows].astype(np.int32)
        kept = (np.arange(rows) % 3 != 2).astype(np.int32)
        return draw.case(draw.normal(rows, channels), weight, state, slots, kept, **options)

    for rows, channels in ((1, 8), (3, 40), (5, 1030)):
        yield case(rows, channels, 4)
    for width in (1, 2, 3, 7):
        yield case(3, 24, width)
    yield case(4, 64, 4, bias=draw.normal(64), narrow_sum=False)
    without = case(4, 32, 4)
    without.args[3][1], without.args[3][2] = -1, 5
    yield without
    broken = case(3, 16, 4)
    broken.args[0][1, 3], broken.args[2][int(broken.args[3][0]), 1, 2] = np.nan, np.inf
    yield broken
