"""Recurrent states in slots: copies out of a cache of them and back, between storage dtypes where asked for.

A cache of states is [slots, ...]. A sequence owns a slot for as long as it runs; which one, and whether it holds
something of that sequence yet (``kept``), is said with every call, so that a slot needs no clearing between owners. A
slot outside the cache is none: it gives zeros and takes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from toolkit.devices import arithmetic
from toolkit.devices.arithmetic import Array
from toolkit.devices.launching import Launch
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Spec, op, suffix
from toolkit.ops.tiles import tiles
from toolkit.ops.tolerance import BitExact

DTYPES = (BFLOAT16, FLOAT16, FLOAT32)


def valid(slots: Array, cache: Array) -> Array:
    """Which of ``slots`` are slots of ``cache``."""
    inside: Array = (slots >= 0) & (slots < cache.shape[0])
    return inside


def initial(cache: Array, slots: Array, kept: Array) -> Array:
    """The states [rows, ...] that a step begins with: what the slots hold where it is kept, else zeros."""
    held = valid(slots, cache) & (kept != 0)
    states = np.zeros((len(slots), *cache.shape[1:]), cache.dtype)
    states[held] = cache[slots[held]]
    return states


def _check(name: str, rows: int, *indices: Array) -> None:
    for index in indices:
        if index.shape != (rows,) or np.dtype(index.dtype) != np.int32:
            raise ToolkitError(f"{name} takes int32 indices [{rows}], not {index.dtype}{list(index.shape)}")


def _size(cache: Array) -> int:
    return math.prod(cache.shape[1:])


CONVERSION = BitExact(because="a copy, or one rounding to the nearest, ties to even, which has one result")


@op(kernel="state.hip", tolerance=CONVERSION)
def state_gather(cache: Array, slots: Array, kept: Array, *, dtype: np.dtype[Any] | None = None) -> Array:
    """cache [slots, ...], slots and kept int32 [rows] → [rows, ...] in ``dtype`` (the cache's when None).

    Row r is cache[slots[r]] where kept[r] is not 0 and slots[r] is a slot, else zeros. Raises ToolkitError for other
    indices.
    """
    _check("state_gather", slots.size, slots, kept)
    states = initial(cache, slots, kept)
    return states if arithmetic.current().exact or dtype is None else states.astype(dtype)


@state_gather.outputs
def _(cache: Array, slots: Array, kept: Array, dtype: np.dtype[Any] | None) -> Spec:
    _check("state_gather", slots.size, slots, kept)
    return Spec((slots.size, *cache.shape[1:]), np.dtype(dtype or cache.dtype))


@state_gather.provider("tiles")
def _(out: Array, cache: Array, slots: Array, kept: Array, **_: Any) -> Launch:
    size = _size(cache)
    arguments = (cache, slots, kept, out, cache.shape[0], np.int64(size))
    return Launch(f"state_gather_{suffix(cache, out)}", (slots.size, tiles(size)), arguments)


@state_gather.cases
def _(draw: Draw) -> Iterator[Case]:
    for dtype in (None, *DTYPES):
        for slots, shape, rows in ((1, (1,), 1), (5, (2, 8, 16), 3), (4, (1025,), 4), (3, (3, 48), 2)):
            cache = draw.normal(slots, *shape)
            cache.reshape(-1)[: draw.special().size][: cache.size] = draw.special()[: cache.size]
            indices = draw.random.permutation(slots)[:rows].astype(np.int32)
            kept = (np.arange(rows) % 3 != 1).astype(np.int32)
            yield draw.case(cache, indices, kept, dtype=dtype)
    none = np.array([-1, 2, 7, 0], np.int32)
    yield draw.case(draw.normal(3, 40), none, np.ones(4, np.int32))
    yield draw.case(draw.normal(3, 40), np.array([1, 1], np.int32), np.ones(2, np.int32))  # two readers of one slot
    yield draw.case(draw.normal(3, 40), np.zeros(0, np.int32), np.zeros(0, np.int32))


@op(kernel="state.hip", tolerance=CONVERSION, mutates=("cache",))
def state_scatter(states: Array, cache: Array, slots: Array) -> None:
    """states [rows, ...] written over the rows ``slots`` (int32 [rows], all different) of cache [slots, ...], rounded to
    its dtype. A row whose slot is none is skipped; all other slots stay as they are. Raises ToolkitError for other
    indices."""
    _check("state_scatter", states.shape[0], slots)
    inside = valid(slots, cache)
    cache[slots[inside]] = states[inside].astype(cache.dtype)


@state_scatter.provider("tiles")
def _(out: None, states: Array, cache: Array, slots: Array) -> Launch:
    _check("state_scatter", states.shape[0], slots)
    size = _size(cache)
    arguments = (states, cache, slots, cache.shape[0], np.int64(size))
    return Launch(f"state_scatter_{suffix(states, cache)}", (states.shape[0], tiles(size)), arguments)


@state_scatter.cases
def _(draw: Draw) -> Iterator[Case]:
    for dtype in DTYPES:
        for slots, shape, rows in ((1, (1,), 1), (5, (2, 8, 16), 3), (4, (1025,), 4)):
            states = draw.normal(rows, *shape)
            states.reshape(-1)[: draw.special().size] = draw.special()[: states.size]
            indices = draw.random.permutation(slots)[:rows].astype(np.int32)
            yield draw.case(states, draw.normal(slots, *shape, dtype=dtype), indices)
    none = np.array([-1, 2, 7, 0], np.int32)
    yield draw.case(draw.normal(4, 40), draw.normal(3, 40), none)
    yield draw.case(draw.normal(0, 40), draw.normal(3, 40), np.zeros(0, np.int32))
