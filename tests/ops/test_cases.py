"""Every declared op, on every kernel device there is, against the reference: made from the declarations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.devices import guarded_host, kernel_devices
from toolkit.devices.numpy_devices import reference
from toolkit.ops import REGISTRY
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Case, Op

pytestmark = pytest.mark.cross_device

COMBINATIONS = [
    pytest.param(op, dtype, id=f"{op.name}-{dtype.name}") for op in REGISTRY.values() for dtype in op.dtypes
]


def run(op: Op[..., Any], case: Case, device: Any) -> list[np.ndarray[Any, Any]]:
    """The outputs of a case on ``device``, what it writes in place among them, on the host."""
    # Each device gets its own copies: an op may write into its arguments.
    args, kwargs = copy.deepcopy((case.args, case.kwargs))
    args = tuple(device.put(value) if isinstance(value, np.ndarray) else value for value in args)
    kwargs = {name: device.put(value) if isinstance(value, np.ndarray) else value for name, value in kwargs.items()}
    result = device.run(op, args, kwargs)
    results = [] if result is None else list(result) if isinstance(result, tuple) else [result]
    bound = op.bind(args, kwargs)
    return [np.array(device.get(value)) for value in results + [bound[name] for name in op.mutates]]


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether all elements are equal to the last bit; a NaN's sign and payload are the processor's choice."""
    nan = np.isnan(a) if a.dtype.kind != "i" else np.zeros(a.shape, bool)
    other = np.isnan(b) if b.dtype.kind != "i" else np.zeros(b.shape, bool)
    return bool((nan == other).all()) and a[~nan].tobytes() == b[~nan].tobytes()


@pytest.mark.parametrize("device", kernel_devices())
@pytest.mark.parametrize(("op", "dtype"), COMBINATIONS)
def test_op_is_within_its_tolerance(
    op: Any, dtype: Any, device: Any, record_property: Callable[[str, object], None]
) -> None:
    oracle, cpu = reference(), guarded_host(device.wave)
    before = device.statistics.selections.copy()
    count, worst, equal = 0, 0.0, True
    for case in op.draw_cases(Draw(dtype)):
        count += 1
        want, got = run(op, case, oracle), run(op, case, device)
        device.check_bands()
        assert len(got) == len(want), f"{op.name} gave {len(got)} outputs, its reference {len(want)}"
        for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
            agreement = op.tolerance.check(ours, theirs, op.bind(case.args, case.kwargs))
            worst = max(worst, agreement.worst)
            assert agreement.ok, (
                f"{op.name} on {device.name}, case {count} ({case}), output {index}: error at {agreement.where} is "
                f"{agreement.worst:.3g} times what is allowed: got {ours[agreement.where]}, "
                f"want {theirs[agreement.where]} ({op.tolerance.because})"
            )
        if device is not cpu:
            equal &= all(same_bits(a, b) for a, b in zip(got, run(op, case, cpu), strict=True))
    assert count, f"{op.name} declares no case for {dtype}"
    providers = sorted(provider for _, provider in device.statistics.selections - before)
    record_property(
        "op_case_row",
        {
            "op": op.name,
            "dtype": dtype.name,
            "device": device.name,
            "cases": count,
            "worst": worst,
            "providers": providers,
            "same_bits_as_cpu": equal,
        },
    )
    # Only a matrix unit may add and round otherwise than the sources say.
    assert equal or any(provider.matrix_unit for provider in op.providers if provider.name in providers), (
        f"{op.name} on {device.name} differs from device cpu of equal waves in its bits"
    )


def test_a_write_beside_an_array_is_caught() -> None:
    device = guarded_host(32)
    array = device.empty((3,), np.dtype(np.float32))
    assert np.isnan(array).all()
    device.check_bands()
    array = device.empty((3,), np.dtype(np.float32))
    np.ndarray((4,), np.float32, buffer=array.base, offset=256)[3] = 0.0
    with pytest.raises(AssertionError, match="4 bytes beside an array of 12 bytes"):
        device.check_bands()
    device._guarded.clear()
