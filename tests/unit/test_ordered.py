"""Float32 sums in a stated order: the definition does what its words say, and the kernel gives the same bits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from toolkit.devices import ordered
from toolkit.devices.arithmetic import (
    SMALLEST_NORMAL,
    SUM_ORDERS,
    Arithmetic,
    SumOrder,
    ordered_product,
    ordered_sum,
    product,
    total,
    using,
)
from toolkit.dtypes import BFLOAT16, FLOAT16, FLOAT32

DEPTHS = (1, 7, 31, 32, 33, 64, 65, 255, 256, 257, 511, 1000)


def numbers(seed: int, *shape: int, dtype: Any = FLOAT32) -> Any:
    random = np.random.Generator(np.random.PCG64(seed))
    # Magnitudes over several decades: in another order nearly every sum differs.
    return (random.standard_normal(shape) * 10.0 ** random.uniform(-2, 2, shape)).astype(np.float32).astype(dtype)


def rounded(value: Fraction) -> Fraction:
    return Fraction(float(np.float32(float(value))))


def added_by_hand(terms: list[Fraction], order: SumOrder) -> Fraction:
    """The words of ``ordered_sum``'s docstring, one addition at a time."""
    if order == "pairwise":
        while len(terms) > 1:
            sums = [rounded(a + b) for a, b in zip(terms[0::2], terms[1::2], strict=False)]
            terms = sums + terms[len(terms) // 2 * 2 :]
        return terms[0]
    if order == "reversed":
        terms = terms[::-1]
    if order.startswith("blocked-"):
        size = int(order.removeprefix("blocked-"))
        blocks = [terms[start : start + size] for start in range(0, len(terms), size)]
        terms = [added_by_hand(block, "sequential") for block in blocks]
    result = terms[0]
    for term in terms[1:]:
        result = rounded(result + term)
    return result


@pytest.mark.parametrize("order", SUM_ORDERS)
@pytest.mark.parametrize("depth", [1, 6, 33, 100, 519])
def test_the_definition_adds_as_it_says(order: SumOrder, depth: int) -> None:
    terms = numbers(depth, depth)
    want = added_by_hand([Fraction(float(term)) for term in terms], order)
    assert Fraction(float(ordered_sum(terms, order))) == want


def test_orders_differ() -> None:
    terms = numbers(0, 1000, 20)
    assert len({ordered_sum(terms, order).tobytes() for order in SUM_ORDERS}) == len(SUM_ORDERS)


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16, FLOAT32], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("order", SUM_ORDERS)
def test_the_kernel_gives_the_bits_of_the_definition(order: SumOrder, dtype: Any) -> None:
    for rows, columns in ((1, 1), (3, 70), (66, 9)):
        for depth in DEPTHS:
            x, weight = numbers(1, rows, depth), numbers(2, columns, depth, dtype=dtype)
            got = ordered.product(x[None], weight[None], order)[0]
            assert got.tobytes() == ordered_product(x, weight, order).tobytes(), (rows, columns, depth)


@pytest.mark.parametrize("order", SUM_ORDERS)
def test_the_kernel_stacks_products(order: SumOrder) -> None:
    x, weight = numbers(1, 3, 5, 40), numbers(2, 3, 7, 40)
    got = ordered.product(x, weight, order)
    for one, left, right in zip(got, x, weight, strict=True):
        assert one.tobytes() == ordered_product(left, right, order).tobytes()


@pytest.mark.parametrize("order", SUM_ORDERS)
def test_denormals_and_signed_zeros_are_those_of_the_definition(order: SumOrder) -> None:
    # Products and sums around the smallest normal number, denormal operands, and sums that cancel to it.
    x = numbers(3, 9, 300) * np.float32(1e-18)
    weight = numbers(4, 11, 300) * np.float32(1e-19)
    weight[0], weight[1], x[0] = -0.0, SMALLEST_NORMAL / 2, 1.0
    x[1] = np.tile(np.float32([1.0, -1.0, 0.75]), 100)
    weight[2] = SMALLEST_NORMAL * 1.5
    got = ordered.product(x[None], weight[None], order)[0]
    want = ordered_product(x, weight, order)
    assert got.tobytes() == want.tobytes()
    assert not ((np.abs(want) < SMALLEST_NORMAL) & (want != 0)).any()
    assert ((np.abs(want) < 1e-30) & (want != 0)).any()  # small sums did occur


@pytest.mark.parametrize("order", SUM_ORDERS)
def test_reference_ops_sum_in_the_order_in_force(order: SumOrder) -> None:
    x, weight = numbers(5, 2, 3, 50), numbers(6, 4, 50, dtype=BFLOAT16)
    stacked = numbers(7, 2, 6, 50)
    before = ordered.runs["kernel"]
    with using(Arithmetic(sum_order=order)):
        by_weight, by_stack = product(x, weight), product(x, stacked)
        sums, down = total(x), total(x, axis=0)
    assert ordered.runs["kernel"] == before + 4
    flat = x.reshape(-1, 50)
    assert np.array_equal(by_weight, ordered_product(flat, weight, order).reshape(2, 3, 4))
    assert np.array_equal(by_stack[1], ordered_product(x[1], stacked[1], order))
    assert np.array_equal(sums, ordered_sum(np.moveaxis(x, -1, 0), order))
    assert np.array_equal(down, ordered_sum(x, order))


@pytest.mark.parametrize("order", SUM_ORDERS)
def test_without_a_compiler_the_bits_are_the_same(order: SumOrder, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = numbers(8, 3, 90), numbers(9, 5, 90)
    with using(Arithmetic(sum_order=order)):
        kernel = product(x, weight)
        monkeypatch.setattr(ordered, "available", lambda: False)
        before = ordered.runs["numpy"]
        assert product(x, weight).tobytes() == kernel.tobytes()
        assert ordered.runs["numpy"] == before + 1
        assert product(x[:, :0], weight[:, :0]).tolist() == np.zeros((3, 5)).tolist()
