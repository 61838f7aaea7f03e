"""Rows gathered by index: the token embedding, and the rows of a batch whose logits are wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices.arithmetic import Array, narrow, to_float32, widen
from toolkit.devices.launching import Launch
from toolkit.dtypes import INT32
from toolkit.errors import ToolkitError
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tiles import tiles
from toolkit.ops.tolerance import BitExact


def _check(name: str, table: Array, ids: Array) -> None:
    if table.ndim != 2 or ids.ndim != 1 or np.dtype(ids.dtype) != INT32:
        raise ToolkitError(
            f"{name} takes a table [rows, columns] and int32 indices [n], "
            f"not {table.dtype}{list(table.shape)} and {ids.dtype}{list(ids.shape)}"
        )


WORDS = {2: "u16", 4: "u32"}  # the kernels copy bits: one entry for each size


def _gather(table: Array, ids: Array, out: Array) -> Launch:
    columns = table.shape[1]
    entry = f"gather_rows_{WORDS[table.dtype.itemsize]}"
    return Launch(entry, (ids.size, tiles(columns)), (table, ids, out, columns))


@op(kernel="embedding.hip", tolerance=BitExact())
def gather_rows(x: Array, rows: Array) -> Array:
    """x [any, columns], rows int32 [n], each a valid index → [n, columns] of x's dtype, bit for bit.

    Raises ToolkitError for other ranks or index dtypes. An index out of range is the caller's to exclude.
    """
    _check("gather_rows", x, rows)
    gathered: Array = x[rows]
    return gathered


@gather_rows.outputs
def _(x: Array, rows: Array) -> Spec:
    _check("gather_rows", x, rows)
    return Spec((rows.size, x.shape[1]), x.dtype)


@gather_rows.provider("copy", when=lambda x, **_: x.dtype.itemsize in WORDS)
def _(out: Array, x: Array, rows: Array) -> Launch:
    return _gather(x, rows, out)


@gather_rows.cases
def _(draw: Draw) -> Iterator[Case]:
    for rows, columns, count in ((1, 1, 1), (5, 64, 3), (7, 1152, 1), (3, 2049, 4)):
        yield draw.case(draw.normal(rows, columns), draw.integers(0, rows, count))
    yield draw.case(draw.special()[None, :], np.zeros(2, np.int32))
    yield draw.case(draw.normal(3, 16), np.array([2, 0, 2, 2], np.int32))
    yield draw.case(draw.normal(3, 16), np.zeros(0, np.int32))


def _factor(table: Array, scale: float, scale_in_storage_dtype: bool) -> Array:
    """The factor as it multiplies, float64 holding a number of the declared dtype (unrounded when exact)."""
    exactly = np.asarray(scale, np.float64)
    return widen(narrow(exactly, table.dtype)) if scale_in_storage_dtype else to_float32(exactly)


@op(
    kernel="embedding.hip",
    tolerance=BitExact(
        because="rows are copied; a scaled element is one product of float32 numbers, rounded as both do"
    ),
)
def embedding(table: Array, ids: Array, *, scale: float | None = None, scale_in_storage_dtype: bool = True) -> Array:
    """table [vocabulary, hidden], ids int32 [tokens] → [tokens, hidden] of the table's dtype.

    Gemma multiplies the rows by ``scale``. transformers rounds it to the table's dtype first
    (``scale_in_storage_dtype``), other engines keep it in float32; the product is rounded once. Raises ToolkitError for
    other ranks or index dtypes. An id out of range is the caller's to exclude.
    """
    rows = gather_rows.reference(table, ids)
    if scale is None:
        return rows
    return narrow(widen(rows) * _factor(table, scale, scale_in_storage_dtype), table.dtype)


@embedding.outputs
def _(table: Array, ids: Array, **_: Any) -> Spec:
    _check("embedding", table, ids)
    return Spec((ids.size, table.shape[1]), table.dtype)


@embedding.provider("copy", when=lambda table, scale, **_: scale is None and table.dtype.itemsize in WORDS)
def _(out: Array, table: Array, ids: Array, **_: Any) -> Launch:
    return _gather(table, ids, out)


@embedding.provider("scaled", when=lambda scale, **_: scale is not None)
def _(out: Array, table: Array, ids: Array, scale: float, scale_in_storage_dtype: bool) -> Launch:
    columns = table.shape[1]
    factor = float(_factor(table, scale, scale_in_storage_dtype))
    entry = f"scaled_embedding_{suffix(table)}"
    return Launch(entry, (ids.size, tiles(columns)), (table, ids, out, columns, factor))


@embedding.cases
def _(draw: Draw) -> Iterator[Case]:
    for rows, columns, count in ((1, 8, 1), (300, 640, 5), (11, 1153, 3)):
        table, ids = draw.normal(rows, columns), draw.integers(0, rows, count)
        yield draw.case(table, ids)
        # The square root of Gemma's width is no number of any storage dtype: where it is rounded shows.
        yield draw.case(table, ids, scale=columns**0.5)
        yield draw.case(table, ids, scale=columns**0.5, scale_in_storage_dtype=False)
    yield draw.case(np.stack([draw.special()] * 2), np.array([1, 0, 1], np.int32))
    yield draw.case(np.stack([draw.special()] * 2), np.array([1, 0, 1], np.int32), scale=33.94)
