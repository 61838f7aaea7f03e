"""Every declared op, on every kernel device there is, against the reference: made from the declarations."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from tests.devices import kernel_devices
from toolkit.devices.numpy_devices import reference
from toolkit.ops import REGISTRY

pytestmark = pytest.mark.cross_device

COMBINATIONS = [
    pytest.param(op, dtype, id=f"{op.name}-{dtype.name}") for op in REGISTRY.values() for dtype in op.dtypes
]


def moved(device: Any, argument: Any) -> Any:
    return device.put(argument) if isinstance(argument, np.ndarray) else argument


def outputs(op: Any, result: Any, bound: dict[str, Any]) -> list[Any]:
    results = [] if result is None else list(result) if isinstance(result, tuple) else [result]
    return results + [bound[name] for name in op.mutates]


@pytest.mark.parametrize("device", kernel_devices())
@pytest.mark.parametrize(("op", "dtype"), COMBINATIONS)
def test_op_is_within_its_tolerance(op: Any, dtype: Any, device: Any) -> None:
    from toolkit.ops.cases import Draw

    oracle = reference()
    count = 0
    for case in op.draw_cases(Draw(dtype)):
        count += 1
        # Both sides get their own copies: an op may write into its arguments.
        args, kwargs = copy.deepcopy((case.args, case.kwargs))
        want = outputs(op, oracle.run(op, args, kwargs), op.bind(args, kwargs))
        args = tuple(moved(device, argument) for argument in copy.deepcopy(case.args))
        kwargs = {name: moved(device, value) for name, value in copy.deepcopy(case.kwargs).items()}
        got = outputs(op, device.run(op, args, kwargs), op.bind(args, kwargs))
        assert len(got) == len(want), f"{op.name} gave {len(got)} outputs, its reference {len(want)}"
        for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
            agreement = op.tolerance.check(device.get(ours), np.asarray(theirs), op.bind(case.args, case.kwargs))
            assert agreement.ok, (
                f"{op.name} on {device.name}, case {count} ({case}), output {index}: error at {agreement.where} is "
                f"{agreement.worst:.3g} times what is allowed: got {device.get(ours)[agreement.where]}, "
                f"want {theirs[agreement.where]} ({op.tolerance.because})"
            )
    assert count, f"{op.name} declares no case for {dtype}"
