"""The arithmetic in which reference ops are evaluated.

A reference op is written once, in terms of ``widen``, ``total``, ``product`` and ``narrow``. What these mean is chosen
by the device that runs it:

* ``exact``      everything is float64 and nothing is rounded to a narrower type;
* ``reference``  values are float64 between rounding points, sums are accumulated in float64, and a value is rounded to
                 float32 and then to its storage dtype exactly where the op says ``narrow`` (or ``to_float32``);
* variations     as ``reference``, but sums are float32 sums in a stated order: what an honest engine may do.

Denormal float32 values are flushed to zero on every device (CuPy builds both HIP and CUDA kernels that way): arithmetic
reads and writes them as zero, while copies, gathers and casts keep their bits.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from toolkit.devices import ordered
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

SumOrder = Literal["sequential", "reversed", "pairwise", "blocked-32", "blocked-64", "blocked-256"]
SUM_ORDERS: tuple[SumOrder, ...] = ("sequential", "reversed", "pairwise", "blocked-32", "blocked-64", "blocked-256")

# Rows that are compared at a time.
PORTION = 4096

SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Arithmetic:
    """How a reference op computes. ``sum_order`` None means sums in float64; ``exact`` means no rounding points."""

    exact: bool = False
    sum_order: SumOrder | None = None


_DEFAULT = Arithmetic()
_current: ContextVar[Arithmetic] = ContextVar("arithmetic", default=_DEFAULT)


def current() -> Arithmetic:
    """The arithmetic in force."""
    return _current.get()


@contextmanager
def using(arithmetic: Arithmetic) -> Iterator[None]:
    """Evaluate reference ops inside the block in ``arithmetic``."""
    token = _current.set(arithmetic)
    try:
        yield
    finally:
        _current.reset(token)


def widen(x: Array) -> Array:
    """``x`` as float64, to compute with. float32-range denormals read as zero unless the arithmetic is exact."""
    # float16 denormals are normal numbers in float32, float64 storage belongs to ``exact``: neither is flushed.
    if x.dtype == FLOAT64 or x.dtype == FLOAT16:
        return x.astype(FLOAT64, copy=False)
    if x.dtype == BFLOAT16:
        # Half of a float32: shifting its bits into place is several times faster than the generic cast.
        bits = x.view(np.uint16)
        if _holds_denormals(bits, 0x7FFF, 0x7F):
            bits = np.where((bits & 0x7F80) == 0, bits & 0x8000, bits)
        return (bits.astype(np.uint32) << 16).view(FLOAT32).astype(FLOAT64)
    if x.dtype == FLOAT32 and _holds_denormals(x.view(np.uint32), 0x7FFFFFFF, 0x7FFFFF):
        return _flush(x.astype(FLOAT64))
    return x.astype(FLOAT64)


def _holds_denormals(bits: Array, magnitude: int, largest: int) -> bool:
    """Whether any number of these bits is denormal: its magnitude is from 1 to ``largest`` as an integer."""
    # Zero minus one wraps round to the largest integer, so that the smallest tells.
    kind = bits.dtype.type
    magnitudes = np.atleast_1d(bits) & kind(magnitude)
    np.subtract(magnitudes, kind(1), out=magnitudes)
    return bool(magnitudes.min(initial=kind(magnitude)) < largest)


def to_float32(value: Array) -> Array:
    """A rounding point: ``value`` rounded to float32, still held as float64. The identity when exact."""
    if current().exact:
        return value
    return _flush(value.astype(FLOAT32)).astype(FLOAT64)


def narrow(value: Array, dtype: np.dtype[Any]) -> Array:
    """A rounding point: ``value`` rounded to float32, then to ``dtype``, in which it is stored. float64 when exact."""
    if current().exact:
        return value
    single = _flush(value.astype(FLOAT32, copy=False))
    return single.astype(dtype, copy=False)


def total(value: Array, axis: int = -1) -> Array:
    """The sum of ``value`` along ``axis`` in the arithmetic's order; the result is rounded to float32 unless exact."""
    arithmetic = current()
    if arithmetic.exact:
        summed: Array = np.sum(value, axis=axis)
        return summed
    if arithmetic.sum_order is None:
        return to_float32(np.sum(value, axis=axis))
    terms = np.moveaxis(value.astype(FLOAT32, copy=False), axis, -1)
    rows = terms.reshape(1, math.prod(terms.shape[:-1]), terms.shape[-1])
    ones = np.ones((1, 1, terms.shape[-1]), FLOAT32)
    return _in_order(ones, rows, arithmetic.sum_order).reshape(terms.shape[:-1]).astype(FLOAT64)


def product(x: Array, weight: Array) -> Array:
    """``x @ weight.T`` for x [..., M, K] and weight [N, K], or [..., N, K] with x's leading axes, in float64.

    The result is rounded to float32 unless exact. The products of two bfloat16 or float16 numbers are exact in float32,
    so only the order of the sum is a choice; with float32 operands a float32 variation rounds each product before it is
    added.
    """
    if current().exact:
        return x.astype(FLOAT64, copy=False) @ np.swapaxes(_wide_weight(weight), -1, -2)
    return _product(x, weight).astype(FLOAT64)


def narrow_product(x: Array, weight: Array, dtype: np.dtype[Any]) -> Array:
    """``narrow(product(x, weight), dtype)``: the product rounded to float32 and then to ``dtype``."""
    if current().exact:
        return product(x, weight)
    return _product(x, weight).astype(dtype, copy=False)


