"""Recorded decode steps: the same tokens and candidates as steps that are run op by op, and really executed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolkit import bundled, load
from toolkit.api import token_ids
from toolkit.devices.host import HostDevice
from toolkit.devices.recording import Recording
from toolkit.dtypes import FLOAT32
from toolkit.engine import Continuation, Engine
from toolkit.engine.decode import RecordedStep
from toolkit.ops import add

NEW_TOKENS = 10


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("qwen3-tiny", device="cpu").engine


@pytest.fixture(scope="module")
def prompts(engine: Engine) -> list[list[int]]:
    return token_ids(engine.checkpoint, bundled.PROMPTS.read_text().splitlines()[:5])


def op_by_op(engine: Engine, prompts: list[list[int]]) -> list[Continuation]:
    """A tap has every step run as a list of op calls."""
    return engine.generate(prompts, NEW_TOKENS, tap=lambda layer, stage, value: None)


def test_a_recorded_decode_is_the_same_to_the_last_bit(engine: Engine, prompts: list[list[int]]) -> None:
    recorded = engine.generate(prompts, NEW_TOKENS)
    assert recorded == op_by_op(engine, prompts)
    assert len({tuple(continuation.ids) for continuation in recorded}) > 1


def test_one_recording_serves_while_the_batch_keeps_its_shape(
    engine: Engine, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[RecordedStep[Any]] = []
    create = RecordedStep.__init__

    def counted(self: RecordedStep[Any], *args: Any) -> None:
        made.append(self)
        create(self, *args)

    monkeypatch.setattr(RecordedStep, "__init__", counted)
    engine.generate(prompts[:2], NEW_TOKENS, stop=False)
    assert len(made) == 1
    engine.generate(prompts[:3], NEW_TOKENS, stop=False)
    assert len(made) == 2


def test_a_replay_that_does_nothing_is_seen(
    engine: Engine, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    true = op_by_op(engine, prompts)
    monkeypatch.setattr(Recording, "replay", lambda self: None)
    assert engine.generate(prompts, NEW_TOKENS) != true


def test_a_replay_reads_what_was_written_into_its_inputs() -> None:
    device = HostDevice()
    with device:
        x = device.put(np.array([1.0, 2.0], FLOAT32))
        y = device.put(np.array([10.0, 20.0], FLOAT32))
        with device.recording() as recording:
            total = add(add(x, y), y)
        assert device.get(total).tolist() == [21.0, 42.0]
        device.write(x, np.array([5.0, 6.0], FLOAT32))
        assert device.get(total).tolist() == [21.0, 42.0]
        recording.replay()
    assert device.get(total).tolist() == [25.0, 46.0]
    assert device.statistics.selections["add", "tiles"] == 4


def test_what_a_replay_would_leave_out_is_refused() -> None:
    device = HostDevice()
    x = device.zeros((2,), FLOAT32)
    for move in (
        lambda: device.put(np.zeros(2, FLOAT32)),
        lambda: device.get(x),
        lambda: device.zeros((2,), FLOAT32),
        lambda: device.write(x, np.zeros(2, FLOAT32)),
    ):
        with device.recording(), pytest.raises(RuntimeError, match="a replay would leave it out"):
            move()
