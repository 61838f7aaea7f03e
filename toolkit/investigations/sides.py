"""The two sides of a comparison and the engines that judge them, all on the same checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.devices import device
from toolkit.devices.numpy_devices import exact, reference
from toolkit.engine import Engine
from toolkit.faults import Fault, fault, plant
from toolkit.investigations.variations import Variation


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a device, perhaps with planted faults, and its engine."""

    label: str
    engine: Engine
    faults: tuple[Fault, ...] = ()

    def prompt_ids(self, checkpoint: Checkpoint, prompts: Sequence[str]) -> list[list[int]]:
        """The ids that this side feeds its model, after any fault that changes them."""
        ids = [checkpoint.tokenizer.encode(prompt) for prompt in prompts]
        for planted in self.faults:
            if planted.prompt is not None:
                ids = [planted.prompt(row) for row in ids]
        return ids


def side(checkpoint: Checkpoint, name: str, dtype: str, faults: Sequence[Fault] = ()) -> Side:
    """The checkpoint on the device called ``name``, with ``faults`` planted."""
    planted, target = plant(faults, checkpoint, device(name))
    return Side(name, Engine(planted, target, dtype), tuple(faults))


def parse_faults(names: str) -> tuple[Fault, ...]:
    """The faults of a comma-separated list of names; empty for an empty text."""
    return tuple(fault(name.strip()) for name in names.split(",") if name.strip())


def exact_engine(checkpoint: Checkpoint, dtype: str) -> Engine:
    """float64 on the very weights that the sides compute with: those of the checkpoint in ``dtype``."""
    return Engine(checkpoint, exact(), dtype)


def variation_engine(checkpoint: Checkpoint, variation: Variation, dtype: str) -> Engine:
    """The reference with one variation."""
    return Engine(checkpoint, reference(variation.sum_order), dtype, rounding=variation.rounding)
