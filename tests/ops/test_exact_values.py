"""Ops on device exact against mpmath, from the definitions as written in papers: within 1e-13 of each element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import mpmath
import numpy as np
import pytest

from toolkit.devices.numpy_devices import exact
from toolkit.dtypes import BFLOAT16
from toolkit.ops import (
    add,
    add_rms_norm,
    argmax,
    cast,
    embedding,
    gather_rows,
    gelu_tanh_mul,
    log_softmax,
    rms_norm,
    scale,
    silu_mul,
    softcap,
    top_k,
)

Array = np.ndarray[Any, np.dtype[np.float64]]
Row: TypeAlias = Sequence[mpmath.mpf]

WITHIN = 1e-13


def normal(*shape: int, scale: float = 1.0) -> Array:
    return np.random.Generator(np.random.PCG64(7)).standard_normal(shape) * scale


def rows(array: Array) -> list[list[mpmath.mpf]]:
    return [[mpmath.mpf(float(value)) for value in row] for row in array]


def agrees(got: Array, wanted: Iterable[Iterable[mpmath.mpf]]) -> None:
    wanted = [list(row) for row in wanted]
    assert got.dtype == np.float64
    assert got.shape == (len(wanted), len(wanted[0]))
    for ours, theirs in zip(got.ravel().tolist(), (value for row in wanted for value in row), strict=True):
        assert abs(ours - theirs) <= WITHIN * abs(theirs)


@pytest.fixture(autouse=True)
def _precisely() -> Iterable[None]:
    with exact(), mpmath.workdps(60):
        yield


def elementwise(function: Callable[..., mpmath.mpf], *arrays: Array) -> list[list[mpmath.mpf]]:
    return [
        [function(*values) for values in zip(*lines, strict=True)] for lines in zip(*map(rows, arrays), strict=True)
    ]


def normed(row: Row, weight: Row, eps: float) -> list[mpmath.mpf]:
    root = mpmath.sqrt(mpmath.fsum(value**2 for value in row) / len(row) + mpmath.mpf(eps))
    return [value / root * factor for value, factor in zip(row, weight, strict=True)]


@pytest.mark.parametrize("unit_offset", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e-4])
def test_rms_norm(size: float, unit_offset: bool) -> None:
    x, weight = normal(3, 17, scale=size), normal(17)
    factors = [factor + unit_offset for factor in rows(weight[None])[0]]
    got = rms_norm(x, weight, eps=1e-6, unit_offset=unit_offset)
    agrees(got, [normed(row, factors, 1e-6) for row in rows(x)])


def test_add_rms_norm() -> None:
    x, weight = normal(3, 17), normal(17)
    residual = x[::-1] * 30
    stream, got = add_rms_norm(x, residual, weight, eps=1e-5)
    sums = elementwise(lambda a, b: a + b, x, residual)
    agrees(stream, sums)
    # The norm is that of the float64 sums.
    agrees(got, [normed(row, rows(weight[None])[0], 1e-5) for row in rows(stream)])


@pytest.mark.parametrize("size", [0.1, 1.0, 6.0])
def test_silu_mul(size: float) -> None:
    gate, up = normal(3, 33, scale=size), normal(3, 33)[::-1]
    agrees(
        silu_mul(np.concatenate([gate, up], axis=1)), elementwise(lambda g, u: g / (1 + mpmath.exp(-g)) * u, gate, up)
    )


@pytest.mark.parametrize("size", [0.1, 1.0, 3.0])
def test_gelu_tanh_mul(size: float) -> None:
    def gelu(x: mpmath.mpf) -> mpmath.mpf:
        inner = mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)
        return x / 2 * (1 + mpmath.tanh(inner))

    gate, up = normal(3, 33, scale=size), normal(3, 33)[::-1]
    agrees(gelu_tanh_mul(np.concatenate([gate, up], axis=1)), elementwise(lambda g, u: gelu(g) * u, gate, up))


def test_add_and_scale() -> None:
    x, y = normal(3, 9), normal(3, 9)[::-1]
    agrees(add(x, y), elementwise(lambda a, b: a + b, x, y))
    agrees(scale(x, factor=0.1), elementwise(lambda a: a * mpmath.mpf(0.1), x))


@pytest.mark.parametrize("size", [0.01, 30.0, 300.0])
def test_softcap(size: float) -> None:
    x = normal(3, 33, scale=size)
    agrees(softcap(x, cap=30.0), elementwise(lambda a: 30 * mpmath.tanh(a / 30), x))


@pytest.mark.parametrize("size", [0.1, 4.0])
def test_log_softmax(size: float) -> None:
    x = normal(3, 65, scale=size)
    wanted = [[value - mpmath.log(mpmath.fsum(mpmath.exp(other) for other in row)) for value in row] for row in rows(x)]
    agrees(log_softmax(x), wanted)


@pytest.mark.parametrize("in_storage_dtype", [False, True])
def test_embedding_multiplies_by_the_unrounded_scale(in_storage_dtype: bool) -> None:
    table, ids = normal(5, 9), np.array([3, 0, 3], np.int32)
    root = mpmath.sqrt(1152)
    got = embedding(table, ids, scale=1152**0.5, scale_in_storage_dtype=in_storage_dtype)
    agrees(got, elementwise(lambda a: a * root, table[[3, 0, 3]]))


def test_selections_and_casts_change_no_number() -> None:
    x = normal(4, 33)
    np.testing.assert_array_equal(gather_rows(x, np.array([2, 0], np.int32)), x[[2, 0]])
    np.testing.assert_array_equal(cast(x, dtype=BFLOAT16), x)
    np.testing.assert_array_equal(argmax(x), [max(range(33), key=row.__getitem__) for row in x])
    values, indices = top_k(x, k=5)
    np.testing.assert_array_equal(values, np.sort(x)[:, :-6:-1])
    np.testing.assert_array_equal(values, np.take_along_axis(x, indices, axis=1))
