"""hipRTC's API and what is read out of its code objects."""

from __future__ import annotations

import pytest

from toolkit.emulator.code_object import CodeObject
from toolkit.emulator.errors import CompileError, EmulatorError
from toolkit.emulator.hiprtc import HipRTC

pytestmark = pytest.mark.rocm

SOURCE = """
__constant__ int table[4] = {1, 2, 3, 4};
__device__ int counter = 7;
extern "C" __global__ void __launch_bounds__(128) scale(float* x, float by, int n) {
  __shared__ float tile[128];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.f;
  __syncthreads();
  if (i < n) x[i] = tile[threadIdx.x ^ 1] * by + table[i & 3] + counter;
}
"""


@pytest.mark.parametrize(("target", "wave"), [("gfx1100", 32), ("gfx1200", 32), ("gfx90a", 64), ("gfx942", 64)])
def test_kernel_metadata(compiler: HipRTC, target: str, wave: int) -> None:
    code = CodeObject(compiler.compile(SOURCE, target, ["-O3"]))
    assert code.target.split(":")[0] == target
    (kernel,) = code.kernels.values()
    assert (kernel.name, kernel.wavefront_size, kernel.lds) == ("scale", wave, 512)
    assert kernel.max_flat_workgroup_size == 128
    assert (kernel.vgpr_spills, kernel.sgpr_spills, kernel.private) == (0, 0, 0)
    assert 0 < kernel.vgprs <= 32
    visible = [(a.offset, a.size, a.kind) for a in kernel.arguments if not a.hidden]
    assert visible == [(0, 8, "global_buffer"), (8, 4, "by_value"), (12, 4, "by_value")]
    assert {"counter", "table"} <= {symbol.name for symbol in code.symbols}
    start, text = code.text[0]
    assert start <= kernel.entry_address < start + len(text)


def test_code_object_without_its_last_byte_is_read(compiler: HipRTC) -> None:
    assert "scale" in CodeObject(compiler.compile(SOURCE, "gfx1200")[:-1]).kernels


def test_compile_error_holds_the_log(compiler: HipRTC) -> None:
    with pytest.raises(CompileError, match=r"gfx1200:\n(.|\n)*broken.hip:1:.*error: expected"):
        compiler.compile("int x", "gfx1200", name="broken.hip")


def test_unknown_target_is_named(compiler: HipRTC) -> None:
    with pytest.raises(CompileError, match="does this hipRTC know gfx9999"):
        compiler.compile("int x;", "gfx9999")


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"not an ELF file" * 10])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(EmulatorError, match="not an AMD GPU code object"):
        CodeObject(data)
