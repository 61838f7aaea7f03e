"""Engines on one checkpoint share its weights, and what they share is never a number that one of them would not have."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import toolkit
from toolkit.api import open_checkpoint
from toolkit.checkpoints.tensors import SharedWeights
from toolkit.devices import arithmetic, device
from toolkit.dtypes import BFLOAT16, FLOAT32


def test_engines_of_the_host_share_weights_and_their_float64_form() -> None:
    checkpoint = open_checkpoint("gemma3-tiny")
    on = {name: toolkit.load(checkpoint, device=name).engine.model for name in ("reference", "cpu", "exact")}
    assert np.shares_memory(on["reference"].layers[0].qkv, on["cpu"].layers[0].qkv)
    varied = toolkit.load(checkpoint, device="reference[pairwise]").engine.model
    assert np.shares_memory(on["reference"].layers[0].qkv, varied.layers[0].qkv)
    assert np.shares_memory(on["exact"].head, arithmetic._wide_weight(on["reference"].head))


def test_stacked_weights_are_read_once_while_somebody_holds_them() -> None:
    reads = []

    class Counting(dict[str, np.ndarray]):  # type: ignore[type-arg]
        def __getitem__(self, name: str) -> np.ndarray:  # type: ignore[type-arg]
            reads.append(name)
            return super().__getitem__(name)

    tensors = Counting(a=np.ones((2, 3), FLOAT32), b=np.zeros((1, 3), FLOAT32))
    shared = SharedWeights(tensors)
    first = shared.read(["a", "b"], FLOAT32)
    assert shared.read(["a", "b"], FLOAT32) is first
    assert shared.read(["a"], BFLOAT16).dtype == BFLOAT16
    assert reads == ["a", "b", "a"]
    del first
    np.testing.assert_array_equal(shared.read(["a", "b"], FLOAT32), [[1, 1, 1], [1, 1, 1], [0, 0, 0]])
    assert reads == ["a", "b", "a", "a", "b"]


def test_shared_weights_cannot_be_written_and_the_tensor_itself_still_can() -> None:
    tensor = np.ones((2, 3), FLOAT32)
    held = SharedWeights({"a": tensor}).read(["a"], FLOAT32)
    with pytest.raises(ValueError, match="read-only"):
        held[0, 0] = 2
    tensor[0, 0] = 2


def test_exact_keeps_the_denormals_that_the_reference_flushes() -> None:
    weight = np.array([[1.0, 2.0**-130]], np.float64).astype(ml_dtypes.bfloat16)
    shared = SharedWeights({"a": weight}).read(["a"], BFLOAT16)
    assert arithmetic._wide_weight(device("reference").put_weight(shared)).tolist() == [[1.0, 0.0]]
    assert device("exact").put_weight(shared).tolist() == [[1.0, 2.0**-130]]
