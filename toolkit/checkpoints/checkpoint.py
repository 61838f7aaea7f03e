"""A checkpoint, opened and checked before anything is computed: configuration, tensors, tokenizer, stop tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from toolkit.checkpoints import tensors
from toolkit.checkpoints.config import ModelConfig
from toolkit.checkpoints.tensors import SharedWeights
from toolkit.checkpoints.tokenizer import Tokenizer
from toolkit.errors import ToolkitError


@dataclass(frozen=True)
class Checkpoint:
    """What a folder or file holds, with the decoder's tensors under their Hugging Face names.

    ``tensors`` has exactly the names and shapes of ``layout.expected(config)``; reading one maps or dequantises it.
    """

    path: Path
    config: ModelConfig
    tensors: Mapping[str, NDArray[Any]]
    stop_sources: Mapping[int, tuple[str, ...]]
    _tokenizer: Tokenizer | None = field(repr=False)
    weights_dtype: str | None = None  # what dequantised weights were rounded to; None where they are used as stored

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises ToolkitError when the checkpoint came without one."""
        if self._tokenizer is None:
            raise ToolkitError(f"{self.path} has no tokenizer, so it takes token ids only; add tokenizer.json")
        return self._tokenizer

    @property
    def stop_ids(self) -> frozenset[int]:
        """The tokens that end a generation."""
        return frozenset(self.stop_sources)

    @cached_property
    def shared(self) -> SharedWeights:
        """The weights for engines, which share what they can."""
        return SharedWeights(self.tensors)

    @cached_property
    def weights_hash(self) -> str:
        """The SHA-256 of all weights (see tensors.weights_hash); reads them once, piece by piece."""
        return tensors.weights_hash(self.tensors)
