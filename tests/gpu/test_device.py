"""Device gpu on a GPU: what it accepts and refuses, what it keeps in memory, and what it says it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.devices import guarded_gpu
from tests.gpu.random_models import DRAWN, RandomTensors
from toolkit.devices import kernels
from toolkit.devices.gpu import STAGING_BYTES, GpuDevice, default_gpu
from toolkit.devices.host import HostDevice
from toolkit.dtypes import BFLOAT16, FLOAT32
from toolkit.errors import ToolkitError
from toolkit.ops import add, rms_norm

pytestmark = pytest.mark.gpu
MIB = 1 << 20


@pytest.fixture(scope="module")
def gpu() -> GpuDevice:
    if guarded_gpu() is None:
        pytest.skip("CuPy sees no GPU on this machine")
    return GpuDevice()


@pytest.mark.parametrize("dtype", [BFLOAT16, np.dtype(np.float16), FLOAT32, np.dtype(np.float64), np.dtype(np.int32)])
@pytest.mark.parametrize("shape", [(3, 5), (0, 7), (1,)])
def test_what_is_put_comes_back(gpu: GpuDevice, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    for moved in (gpu.put(array), gpu.put_weight(array), gpu.put(np.asfortranarray(array))):
        back = gpu.get(moved)
        assert back.dtype == dtype
        assert back.tobytes() == array.tobytes()
    assert gpu.get(gpu.zeros(shape, dtype)).tobytes() == bytes(array.nbytes)


@pytest.mark.parametrize("extra", [-1, 0, 1, STAGING_BYTES + 5])
def test_a_weight_of_several_staging_buffers_comes_back(gpu: GpuDevice, extra: int) -> None:
    array = np.random.default_rng(0).integers(0, 256, STAGING_BYTES + extra, np.uint8)
    assert gpu.get(gpu.put_weight(array)).tobytes() == array.tobytes()


def test_ops_take_cupy_and_dlpack_arrays(gpu: GpuDevice) -> None:
    cupy = pytest.importorskip("cupy")

    class Foreign:
        """Another library's array: DLPack and nothing else."""

        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    x = cupy.asarray(np.array([1.0, 2.0], np.float32))
    for first in (x, Foreign(x)):
        before = default_gpu().statistics.selections["add", "tiles"]
        total = add(first, x)
        assert default_gpu().statistics.selections["add", "tiles"] == before + 1
        assert isinstance(total, cupy.ndarray)
        assert cupy.asnumpy(total).tolist() == [2.0, 4.0]


def test_a_numpy_array_is_not_moved_silently(gpu: GpuDevice) -> None:
    with gpu, pytest.raises(ToolkitError, match=r"op add on device gpu was given a NumPy array.*device\.put"):
        add(np.ones(2, np.float32), np.ones(2, np.float32))


def test_a_kernel_that_does_not_compile_shows_the_compilers_message(
    gpu: GpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = GpuDevice()
    broken = kernels.source("norm.hip", wave=device.wave) + "\nDEVICE int broken() { return missing; }\n"
    monkeypatch.setattr(GpuDevice, "source", lambda self, file: broken)
    x = device.put(np.ones((1, 64), np.float32))
    with device, pytest.raises(ToolkitError, match=r"(?s)norm\.hip does not compile for .*missing"):
        rms_norm(x, x, eps=1e-6)


def test_a_recording_replays_on_new_inputs(gpu: GpuDevice) -> None:
    random = np.random.default_rng(0)
    first, second, weight = (random.standard_normal((4, 256)).astype(BFLOAT16) for _ in range(3))
    with gpu:
        x, w = gpu.put(first), gpu.put(weight[0])
        with gpu.recording() as recording:
            out = rms_norm(add(x, x), w, eps=1e-6)
        gpu.write(x, second)
        recording.replay()
    host = HostDevice(wave=gpu.wave)
    with host:
        want = rms_norm(add(second, second), weight[0], eps=1e-6)
    assert gpu.get(out).tobytes() == want.tobytes()


def test_it_says_what_it_is(gpu: GpuDevice) -> None:
    said = gpu.describe()
    assert said["wave"] in (32, 64)
    assert said["target"].startswith("gfx" if said["platform"] == "HIP" else "sm_")
    assert said["kernels"] == kernels.sources_hash()
    assert any("contract=off" in option or "fmad=false" in option for option in said["options"])


def anonymous() -> int:
    """Bytes of this process's memory that belong to no file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not tell RssAnon")


@contextmanager
def watched() -> Iterator[list[int]]:
    """The most anonymous memory above that at the start, sampled while the block runs: a list of one number."""
    base, peak, done = anonymous(), [0], threading.Event()

    def sample() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], anonymous() - base)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak[0] = max(peak[0], anonymous() - base)


def test_weights_pass_through_little_host_memory(gpu: GpuDevice, tmp_path: Path) -> None:
    from toolkit.checkpoints.safetensors import MappedTensor, open_file

    if b"mulat" in gpu.properties["name"]:
        pytest.skip("the memory of an emulated GPU is anonymous host memory")
    shapes = {f"tensor {i}": (DRAWN // 512, 4096) for i in range(12)}  # 64 MiB each, 768 MiB in all
    made = RandomTensors(shapes, unit_offset=False)
    save_file(dict(made), tmp_path / "model.safetensors")
    largest = max(int(np.prod(shape)) * 2 for shape in shapes.values())
    device = GpuDevice()
    device.put_weight(np.zeros(1, BFLOAT16))  # the staging buffers are part of starting up
    file = open_file(tmp_path / "model.safetensors")
    with watched() as peak:
        kept = []
        for name, entry in file.entries.items():
            mapped = MappedTensor(file.data[entry.begin : entry.end], BFLOAT16, entry.shape).read()
            kept.append((name, device.put_weight(mapped)))
        device.synchronize()
    assert peak[0] < largest + 256 * MIB, f"{peak[0] / MIB:.0f} MiB"
    for name, array in kept[::5]:
        assert device.get(array).tobytes() == made[name].tobytes()
