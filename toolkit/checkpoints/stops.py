"""The tokens that end a generation, gathered from all three places that may name one, each id with its sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toolkit.checkpoints import strict_json
from toolkit.checkpoints.config import ModelConfig
from toolkit.checkpoints.keys import Keys

GENERATION_CONFIG = "generation_config.json"


def read_generation_eos(folder: Path, *, vocab_size: int) -> tuple[int, ...]:
    """The end tokens that the folder's generation_config.json names; none when there is no such file."""
    path = folder / GENERATION_CONFIG
    if not path.exists():
        return ()
    return Keys(strict_json.read_object(path), str(path)).tokens("eos_token_id", vocab_size=vocab_size)


def stop_sources(
    config: ModelConfig, generation_eos: tuple[int, ...], tokenizer_eos: int | None
) -> Mapping[int, tuple[str, ...]]:
    """Each stop id with the places that name it.

    The architecture's default counts only where neither config.json nor generation_config.json names an end token, as
    in transformers.
    """
    sources: dict[int, tuple[str, ...]] = {}

    def add(token: int, source: str) -> None:
        sources[token] = (*sources.get(token, ()), source)

    if not config.eos_is_default:
        for token in config.eos_token_ids:
            add(token, "config.json")
    for token in generation_eos:
        add(token, GENERATION_CONFIG)
    if config.eos_is_default and not generation_eos:
        for token in config.eos_token_ids:
            add(token, f"{config.architecture}'s default")
    if tokenizer_eos is not None:
        add(tokenizer_eos, "tokenizer")
    return sources
