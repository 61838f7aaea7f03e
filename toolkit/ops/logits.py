"""What is read off logits: log-probabilities, the largest few, the largest one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, total, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import FLOAT32, INT32
from toolkit.errors import ToolkitError
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tolerance import BitExact, Within

SELECTION = BitExact(because="a selection computes nothing, and its ties are decided by the index")


def _rows(x: Array) -> int:
    return int(x.size // x.shape[-1])


def _check(name: str, x: Array) -> None:
    if x.ndim < 1 or x.shape[-1] == 0:
        raise ToolkitError(f"{name} needs at least one column, not {list(x.shape)}")


def _log_softmax_bound(x: Array) -> Array:
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        shifted = wide - wide.max(axis=-1, keepdims=True)
        log_sum = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        bound: Array = (x.shape[-1] / 1024 + 60.0 + np.abs(shifted) + 2.0 * log_sum) * 2.0**-24
    return bound


@op(
    kernel="logits.hip",
    tolerance=Within(
        _log_softmax_bound,
        because="x - max is rounded at its own magnitude; the sum adds a thread's columns/1024 terms and then some forty "
        "partial sums, each addition rounded, of exps within 1.1 ULP of a rounded argument; the log is within one ULP",
    ),
)
def log_softmax(x: Array) -> Array:
    """x [..., columns] → log of the softmax over the last axis, float32 of the same shape.

    A row that holds NaN or +inf, or nothing but -inf, is NaN throughout. Raises ToolkitError without columns.
    """
    _check("log_softmax", x)
    wide = widen(x)
    shifted = wide - np.max(wide, axis=-1, keepdims=True)
    return narrow(shifted - np.log(total(np.exp(shifted)))[..., None], FLOAT32)


@log_softmax.outputs
def _(x: Array) -> Spec:
    _check("log_softmax", x)
    return Spec(x.shape, FLOAT32)


@log_softmax.provider("row-per-block")
def _(out: Array, x: Array) -> Launch:
    return Launch(f"log_softmax_{suffix(x)}", (_rows(x),), (x, out, x.shape[-1]))


@log_softmax.cases
def _(draw: Draw) -> Iterator[Case]:
    yield from _rows_of_logits(draw)
    yield draw.case(np.stack([np.full(70, value, draw.dtype) for value in (0.0, -3.0, 60000.0)]))
    yield draw.case(draw.normal(1, 131072, scale=4.0))


@op(kernel="logits.hip", tolerance=SELECTION)
def argmax(x: Array) -> Array:
    """x [..., columns] → int32 [...]: the index of the largest element, the lowest index among equals.

    A row that holds NaN gives -1, which is no token, so that nobody mistakes it for one. Raises ToolkitError without
    columns.
    """
    _check("argmax", x)
    wide = x.astype(np.float64)
    return np.where(np.isnan(wide).any(axis=-1), -1, np.argmax(wide, axis=-1)).astype(INT32)


@argmax.outputs
def _(x: Array) -> Spec:
    _check("argmax", x)
    return Spec(x.shape[:-1], INT32)


@argmax.provider("row-per-block")
def _(out: Array, x: Array) -> Launch:
    return Launch(f"argmax_{suffix(x)}", (_rows(x),), (x, out, x.shape[-1]))


@argmax.cases
def _(draw: Draw) -> Iterator[Case]:
    yield from _rows_of_logits(draw)
    yield from _ties(draw)
    yield draw.case(draw.normal(1, 131072))


def _check_top_k(x: Array, k: int) -> None:
    _check("top_k", x)
    if not 1 <= k <= x.shape[-1]:
        raise ToolkitError(f"top_k: k = {k} of {x.shape[-1]} columns; it must be between 1 and the number of columns")


@op(kernel="logits.hip", tolerance=SELECTION)
def top_k(x: Array, *, k: int) -> tuple[Array, Array]:
    """x [..., columns] → the k largest, (values [..., k] in x's dtype, indices int32 [..., k]).

    Sorted by value, descending; among equals the lowest index comes first. A row that holds NaN gives NaN and -1 in all
    places. Raises ToolkitError unless 1 <= k <= columns.
    """
    _check_top_k(x, k)
    wide = x.astype(np.float64)
    indices = np.argsort(-wide, axis=-1, kind="stable")[..., :k]
    values = np.take_along_axis(x, indices, axis=-1)
    broken = np.isnan(wide).any(axis=-1)
    values[broken], indices[broken] = np.nan, -1
    return values, indices.astype(INT32)


@top_k.outputs
def _(x: Array, k: int) -> tuple[Spec, Spec]:
    _check_top_k(x, k)
    shape = (*x.shape[:-1], k)
    return Spec(shape, x.dtype), Spec(shape, INT32)


@top_k.provider("row-per-block")
def _(out: tuple[Array, Array], x: Array, k: int) -> Launch:
    return Launch(f"top_k_{suffix(x)}", (_rows(x),), (x, *out, x.shape[-1], k))


@top_k.cases
def _(draw: Draw) -> Iterator[Case]:
    for case in (*_rows_of_logits(draw), *_ties(draw)):
        columns = case.args[0].shape[-1]
        for k in {1, min(8, columns), min(40, columns)}:
            yield draw.case(*case.args, k=k)
    yield draw.case(draw.normal(2, 100), k=100)
    yield draw.case(draw.normal(1, 131072), k=8)


def _rows_of_logits(draw: Draw) -> Iterator[Case]:
    for rows, columns in ((1, 1), (2, 31), (3, 1024), (2, 1025), (5, 2500)):
        yield draw.case(draw.normal(rows, columns, scale=4.0))
    yield draw.case(draw.normal(2, 3, 65))
    broken = draw.normal(6, 1500)
    broken[0, 1027] = np.nan
    broken[1, 3] = -np.float32(np.nan)
    broken[2, 700] = np.inf
    broken[3, :] = -np.inf
    broken[4, ::2] = -np.inf
    yield draw.case(broken)
    yield draw.case(np.stack([draw.special(), draw.special()[::-1]]))


def _ties(draw: Draw) -> Iterator[Case]:
    # The same largest value in one thread, in two lanes of a wave, in two waves, and everywhere.
    x = draw.normal(8, 3000)
    for row, places in enumerate(((5, 1029), (1029, 1061), (900, 1924, 2948), (31, 32), (63, 64), (0, 2999))):
        x[row, list(places)] = 9.0
    x[6] = 1.0
    x[7] = -0.0
    x[7, 1500:] = 0.0
    yield draw.case(x)
    # Denormals are told apart: nothing is computed with them.
    smallest = draw.special()[1]
    yield draw.case(np.array([[0.0, smallest, 0.0, smallest], [-smallest, -0.0, 0.0, -smallest]], draw.dtype))
