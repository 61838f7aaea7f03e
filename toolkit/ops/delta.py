"""The gated delta rule (Yang, Kautz & Hatamizadeh, 2025), a linear attention whose state is a matrix of fixed size.

For each value head, with the state S [key_dim, value_dim], a decay e^g, a rate β, a key k of length one and a value v:

    S ← e^g S,    d = β (v - Sᵀ k),    S ← S + k dᵀ,    out = scale · Sᵀ q

A key head serves value_heads / key_heads value heads that follow each other. States are float32 in every model dtype.
Runs, slots and ``kept`` are those of ``toolkit.ops.conv``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, total, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops.alignment import aligned
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.state import initial, valid
from toolkit.ops.tolerance import BitExact, PerOutput, Within, spacing

# Geometry of kernels/delta.hip.
CHUNK = 16
COLUMNS = 32
CHUNK_KEY = 128
LARGEST_KEY = 256

# Above it softplus(x) is x, as torch has it: what is left out is below 2^-28.
SOFTPLUS_IS_LINEAR = 20.0


def _split(qkv: Array, ba: Array, key_heads: int, key_dim: int) -> tuple[Array, Array, Array]:
    """q and k [tokens, key_heads, key_dim] and v [tokens, value_heads, value_dim], as they lie in qkv."""
    tokens, columns = qkv.shape
    keys = key_heads * key_dim
    value_heads = ba.shape[1] // 2
    if columns <= 2 * keys or ba.shape != (tokens, 2 * value_heads) or (columns - 2 * keys) % max(value_heads, 1):
        raise ToolkitError(
            f"delta_inputs takes qkv [tokens, 2 · key_heads · key_dim + value_heads · value_dim] and ba [tokens, "
            f"2 · value_heads], not {list(qkv.shape)} and {list(ba.shape)} with {key_heads} key heads of {key_dim}"
        )
    q, k, v = np.split(qkv, [keys, 2 * keys], axis=1)
    return q.reshape(tokens, key_heads, -1), k.reshape(tokens, key_heads, -1), v.reshape(tokens, value_heads, -1)


def _softplus(x: Array) -> Array:
    return np.where(x > SOFTPLUS_IS_LINEAR, x, np.log1p(np.exp(np.minimum(x, SOFTPLUS_IS_LINEAR))))


def _decay_bound(ba: Array, log_rate: Array, dt_bias: Array, **_: Any) -> Array:
    heads = log_rate.size
    with np.errstate(all="ignore"):
        x = ba[:, heads:].astype(np.float64) + dt_bias.astype(np.float64)
        decay = np.exp(log_rate.astype(np.float64)) * _softplus(x)
        bound: Array = (16.0 + np.abs(x)) * 2.0**-24 * decay + 2.0**-121
    return bound


def _beta_bound(ba: Array, log_rate: Array, narrow_beta: bool, **_: Any) -> Array:
    with np.errstate(all="ignore"):
        beta = 1.0 / (1.0 + np.exp(-ba[:, : log_rate.size].astype(np.float64)))
        bound: Array = 3.0 * 2.0**-23 * beta + 2.0**-121
        if narrow_beta and ba.dtype != FLOAT32:
            bound = bound + spacing(beta.astype(ba.dtype))
    return bound


def _unit_bound(part: int) -> Any:
    def bound(qkv: Array, ba: Array, key_heads: int, key_dim: int, eps: float, narrow_unit: bool, **_: Any) -> Array:
        with np.errstate(all="ignore"):
            x = _split(qkv, ba, key_heads, key_dim)[part].astype(np.float64)
            unit = np.abs(x) / np.sqrt((x * x).sum(-1, keepdims=True) + eps)
            result: Array = 4.0 * 2.0**-23 * unit
            if narrow_unit and qkv.dtype != FLOAT32:
                result = result + spacing(unit.astype(qkv.dtype))
        return result

    return bound


UNIT_REASON = (
    "the float32 sum of squares, its root, the quotient and the product round once each, and then perhaps one boundary of "
    "the storage dtype is crossed"
)


@op(
    kernel="delta.hip",
    tolerance=PerOutput(
        Within(_unit_bound(0), because=UNIT_REASON),
        Within(_unit_bound(1), because=UNIT_REASON),
        BitExact(because="v is a copy"),
        Within(
            _decay_bound,
            because="a + dt_bias is rounded once, and softplus' slope is at most one; two exp, a log, two quotients and "
            "two products add at most 16 half ULPs",
        ),
        Within(_beta_bound, because="a sigmoid within three ULP of float32, then perhaps one boundary of the dtype"),
    ),
)
def delta_inputs(
    qkv: Array,
    ba: Array,
    log_rate: Array,
    dt_bias: Array,
    *,
    key_heads: int,
    key_dim: int,
    eps: float = 1e-6,
    narrow_beta: bool = True,
    narrow_unit: bool = False,
) -> tuple[Array, Array, Array, Array, Array]:
    """What the rule takes, from the convolved projections.

    qkv [tokens, 2 · key_heads · key_dim + value_heads · value_dim], ba [tokens, 2 · value_heads] (β's logits, then the
    decays' a), log_rate (A_log) and dt_bias [value_heads], all of one dtype →

    q, k float32 [tokens, key_heads, key_dim]   x / sqrt(Σ x² + eps) over the head, a sum and no mean
    v [tokens, value_heads, value_dim]          copied
    g float32 [tokens, value_heads]             -e^log_rate · softplus(a + dt_bias), the logarithm of what remains
    β float32 [tokens, value_heads]             sigmoid(b), rounded to the storage dtype where ``narrow_beta``

    transformers computes β in the model's dtype and the rest in float32; other engines keep β in float32, or normalise
    in the model's dtype (``narrow_unit``). Raises ToolkitError for shapes that do not fit.
    """
    q, k, v = _split(qkv, ba, key_heads, key_dim)
    units = []
    for part in (q, k):
        wide = widen(part)
        unit = narrow(wide / np.sqrt(total(wide * wide)[..., None] + eps), FLOAT32)
        units.append(narrow(widen(narrow(widen(unit), qkv.dtype)), FLOAT32) if narrow_unit else unit)
    heads = log_rate.size
    g = -np.exp(widen(log_rate)) * _softplus(widen(ba[:, heads:]) + widen(dt_bias))
    beta = 1.0 / (1.0 + np.exp(-widen(ba[:, :heads])))
    if narrow_beta:
        beta = widen(narrow(beta, ba.dtype))
    return *units, v.copy(), narrow(g, FLOAT32), narrow(beta, FLOAT32)  # type: ignore[return-value]


@delta_inputs.outputs
def _(qkv: Array, ba: Array, log_rate: Array, key_heads: int, key_dim: int, **_: Any) -> tuple[Spec, ...]:
    tokens, columns = qkv.shape
    heads = log_rate.size
    unit = Spec((tokens, key_heads, key_dim), FLOAT32)
    values = Spec((tokens, heads, (columns - 2 * key_heads * key_dim) // heads), qkv.dtype)
    gate = Spec((tokens, heads), FLOAT32)
    return unit, unit, values, gate, gate


@delta_inputs.provider("head-per-block")
def _(
    out: tuple[Array, ...],
    qkv: Array,
    ba: Array,
    log_rate: Array,
    dt_bias: Array,
    key_heads: int,
    key_dim: int,
    eps: float,
    narrow_beta: bool,
    narrow_unit: bool,
) -> tuple[Launch, Launch]:
    q, k, v, g, beta = out
    tokens, columns = qkv.shape
    heads, value_dim = v.shape[1:]
    return (
        Launch(
            f"delta_unit_{suffix(qkv)}",
            (tokens, 2 * key_heads),
            (qkv, q, k, key_heads, key_dim, np.int64(columns), float(eps), narrow_unit),
        ),
        Launch(
            f"delta_gates_{suffix(qkv)}",
            (tokens,),
            (*(qkv, ba, log_rate, dt_bias, v, g, beta, np.int64(columns)), heads * value_dim, heads, narrow_beta),
        ),
    )


@delta_inputs.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(tokens: int, heads: tuple[int, int], dims: tuple[int, int], spread: float = 1.0, **options: Any) -> Case:
        columns = 2 * heads[0] * dims[0] + heads[1] * dims[1]
        return draw.case(
            draw.normal(tokens, columns),
            draw.normal(tokens, 2 * heads[1], scale=spread),
            np.log(draw.random.uniform(0.01, 16.0, heads[1])).astype(draw.dtype),
            draw.normal(heads[1]),
            key_heads=heads[0],
            key_dim=dims[0],
            **options,
        )

    yield case(1, (1, 1), (8, 8))
    yield case(5, (2, 4), (16, 24))
    yield case(3, (4, 4), (37, 5))
    yield case(2, (16, 32), (128, 128), 4.0)
    yield case(2, (1, 2), (256, 64))
    yield case(4, (2, 150), (16, 2), 40.0)  # from where a gate is shut to where it is open
    for narrow_unit in (False, True):
        yield case(3, (2, 2), (64, 32), narrow_beta=False, narrow_unit=narrow_unit)
    zero = case(2, (2, 2), (16, 8))
    zero.args[0][0] = 0.0  # eps decides
    yield zero
    broken = case(4, (2, 2), (16, 8))
    broken.args[0][1, 3], broken.args[0][2, 40], broken.args[0][2, 64] = np.nan, np.inf, -np.inf
    broken.args[1][3] = np.nan, np.inf, -np.inf, np.inf
    yield broken


Form = Literal["chunked", "sequential"]


def _check(name: str, q: Array, v: Array, state: Array) -> None:
    key_heads, key_dim = q.shape[1:]
    value_heads, value_dim = v.shape[1:]
    if value_heads % key_heads or state.shape[1:] != (value_heads, key_dim, value_dim):
        raise ToolkitError(
            f"{name}: {value_heads} value heads of {value_dim} and {key_heads} key heads of {key_dim} need the state "
            f"[slots, {value_heads}, {key_dim}, {value_dim}] and a whole number of value heads per key head, "
            f"not {list(state.shape)}"
        )


def _rows(runs: Array, known: Array, step: int) -> tuple[Array, Array]:
    """Which sequences have a token number ``step``, and its row."""
    active = np.flatnonzero(known & (runs[:, 1] > step))
    return active, runs[active, 0] + step


def _recurrence(
    q: Array, k: Array, v: Array, g: Array, beta: Array, states: Array, runs: Array, known: Array, scale: float
) -> Array:
    """The rule over all runs, float64 but for ``total``; ``states`` are left as they are after the last token."""
    group = v.shape[1] // q.shape[1]
    out = np.zeros(v.shape)
    for step in range(int(runs[:, 1].max(initial=0))):
        active, rows = _rows(runs, known, step)
        key = np.repeat(widen(k[rows]), group, axis=1)
        query = np.repeat(widen(q[rows]), group, axis=1)
        decayed = states[active] * np.exp(widen(g[rows]))[..., None, None]
        delta = (widen(v[rows]) - total(decayed * key[..., None], axis=-2)) * widen(beta[rows])[..., None]
        state = decayed + key[..., None] * delta[..., None, :]
        states[active] = state
        out[rows] = total(state * query[..., None], axis=-2) * scale
    return out


def _bounds(
    q: Array,
    k: Array,
    v: Array,
    g: Array,
    beta: Array,
    state: Array,
    sequence: Array | None,
    runs: Array,
    slots: Array,
    kept: Array,
    scale: float,
    **_: Any,
) -> tuple[Array, Array]:
    """How far a float32 kernel can be from the reference: of the outputs, and of every slot's state.

    Column by column of a state, by the length of its error: multiplying by I - β k kᵀ does not lengthen it where
    0 <= β |k|² <= 2, every dot product of n terms adds n + 2 roundings of its terms' lengths, and every update a few of
    its own. The chunked form sums up to CHUNK updates where the sequential one has the state itself, so lengths are
    those of a state without cancellation within a chunk.
    """
    u = 2.0**-24
    group = v.shape[1] // q.shape[1]
    known = valid(slots, state)
    states = initial(state, slots, kept).astype(np.float64)
    error = np.zeros(states.shape[:2] + states.shape[3:])
    length = np.linalg.norm(states, axis=2)
    out = np.zeros(v.shape)
    roundings = q.shape[2] + CHUNK + 6
    with np.errstate(all="ignore"):
        for step in range(int(runs[:, 1].max(initial=0))):
            active, rows = _rows(runs, known, step)
            key = np.repeat(k[rows].astype(np.float64), group, axis=1)
            query = np.repeat(q[rows].astype(np.float64), group, axis=1)
            remains, rate = np.exp(g[rows].astype(np.float64))[..., None], beta[rows].astype(np.float64)[..., None]
            decayed = states[active] * remains[..., None]
            predicted = np.einsum("rhkv,rhk->rhv", decayed, key)
            value = v[rows].astype(np.float64)
            delta = (value - predicted) * rate
            states[active] = state_now = decayed + key[..., None] * delta[..., None, :]
            of_key, of_query = (np.linalg.norm(x, axis=2)[..., None] for x in (key, query))
            size = length[active] if step % CHUNK else np.linalg.norm(states[active], axis=2)
            size = np.maximum(remains * length[active] + of_key * np.abs(delta), np.linalg.norm(state_now, axis=2))
            before = remains * (error[active] + 4 * u * length[active])
            local = (
                of_key * np.abs(rate) * (roundings * u * of_key * size + 3 * u * (np.abs(value) + np.abs(predicted)))
            )
            error[active] = np.maximum(1.0, np.abs(1.0 - rate * of_key**2)) * before + local + 3 * u * size
            out[rows] = np.abs(scale) * of_query * (error[active] + roundings * u * size)
            length[active] = np.linalg.norm(state_now, axis=2) if step % CHUNK == CHUNK - 1 else size
    of_state = np.zeros(state.shape)
    touched = known & (runs[:, 1] > 0)
    of_state[slots[touched]] = error[touched][:, :, None, :]
    return out, of_state


REASON = (
    "every dot product of n terms rounds n times in an order of the kernel's own, every update a few times; errors of a "
    "state do not grow, as I - β k kᵀ lengthens nothing, but they add up over the tokens of a call"
)


@op(
    kernel="delta.hip",
    tolerance=PerOutput(
        Within(lambda **given: _bounds(**given)[0], because=REASON),
        Within(lambda **given: _bounds(**given)[1], because=REASON),
    ),
    mutates=("state",),
)
def gated_delta_prefill(
    q: Array,
    k: Array,
    v: Array,
    g: Array,
    beta: Array,
    state: Array,
    sequence: Array,
    runs: Array,
    slots: Array,
    kept: Array,
    *,
    scale: float,
    form: Form = "chunked",
) -> Array:
    """The gated delta rule over each run: out [tokens, value_heads, value_dim] in v's dtype, rounded once.

    q, k float32 [tokens, key_heads, key_dim]; v [tokens, value_heads, value_dim]; g, beta float32 [tokens, value_heads];
    state float32 [slots, value_heads, key_dim, value_dim], written back at the end of a run; sequence int32 [tokens],
    -1 for padding; runs int32 [sequences, 2]; slots and kept int32 [sequences]. A run begins with its slot's state where
    kept, else with zeros; padding and runs without a slot give zeros. ``form`` is how kernels compute it, 16 tokens at
    a time or one by one; it defines nothing. Raises ToolkitError for shapes that do not fit.
    """
    _check("gated_delta_prefill", q, v, state)
    known = valid(slots, state)
    states = widen(initial(state, slots, kept))
    out = _recurrence(q, k, v, g, beta, states, runs, known, scale)
    touched = known & (runs[:, 1] > 0)
    state[slots[touched]] = narrow(states[touched], state.dtype)
    return narrow(out, v.dtype)


@gated_delta_prefill.outputs
def _(q: Array, v: Array, state: Array, **_: Any) -> Spec:
    _check("gated_delta_prefill", q, v, state)
    return Spec(v.shape, v.dtype)


def _launch(
    name: str, out: Array, rows: int, q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array, **of: Any
) -> Launch:
    value_heads, value_dim = v.shape[1:]
    whole = value_dim % 8 == 0 and aligned(state) and aligned(v)
    return Launch(
        f"{name}_{suffix(v)}",
        (rows, value_heads, -(-value_dim // COLUMNS)),
        (
            *(q, k, v, g, beta, state, of["runs"], of["slots"], of["kept"], out),
            *(state.shape[0], q.shape[1], value_heads, q.shape[2], value_dim, float(of["scale"]), whole),
        ),
    )


def _rule(key_dim: int) -> str:
    return "delta_rule_128" if key_dim <= 128 else "delta_rule_256"


def _prefill(name: str, out: Array, sequence: Array, v: Array, runs: Array, **bound: Any) -> tuple[Launch, Launch]:
    del bound["form"]
    padding = Launch(f"delta_padding_{suffix(v)}", (v.shape[0],), (sequence, out, v.shape[1] * v.shape[2]))
    return padding, _launch(name, out, runs.shape[0], v=v, runs=runs, **bound)


@gated_delta_prefill.provider("chunked", when=lambda q, form, **_: form == "chunked" and q.shape[2] <= CHUNK_KEY)
def _(out: Array, **bound: Any) -> tuple[Launch, Launch]:
    return _prefill("delta_chunked", out, **bound)


@gated_delta_prefill.provider("sequential", when=lambda q, **_: q.shape[2] <= LARGEST_KEY)
def _(out: Array, **bound: Any) -> tuple[Launch, Launch]:
    return _prefill(_rule(bound["q"].shape[2]), out, **bound)


def _drawn(
    draw: Draw, tokens: int, heads: tuple[int, int], dims: tuple[int, int], slots: int, remain: float
) -> tuple[Array, ...]:
    """Inputs as models make them: unit q and k, gates between shut and open; ``remain`` is the typical e^g."""

    def unit(*shape: int) -> Array:
        x = draw.random.standard_normal(shape)
        rows: Array = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)).astype(np.float32)
        return rows

    g = np.log(remain) * draw.random.uniform(0.0, 2.0, (tokens, heads[1]))
    return (
        unit(tokens, heads[0], dims[0]),
        unit(tokens, heads[0], dims[0]),
        draw.normal(tokens, heads[1], dims[1]),
        g.astype(np.float32),
        draw.random.uniform(0.0, 1.0, (tokens, heads[1])).astype(np.float32),
        draw.normal(slots, heads[1], *dims, dtype=FLOAT32),
    )


@gated_delta_prefill.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(
        lengths: tuple[int, ...],
        heads: tuple[int, int],
        dims: tuple[int, int],
        *,
        kept: tuple[int, ...] = (),
        gap: int = 0,
        remain: float = 0.9,
    ) -> Iterator[Case]:
        runs = np.array([(sum(lengths[:i]) + i * gap, count) for i, count in enumerate(lengths)], np.int32)
        sequence = np.full(sum(lengths) + gap * len(lengths), -1, np.int32)
        for i, (first, count) in enumerate(runs):
            sequence[first : first + count] = i
        slots = draw.random.permutation(len(lengths) + 1)[: len(lengths)].astype(np.int32)
        flags = np.array(kept or (0,) * len(lengths), np.int32)
        inputs = _drawn(draw, len(sequence), heads, dims, len(lengths) + 1, remain)
        for form in ("chunked", "sequential"):
            yield draw.case(*inputs, sequence, runs, slots, flags, scale=dims[0] ** -0.5, form=form)

    yield from case((1,), (1, 1), (8, 8))
    yield from case((17, 16, 3), (2, 4), (16, 24), kept=(1, 0, 1))
    yield from case((5, 0, 33), (1, 3), (12, 5), kept=(1, 1, 0), gap=2)
    yield from case((40,), (2, 2), (128, 128), kept=(1,), remain=0.99)
    yield from case((20,), (1, 1), (200, 40), kept=(1,))
    yield from case((35,), (1, 2), (64, 32), remain=1.0)  # nothing is forgotten
    yield from case((35,), (1, 2), (64, 32), kept=(1,), remain=1e-9)  # nearly everything is
    for without in case((3, 18), (1, 2), (16, 16), kept=(1, 1)):
        without.args[8][1] = -1
        yield without
    for broken in case((4, 20), (2, 2), (16, 16), kept=(0, 1)):
        broken.args[2][1, 0, 3], broken.args[0][10, 1, 2], broken.args[1][20, 0, 4] = np.nan, np.nan, np.nan
        yield broken


def _one_each(sequence: Array) -> Array:
    """A run of one token for each slot."""
    return np.stack([np.arange(sequence.size), np.ones(sequence.size)], axis=1).astype(np.int32)


def _decode_bounds(slots: Array, **given: Any) -> tuple[Array, Array]:
    return _bounds(sequence=None, runs=_one_each(slots), slots=slots, **given)


@op(
    kernel="delta.hip",
    tolerance=PerOutput(
        Within(lambda **given: _decode_bounds(**given)[0], because=REASON),
        Within(lambda **given: _decode_bounds(**given)[1], because=REASON),
    ),
    mutates=("state",),
)
def gated_delta_decode(
    q: Array,
    k: Array,
    v: Array,
    g: Array,
    beta: Array,
    state: Array,
    slots: Array,
    kept: Array,
    *,
    scale: float,
) -> Array:
    """``gated_delta_prefill`` for one token of each sequence: row r of q, k, v, g and beta acts on slot slots[r]."""
    _check("gated_delta_decode", q, v, state)
    known = valid(slots, state)
    states = widen(initial(state, slots, kept))
    out = _recurrence(q, k, v, g, beta, states, _one_each(slots), known, scale)
    state[slots[known]] = narrow(states[known], state.dtype)
    return narrow(out, v.dtype)


@gated_delta_decode.outputs
def _(q: Array, v: Array, state: Array, **_: Any) -> Spec:
    _check("gated_delta_decode", q, v, state)
    return Spec(v.shape, v.dtype)


@gated_delta_decode.provider("columns-per-block", when=lambda q, **_: q.shape[2] <= LARGEST_KEY)
def _(out: Array, **bound: Any) -> Launch:
    return _launch(_rule(bound["q"].shape[2]), out, bound["q"].shape[0], runs=None, **bound)


@gated_delta_decode.cases
def _(draw: Draw) -> Iterator[Case]:
    def case(rows: int, heads: tuple[int, int], dims: tuple[int, int], remain: float = 0.9) -> Case:
        slots = draw.random.permutation(rows + 1)[:rows].astype(np.int32)
        kept = (np.arange(rows) % 3 != 2).astype(np.int32)
        return draw.case(*_drawn(draw, rows, heads, dims, rows + 1, remain), slots, kept, scale=dims[0] ** -0.5)

    yield case(1, (1, 1), (8, 8))
    yield case(4, (2, 4), (16, 24))
    yield case(3, (1, 3), (12, 5))
    yield case(2, (2, 4), (128, 128), 0.99)
    yield case(3, (1, 1), (200, 40))
    without = case(4, (1, 2), (16, 16))
    without.args[6][1], without.args[6][3] = -1, 5
    yield without
    broken = case(3, (2, 2), (16, 16))
    broken.args[2][1, 0, 3], broken.args[5][int(broken.args[6][0]), 1, 2, 2] = np.nan, np.nan
    yield broken
