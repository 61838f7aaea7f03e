"""The kernels' own exp, log, tanh, sigmoid, normal tail, sin and cos on the host: how exact they are, and that their bits
are fixed."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

from toolkit.devices import host, kernels

Array = np.ndarray[Any, Any]

FLOAT32_FUNCTIONS = ("exp_", "log_", "tanh_", "sigmoid")
TAIL = "normal_tail"
FLOAT64_FUNCTIONS = ("sin_", "cos_")
TILE = 1024

ENTRIES = "".join(
    f"ENTRY(test_{name}, {TILE}, const {ctype}* x, {ctype}* out) {{\n"
    f"    const i64 first = (i64)BLOCK_X * {TILE};\n"
    f"    THREADS({TILE}) {{ out[first + thread] = {name}(x[first + thread]); }}\n"
    "}\n"
    for ctype, names in (("float", (*FLOAT32_FUNCTIONS, TAIL)), ("double", FLOAT64_FUNCTIONS))
    for name in names
)


@cache
def library(*extra: str) -> host.HostModule:
    # activation.hip brings functions.h with it.
    return host.HostModule(host.build(kernels.source("activation.hip") + ENTRIES, "test_functions.hip", extra))


def evaluate(name: str, x: Array, *extra: str) -> Array:
    """``name`` of every element of x, as a kernel on the host computes it."""
    blocks = -(-x.size // TILE)
    padded = np.zeros(blocks * TILE, x.dtype)
    padded[: x.size] = x
    out = np.full_like(padded, np.nan)
    pointers = [ctypes.c_void_p(padded.ctypes.data), ctypes.c_void_p(out.ctypes.data)]
    arguments = (ctypes.c_void_p * 2)(*(ctypes.addressof(pointer) for pointer in pointers))
    library(*extra).entry(f"test_{name}")((ctypes.c_uint * 3)(blocks, 1, 1), arguments)
    return out[: x.size]


def float32_patterns(step: int) -> Array:
    """Every step-th float32 there is, of every sign and exponent; NaN and the infinities are left out."""
    x = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return x[np.isfinite(x)]


def neighbours(x: float, count: int) -> Array:
    """The 2 count + 1 float32 numbers around x."""
    return (np.arange(-count, count + 1) + np.float32(x).view(np.int32)).astype(np.int32).view(np.float32)


def worst_ulps(got: Array, exact: Array) -> float:
    """The largest error in units in the last place of float32, where the result is a normal number."""
    exponent = np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-126)))
    return float(np.max(np.abs(got.astype(np.float64) - exact) / np.exp2(exponent - 23)))


EXACT: dict[str, Callable[[Array], Array]] = {
    "exp_": np.exp,
    "log_": np.log,
    "tanh_": np.tanh,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
}
# Measured over every float32 where the function is neither constant nor linear: 1.0593, 0.9543, 1.4946 and 2.4808.
LARGEST_ERROR = {"exp_": 1.06, "log_": 0.96, "tanh_": 1.5, "sigmoid": 2.49}


@pytest.mark.parametrize("name", FLOAT32_FUNCTIONS)
def test_float32_function_is_within_its_error_everywhere(name: str) -> None:
    x = np.concatenate([float32_patterns(1013), *(neighbours(edge, 2000) for edge in (0.55, -87.0, 88.7, 0.7071, 1.0))])
    with np.errstate(all="ignore"):
        x = np.where(np.abs(x) < 2.0**-126, np.float32(0), x)  # as kernels read them
        exact = EXACT[name](x.astype(np.float64))
        wanted = exact.astype(np.float32).astype(np.float64)
    got = evaluate(name, x)
    ordinary = np.isfinite(wanted) & (np.abs(exact) >= 2.0**-126) & np.isfinite(got)
    assert worst_ulps(got[ordinary], exact[ordinary]) <= LARGEST_ERROR[name]
    if name == "sigmoid":  # e^-x overflows before 1 / e^-x leaves the normal numbers
        assert not got[x < -88.73].any()
        ordinary |= (x < -88.72) & (got == 0)
    rest = ~ordinary
    flushed = np.where(np.abs(exact) < 2.0**-126, np.copysign(0.0, exact), wanted)
    np.testing.assert_array_equal(got[rest], flushed[rest].astype(np.float32))


@pytest.mark.parametrize(
    ("name", "x", "wanted"),
    [
        ("exp_", [0.0, -0.0, 1e-45, 88.73, 3e38, np.inf], [1, 1, 1, np.inf, np.inf, np.inf]),
        ("exp_", [-87.34, -3e38, -np.inf], [0, 0, 0]),
        ("log_", [1.0, 0.0, -0.0, 1e-45, -1e-45, np.inf, -1.0, -np.inf], [0, *[-np.inf] * 4, np.inf, np.nan, np.nan]),
        ("tanh_", [0.0, -0.0, np.inf, -np.inf, 9.1, -20.0, 3e38], [0.0, -0.0, 1, -1, 1, -1, 1]),
        ("sigmoid", [0.0, -0.0, np.inf, -np.inf, 3e38, -3e38], [0.5, 0.5, 1, 0, 1, 0]),
    ],
)
def test_float32_edges(name: str, x: list[float], wanted: list[float]) -> None:
    got = evaluate(name, np.array([*x, np.nan, -np.nan], np.float32))
    np.testing.assert_array_equal(got, np.array([*wanted, np.nan, np.nan], np.float32))
    np.testing.assert_array_equal(np.signbit(got[: len(x)]), np.signbit(np.array(wanted, np.float32)))


def test_normal_tail_is_within_its_error() -> None:
    # Every 1013th float32 of the ordinary range. math.erfc is within a few ULP of float64.
    x = np.concatenate(
        [float32_patterns(1013), neighbours(13.5, 2000), np.linspace(0.0, 13.0, 200_000, dtype=np.float32)]
    )
    x = x[(x >= 2.0**-30) & (x <= 13.6)]
    exact = np.array([math.erfc(value / math.sqrt(2.0)) / 2.0 for value in x.astype(np.float64)])
    got = evaluate(TAIL, x)
    ordinary = exact >= 2.0**-126
    # Measured at every 211th float32: 6.604.
    assert worst_ulps(got[ordinary], exact[ordinary]) <= 6.7
    assert (got[exact < 2.0**-127] == 0).all()
    edges = evaluate(TAIL, np.array([0.0, -0.0, 1e-45, 13.5, 3e38, np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(edges, np.array([0.5, 0.5, 0.5, 0, 0, 0, np.nan], np.float32))


def test_exp_is_cut_off_exactly_at_the_ends_of_float32() -> None:
    x = neighbours(np.log(2.0) * -126, 500)
    np.testing.assert_array_equal(evaluate("exp_", x) == 0, np.exp(x.astype(np.float64)) < 2.0**-126)
    x = neighbours(np.log(2.0) * 128, 500)
    overflows = np.exp(x.astype(np.float64)) >= (2.0 - 2.0**-24) * 2.0**127
    np.testing.assert_array_equal(np.isinf(evaluate("exp_", x)), overflows)


def angles() -> Array:
    random = np.random.Generator(np.random.PCG64(1))
    quarter_turns = random.integers(1, 6_000_000, 1500) * (np.pi / 2)
    return np.concatenate(
        [
            random.uniform(-1.0, 1.0, 500),
            random.uniform(0.0, 1e7, 1500),
            random.uniform(-(2.0**30), 2.0**30, 500),
            quarter_turns,  # where nearly everything cancels
            np.nextafter(quarter_turns, 0.0),
            10.0 ** random.uniform(-30.0, 0.0, 300),
            np.arange(0.0, 300.0),
        ]
    )


@pytest.mark.parametrize("name", FLOAT64_FUNCTIONS)
def test_sin_and_cos_are_within_three_quarters_of_an_ulp(name: str) -> None:
    x = angles()
    got = evaluate(name, x)
    worst = 0.0
    with mpmath.workprec(200):
        function = getattr(mpmath, name.rstrip("_"))
        for angle, ours in zip(x.tolist(), got.tolist(), strict=True):
            exact = function(mpmath.mpf(angle))
            ulp = mpmath.mpf(2) ** (mpmath.frexp(exact)[1] - 53) if exact else mpmath.mpf(2) ** -1074
            worst = max(worst, float(abs(ours - exact) / ulp))
    assert worst <= 0.75


@pytest.mark.parametrize(("name", "at_zero"), [("sin_", 0.0), ("cos_", 1.0)])
def test_sin_and_cos_edges(name: str, at_zero: float) -> None:
    got = evaluate(name, np.array([0.0, -0.0, np.inf, -np.inf, np.nan]))
    np.testing.assert_array_equal(got, [at_zero, at_zero, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("name", FLOAT32_FUNCTIONS + FLOAT64_FUNCTIONS)
def test_bits_do_not_depend_on_what_the_compiler_makes_of_it(name: str) -> None:
    x = float32_patterns(65537) if name in FLOAT32_FUNCTIONS else angles()
    plain = ("-O1",) if host.architecture_flags() == () else ("-O1", "-march=x86-64")
    assert evaluate(name, x).tobytes() == evaluate(name, x, *plain).tobytes()
