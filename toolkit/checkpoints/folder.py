"""A Hugging Face folder as a checkpoint: every tensor that config.json asks for, no other, the tokenizer if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from toolkit.checkpoints import config as configs
from toolkit.checkpoints import layout, shards, stops, tokenizer
from toolkit.checkpoints.checkpoint import Checkpoint
from toolkit.checkpoints.config import ModelConfig
from toolkit.checkpoints.safetensors import WEIGHTS, MappedTensor
from toolkit.checkpoints.tensors import Tensors
from toolkit.errors import ToolkitError

COMPARE_CHUNK_BYTES = 16 << 20


def load_folder(folder: Path, *, dtype: str | None = None) -> Checkpoint:
    """The checkpoint in ``folder``; ``dtype`` is the one that will be computed in, so that it can be refused first."""
    if not (folder / "config.json").exists():
        raise ToolkitError(f"{folder} has no config.json; give the folder of a Hugging Face checkpoint")
    config = configs.read(folder / "config.json")
    if dtype is not None:
        configs.refuse_float16(config, dtype, where=str(folder))
    weights = _open_tensors(folder, config)
    generation_eos = stops.read_generation_eos(folder, vocab_size=config.vocab_size)
    text = tokenizer.read(folder, config) if (folder / "tokenizer.json").exists() else None
    return Checkpoint(
        path=folder,
        config=config,
        tensors=weights,
        stop_sources=stops.stop_sources(config, generation_eos, text.eos_id if text else None),
        _tokenizer=text,
    )


def _open_tensors(folder: Path, config: ModelConfig) -> Tensors:
    """The decoder's tensors, mapped, after every one's name, shape and dtype has been checked against ``config``."""
    expected = layout.expected(config)
    mapped: dict[str, MappedTensor] = {}
    for stored_name, (file, entry) in shards.open_folder(folder).items():
        name = layout.canonical(stored_name, config)
        if name is None:
            continue
        where = f"{file.path}: tensor {stored_name!r:.120}"
        if name in mapped:
            raise ToolkitError(f"{where} is there twice, under an old and a new prefix; save the model again")
        shape = expected.get(layout.EMBEDDING if name == layout.HEAD else name)
        if shape is None:
            raise ToolkitError(
                f"{where} is not one that {config.architecture} with this config.json has; "
                "correct config.json, or use a checkpoint without it"
            )
        if entry.shape != shape:
            raise ToolkitError(
                f"{where} has the shape {list(entry.shape)}, but config.json asks for {list(shape)}; "
                "one of the two files belongs to another model"
            )
        if entry.kind not in WEIGHTS:
            raise ToolkitError(f"{where} is {entry.kind}; weights must be {', '.join(WEIGHTS)}, use such a checkpoint")
        mapped[name] = MappedTensor(file.data[entry.begin : entry.end], WEIGHTS[entry.kind], shape)
        configs.refuse_float16(config, mapped[name].dtype.name, where=where)
    _check_complete(folder, config, mapped, expected)
    return Tensors({name: mapped[name].read for name in expected})


def _check_complete(
    folder: Path, config: ModelConfig, mapped: Mapping[str, MappedTensor], expected: Mapping[str, tuple[int, ...]]
) -> None:
    missing = [name for name in expected if name not in mapped]
    if missing == [layout.HEAD]:
        raise ToolkitError(
            f"{folder} has no {layout.HEAD}, but config.json says tie_word_embeddings is false; "
            "set it to true if the head is the embedding, else download the weights again"
        )
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ToolkitError(
            f"{folder} lacks the tensor {missing[0]!r}{more}, which config.json asks for; download the weights again"
        )
    if config.tie_word_embeddings and not _same_bytes(mapped[layout.EMBEDDING], mapped.get(layout.HEAD)):
        raise ToolkitError(
            f"{folder}: config.json says tie_word_embeddings is true, but {layout.HEAD} differs from "
            f"{layout.EMBEDDING}; set it to false to use the head, or remove the head"
        )


def _same_bytes(one: MappedTensor, other: MappedTensor | None) -> bool:
    """Whether ``other`` repeats ``one`` to the bit, or is not stored at all."""
    if other is None:
        return True
    if one.dtype != other.dtype:
        return False
    return all(
        np.array_equal(one.data[start : start + COMPARE_CHUNK_BYTES], other.data[start : start + COMPARE_CHUNK_BYTES])
        for start in range(0, one.data.size, COMPARE_CHUNK_BYTES)
    )