def _product(x: Array, weight: Array) -> Array:
    """``product`` as float32."""
    order = current().sum_order
    if order is None:
        return _flush((widen(x) @ np.swapaxes(_wide_weight(weight), -1, -2)).astype(FLOAT32))
    if weight.dtype == FLOAT64:
        weight = weight.astype(FLOAT32)
    columns, depth = weight.shape[-2:]
    stack = math.prod(weight.shape[:-2])
    stacked = x.astype(FLOAT32, copy=False).reshape(stack, math.prod(x.shape[:-1]) // stack, depth)
    out = _in_order(stacked, weight.reshape(stack, columns, depth), order)
    return out.reshape(*x.shape[:-1], columns)


def _in_order(x: Array, weight: Array, order: SumOrder) -> Array:
    """``ordered_product`` of every x [stack, M, K] and weight [stack, N, K], by the fastest means there is."""
    if x.shape[-1] and ordered.available():
        ordered.runs["kernel"] += 1
        return ordered.product(x, weight, order)
    ordered.runs["numpy"] += 1
    return np.stack([ordered_product(*pair, order) for pair in zip(x, weight, strict=True)])


def ordered_sum(terms: Array, order: SumOrder) -> Array:
    """float32 sum of ``terms`` [K, ...] over the first axis, in exactly ``order``, denormals flushed at every step.

    ``sequential`` adds from the first term to the last, ``reversed`` from the last to the first, ``blocked-B`` adds
    each run of B terms sequentially and then the runs' sums sequentially, ``pairwise`` adds neighbours, then
    neighbouring sums, until one is left (an odd one out is carried up unchanged).
    """
    if terms.shape[0] == 0:
        return np.zeros(terms.shape[1:], FLOAT32)
    terms = _flush(terms)
    add = _add_flushed if _may_underflow(terms) else np.add
    if order == "pairwise":
        return _pairwise(terms, add)
    if order == "reversed":
        return _sequential(terms[::-1], add)
    if order == "sequential":
        return _sequential(terms, add)
    size = int(order.removeprefix("blocked-"))
    blocks = [_sequential(terms[start : start + size], add) for start in range(0, terms.shape[0], size)]
    return _sequential(np.stack(blocks), add)


def ordered_product(x: Array, weight: Array, order: SumOrder) -> Array:
    """float32 x [M, K] times weight [N, K] transposed, every output an ``ordered_sum`` of its K rounded products."""
    out = np.empty((x.shape[0], weight.shape[0]), FLOAT32)
    # One row at a time bounds the temporary to K x N numbers.
    transposed = np.ascontiguousarray(_flush(weight.astype(FLOAT32)).T)
    for row in range(x.shape[0]):
        out[row] = ordered_sum(_flush(x[row])[:, None] * transposed, order)
    return out


def _sequential(terms: Array, add: Callable[[Array, Array], Array]) -> Array:
    result: Array = terms[0]
    for term in terms[1:]:
        result = add(result, term)
    return result


def _pairwise(terms: Array, add: Callable[[Array, Array], Array]) -> Array:
    while terms.shape[0] > 1:
        even = terms.shape[0] // 2 * 2
        sums = add(terms[0:even:2], terms[1:even:2])
        terms = sums if even == terms.shape[0] else np.concatenate([sums, terms[even:]])
    result: Array = terms[0]
    return result


def _add_flushed(a: Array, b: Array) -> Array:
    return _flush(a + b)


def _may_underflow(terms: Array) -> bool:
    """Whether a sum could be denormal. Sums are multiples of the terms' last places: if no term but zero is below
    2⁻¹⁰², no sum but zero is below 2⁻¹²⁵."""
    magnitudes = np.abs(terms)
    return bool(((magnitudes < 2.0**-102) & (magnitudes > 0)).any())


def _flush(value: Array) -> Array:
    """``value`` with numbers below the smallest normal float32 replaced by zero of the same sign."""
    if value.dtype == FLOAT32 and not _holds_denormals(value.view(np.uint32), 0x7FFFFFFF, 0x7FFFFF):
        return value
    small = np.abs(value) < SMALLEST_NORMAL
    return np.where(small, np.copysign(np.zeros((), value.dtype), value), value)


# Weights are read-only and used at every step: their float64 form is kept as long as the weight itself lives.
_wide: dict[int, tuple[weakref.ref[Array], Array]] = {}


def exactly(weight: Array) -> Array:
    """A read-only ``weight`` as float64, unrounded: the float64 form that other devices compute with, where they may.

    Theirs has float32-range denormals flushed; a weight that holds any gets a form of its own.
    """
    shared = _wide_weight(weight)
    for start in range(0, len(weight), PORTION):
        piece = weight[start : start + PORTION]
        if not np.array_equal(shared[start : start + PORTION], piece.astype(FLOAT64), equal_nan=True):
            return weight.astype(FLOAT64)
    return shared


def _wide_weight(weight: Array) -> Array:
    if weight.dtype == FLOAT64:
        return weight
    if weight.flags.writeable:
        return widen(weight)
    known = _wide.get(id(weight))
    if known is not None and known[0]() is weight:
        return known[1]
    key = id(weight)
    wide = widen(weight)
    wide.flags.writeable = False
    _wide[key] = (weakref.ref(weight, lambda _: _wide.pop(key, None)), wide)
    return wide
