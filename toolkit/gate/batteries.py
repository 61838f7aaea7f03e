"""The batteries: prompts and how many tokens follow each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from toolkit.checkpoints.prompts import read_prompts
from toolkit.errors import ToolkitError

QWEN = (
    "The capital of France is",
    "Once upon a time,",
    "In the beginning God created",
    "The quick brown fox jumps over",
    "def fibonacci(n):",
    "Water boils at a temperature of",
    "The theory of relativity was developed by",
    "To be or not to be, that is",
    "The largest planet in our solar system is",
    "Machine learning is a subfield of",
    "The mitochondria is the powerhouse of",
    "Roses are red, violets are",
    "The first president of the United States was",
    "E equals m c",
    "A journey of a thousand miles begins with",
    "The chemical symbol for gold is",
)
GEMMA = (
    "The capital of France is",
    "The largest planet in our solar system is",
    "Water boils at a temperature of",
    "The chemical symbol for gold is",
    "The first president of the United States was",
    "Roses are red, violets are",
)


@dataclass(frozen=True)
class Battery:
    """Prompts and the number of greedy tokens after each; every prompt is run by itself."""

    prompts: tuple[str, ...]
    tokens: int


BATTERIES = {"sixteen": Battery(QWEN, 16), "gemma": Battery(GEMMA, 8)}
"""Both as published by vllm.cpp: the 16 prompts of its near-tie gates, and the six of its Gemma-3 captures."""


def battery(name: str, tokens: int | None = None) -> Battery:
    """The battery called ``name``, or the prompts in a file with ``tokens`` after each.

    Raises ToolkitError for an unknown name that is no file, a file without prompts, and no or too few tokens.
    """
    known = BATTERIES.get(name)
    if known is None and not Path(name).is_file():
        raise ToolkitError(f"there is no battery {name!r:.80}: give {', '.join(BATTERIES)} or a file of prompts")
    if known is None and tokens is None:
        raise ToolkitError(f"{name} does not say how many tokens follow a prompt; give --tokens")
    prompts = known.prompts if known else tuple(read_prompts(name))
    count = tokens if tokens is not None else known.tokens if known else 0
    if count < 1:
        raise ToolkitError(f"--tokens is {count}; a battery compares at least one token of each prompt")
    return Battery(prompts, count)
