"""Whole models on the GPU against the reference."""

from __future__ import annotations

import pytest

from tests.devices import guarded_gpu
from tests.gpu.comparison import SHORT_PROMPTS, compare
from tests.gpu.random_models import checkpoint
from toolkit import bundled
from toolkit.devices.gpu import GpuDevice
from toolkit.investigations import specs
from toolkit.investigations.near_tie import NearTie

pytestmark = [pytest.mark.gpu, pytest.mark.cross_device]


@pytest.fixture(autouse=True)
def gpu() -> None:
    if guarded_gpu() is None:
        pytest.skip("CuPy sees no GPU on this machine")


@pytest.mark.parametrize("name", bundled.NAMES)
def test_a_bundled_model_is_identical_or_a_near_tie(name: str) -> None:
    investigation = NearTie(specs.read("near-tie").parameters | {"model": name, "device_b": "gpu", "repeats": 5})
    verdict = investigation.run()
    assert verdict.verdict in {"identical", "near-tie"}, verdict
    device = investigation.sides["backend"].engine.device
    assert not device.statistics.refusals
    if isinstance(device, GpuDevice) and device.matrix_unit:
        assert device.statistics.selections["linear", "matrix-unit"], "prefill did not use the matrix unit"


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHORT_PROMPTS)
def test_a_full_size_model_is_within_the_noise_floor(shape: str) -> None:
    compared = compare(checkpoint(shape), SHORT_PROMPTS[shape], GpuDevice(), tokens=4, orders=())
    assert compared.verdict in {"identical", "near-tie"}, compared.summary()
