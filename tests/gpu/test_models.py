"""Whole models on the GPU against the reference."""

from __future__ import annotations

import pytest

from tests.devices import guarded_gpu
from tests.gpu.comparison import compare
from toolkit import bundled
from toolkit.api import open_checkpoint, token_ids
from toolkit.devices.base import Device
from toolkit.devices.gpu import GpuDevice

pytestmark = [pytest.mark.gpu, pytest.mark.cross_device]


@pytest.fixture(scope="module")
def gpu() -> Device:
    if guarded_gpu() is None:
        pytest.skip("CuPy sees no GPU on this machine")
    return GpuDevice()


@pytest.mark.parametrize("name", bundled.NAMES)
def test_a_bundled_model_is_identical_or_a_near_tie(name: str, gpu: Device) -> None:
    checkpoint = open_checkpoint(name)
    prompts = token_ids(checkpoint, bundled.PROMPTS.read_text(encoding="utf-8").splitlines())
    compared = compare(checkpoint, prompts, gpu)
    assert compared.verdict in {"identical", "near-tie"}, compared.summary()
