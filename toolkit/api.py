"""What scripts, notebooks and the command line call."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from toolkit import bundled, checkpoints, study
from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.devices import device as device_by_name
from toolkit.devices.base import Device
from toolkit.engine import Continuation, Engine, TapRecorder
from toolkit.faults import Fault, plant
from toolkit.models import RoundingPoints, Stage
from toolkit.progress import track


@dataclass(frozen=True)
class Model:
    """A checkpoint on a device, ready to run."""

    name: str
    checkpoint: Checkpoint
    engine: Engine

    @property
    def device(self) -> Device:
        return self.engine.device

    def __repr__(self) -> str:
        c = self.checkpoint.config
        return (
            f"<toolkit model {self.name}: {c.architecture}, {c.layers} layers, {self.engine.dtype.name} "
            f"on {self.device.name}>"
        )


def version() -> str:
    """The toolkit's version."""
    return metadata.version("neartie-toolkit")


def open_checkpoint(model: str | Path, *, dtype: str | None = None, weights_dtype: str | None = None) -> Checkpoint:
    """The checkpoint that ``model`` names: a bundled or known model's name, a Hugging Face folder, or a GGUF file.

    ``weights_dtype`` is what a GGUF file's dequantised weights are rounded to (bfloat16 when None).
    """
    name = str(model)
    path = bundled.folder(name) if name in bundled.NAMES else name
    return checkpoints.load(path, dtype=dtype, weights_dtype=weights_dtype)


def load(
    model: str | Path | Checkpoint,
    *,
    device: str | Device = "reference",
    dtype: str = "bfloat16",
    weights_dtype: str | None = None,
    rounding: RoundingPoints | None = None,
    faults: Sequence[Fault] = (),
    chunk: int | None = None,
) -> Model:
    """Open a model (a name, folder, GGUF file or an open checkpoint) and put it on a device.

    ``dtype``     dtype of weights, activations and cache: "bfloat16", "float16" or "float32"
    ``weights_dtype``  what a GGUF file's dequantised weights are rounded to before anything else (bfloat16)
    ``rounding``  the rounding points in which honest engines differ; None for the model's own
    ``faults``    defects to plant (see ``toolkit.faults``)
    ``chunk``     longest run of prompt tokens in one forward pass

    Raises ToolkitError, one sentence, for anything that is wrong with the files, the device or the arguments.
    """
    checkpoint = (
        model if isinstance(model, Checkpoint) else open_checkpoint(model, dtype=dtype, weights_dtype=weights_dtype)
    )
    target = device_by_name(device) if isinstance(device, str) else device
    checkpoint, target = plant(faults, checkpoint, target)
    engine = Engine(checkpoint, target, dtype, rounding=rounding, chunk=chunk)
    return Model(Path(checkpoint.path).name, checkpoint, engine)


def generate(
    model: Model,
    prompts: Sequence[str] | Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    batch: int = 16,
    stop: bool = True,
    top: int = 8,
) -> list[Continuation]:
    """Continue prompts (texts or token ids) greedily, ``batch`` of them at a time.

    Every continuation has the generated ids and, per step, the ``top`` most probable candidates with logits and
    log-probabilities (nats). Raises ToolkitError as ``Engine.generate`` does.
    """
    ids = token_ids(model.checkpoint, prompts)
    batches = [ids[start : start + batch] for start in range(0, len(ids), batch)]
    made: list[Continuation] = []
    for part in track(batches, f"generating on {model.device.name}, batches"):
        made += model.engine.generate(part, max_new_tokens, stop=stop, top=top)
    return made


def score(model: Model, prompt: str | Sequence[int], continuation: Sequence[int]) -> np.ndarray[Any, Any]:
    """Teacher forcing: the logits [len(continuation), vocab_size] that precede each token of ``continuation``."""
    (ids,) = token_ids(model.checkpoint, [prompt])
    return model.engine.score([ids], [continuation])[0]


def taps(
    model: Model, prompt: str | Sequence[int], *, stages: Collection[Stage] | None = None
) -> dict[tuple[int, Stage], np.ndarray[Any, Any]]:
    """What every stage of every layer computed for a prompt: (layer, stage) → float64 [tokens, features]."""
    (ids,) = token_ids(model.checkpoint, [prompt])
    recorder = TapRecorder(model.device, stages)
    model.engine.score([ids], [[0]], tap=recorder)
    return recorder.joined()


def token_ids(
    checkpoint: Checkpoint, prompts: Sequence[str] | Sequence[Sequence[int]] | Sequence[Any]
) -> list[list[int]]:
    """Prompts as token ids: texts are encoded with the checkpoint's tokenizer, ids are taken as they are."""
    return [checkpoint.tokenizer.encode(p) if isinstance(p, str) else [int(i) for i in p] for p in prompts]


def compare(actual: np.ndarray[Any, Any], reference: np.ndarray[Any, Any]) -> study.Distances:
    """Three distances of ``actual`` from ``reference`` side by side: rel_l2, cosine, difference of norms.

    Any equal shapes and real dtypes. A NaN or infinity on either side makes the figures NaN, which passes nothing.
    Raises ToolkitError when the shapes differ or there is nothing to compare.
    """
    return study.compare(actual, reference)


def verdict(
    model: str | Path, *, device_a: str = "reference", device_b: str = "cpu", faults: str = "", **parameters: Any
) -> study.Verdict:
    """The verdict on ``device_b`` against ``device_a`` for a model, without notebook or record.

    Further parameters as in specs/near-tie/spec.toml (prompts, dtype, repeats, tokens). Raises ToolkitError as ``load``.
    """
    from toolkit.investigations import specs
    from toolkit.investigations.near_tie import NearTie

    spec = specs.read("near-tie")
    given = {"model": str(model), "device_a": device_a, "device_b": device_b, "faults": faults, **parameters}
    return NearTie(spec.checked(given)).run()
