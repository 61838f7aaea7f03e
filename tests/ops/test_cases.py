"""Every declared op, on every kernel device there is, against the reference: made from the declarations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.devices import guarded_host, kernel_devices
from toolkit.devices.numpy_devices import reference
from toolkit.investigations.op_cases import run_case as run
from toolkit.investigations.op_cases import same_bits
from toolkit.ops import REGISTRY
from toolkit.ops.cases import Draw

pytestmark = pytest.mark.cross_device

COMBINATIONS = [
    pytest.param(op, dtype, id=f"{op.name}-{dtype.name}") for op in REGISTRY.values() for dtype in op.dtypes
]


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
        want, got = run(oracle, op, case), run(device, op, case)
        device.check_bands()
        assert len(got) == len(want), f"{op.name} gave {len(got)} outputs, its reference {len(want)}"
        for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
            tolerance = op.tolerance.of(index)
            agreement = tolerance.check(ours, theirs, op.bind(case.args, case.kwargs))
            worst = max(worst, agreement.worst)
            assert agreement.ok, (
                f"{op.name} on {device.name}, case {count} ({case}), output {index}: error at {agreement.where} is "
                f"{agreement.worst:.3g} times what is allowed: got {ours[agreement.where]}, "
                f"want {theirs[agreement.where]} ({tolerance.because})"
            )
        if device is not cpu:
            equal &= all(same_bits(a, b) for a, b in zip(got, run(cpu, op, case), strict=True))
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
