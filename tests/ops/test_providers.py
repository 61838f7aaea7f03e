"""A provider that can never be selected, or a matrix unit that is never used, is no provider."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.devices import GuardedHost
from tests.ops.test_cases import run
from toolkit.devices import kernels
from toolkit.devices.compile_options import AMD_TARGETS, AmdTarget, amd_target, cuda_options, hiprtc_options
from toolkit.devices.host import HostDevice
from toolkit.devices.numpy_devices import reference
from toolkit.dtypes import BFLOAT16
from toolkit.emulator.code_object import CodeObject
from toolkit.emulator.disassembly import Disassembler
from toolkit.emulator.hiprtc import HipRTC
from toolkit.ops import REGISTRY, linear
from toolkit.ops.cases import Draw
from toolkit.ops.declare import Op

UNIT_INSTRUCTION = re.compile(r"v_(?:wmma|mfma)_f32_16x16x16")
QUICK = ("gfx1100", "gfx1200")
TARGETS = [
    pytest.param(amd_target(name), id=name, marks=() if name in QUICK else pytest.mark.slow) for name in AMD_TARGETS
]


class WithUnit(HostDevice):
    """Chooses as a device with a matrix unit does; there each lane computes its share of a tile by itself."""

    matrix_unit = True


class GuardedWithUnit(GuardedHost):
    matrix_unit = True


def selected(op: Op[..., Any], device: HostDevice) -> set[str]:
    """The providers that the op's cases select on ``device``."""
    for dtype in op.dtypes:
        for case in op.draw_cases(Draw(dtype)):
            device.select(op, op.bind(case.args, case.kwargs))
    return {provider for name, provider in device.statistics.selections if name == op.name}


@pytest.mark.parametrize("op", REGISTRY.values(), ids=lambda op: op.name)
def test_every_provider_is_selected_by_some_case(op: Op[..., Any]) -> None:
    with_unit, without = selected(op, WithUnit()), selected(op, HostDevice())
    assert with_unit | without == {provider.name for provider in op.providers}
    assert {provider.name for provider in op.providers if provider.matrix_unit}.isdisjoint(without)


@pytest.mark.parametrize("wave", [32, 64])
def test_the_tiles_of_a_matrix_unit_are_put_together_rightly(wave: int) -> None:
    device = GuardedWithUnit(wave=wave, poison=True)
    for case in linear.draw_cases(Draw(BFLOAT16)):
        (got,), (want,) = run(device, linear, case), run(reference(), linear, case)
        device.check_bands()
        assert linear.tolerance.check(got, want, linear.bind(case.args, case.kwargs)).ok, str(case)
    assert device.statistics.selections["linear", "matrix-unit"]


@pytest.mark.rocm
@pytest.mark.parametrize("target", TARGETS)
def test_the_unit_is_in_the_machine_code_of_every_target_that_has_one(target: AmdTarget, compiler: HipRTC) -> None:
    source = kernels.source("linear.hip", wave=target.wave)
    code = CodeObject(compiler.compile(source, target.name, hiprtc_options()))
    disassembler = Disassembler(compiler.llvm, target.processor)
    lines = [line.text for address, text in code.text for line in disassembler.lines(text, address)]
    found = sum(bool(UNIT_INSTRUCTION.match(line)) for line in lines)
    # Four tiles a wave, two steps of 16 terms.
    assert found == (8 if target.matrix_unit else 0)


def test_the_unit_is_in_the_code_for_nvidia() -> None:
    nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="NVRTC comes with CuPy for CUDA")
    from cupy.cuda import runtime

    if runtime.is_hip:
        pytest.skip("this CuPy has hipRTC")
    program = nvrtc.createProgram(kernels.source("linear.hip"), "linear.hip", (), ())
    nvrtc.compileProgram(program, (*cuda_options(), "-ftz=true", "-arch=compute_90"))
    text = nvrtc.getPTX(program)
    assert (text if isinstance(text, str) else text.decode()).count("mma.sync.aligned.m16n8k16") == 16
