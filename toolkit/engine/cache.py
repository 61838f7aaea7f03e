"""The paged key-value cache: fixed blocks of token slots, handed to sequences and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit.checkpoints.config import ModelConfig
from toolkit.devices.base import Device
from toolkit.models.decoder import LayerCache

DEFAULT_BLOCK_SIZE = 16


class PagedCache:
    """Keys and values of every layer in blocks of ``block_size`` slots, [blocks, block_size, kv_heads, head_dim].

    Blocks are not cleared when they change hands: what a sequence may read is decided by its block table and its
    positions alone, and the state-leak check of the investigations relies on stale contents being there.
    """

    def __init__(
        self, config: ModelConfig, device: Device, dtype: np.dtype[Any], block_size: int = DEFAULT_BLOCK_SIZE
    ) -> None:
        self.config = config
        self.device = device
        self.dtype = dtype
        self.block_size = block_size
        self.layers: Sequence[LayerCache] = ()
        self._free: list[int] = []
        self._blocks = 0

    def allocate(self, tokens: int) -> list[int]:
        """Blocks for a sequence of up to ``tokens`` tokens. The most recently freed blocks are used first."""
        needed = -(-tokens // self.block_size)
        return [self._free.pop() for _ in range(needed)]

    def free(self, blocks: Sequence[int]) -> None:
        """Take a sequence's blocks back."""
        self._free.extend(reversed(blocks))

    def reserve(self, lengths: Sequence[int]) -> None:
        """Make sure that sequences of these lengths fit at once. Growing drops what was cached: call it between
        batches."""
        needed = sum(-(-tokens // self.block_size) for tokens in lengths)
        if needed <= len(self._free):
            return
        in_use = self._blocks - len(self._free)
        if in_use:
            raise RuntimeError(f"the cache cannot grow while {in_use} of its blocks are in use")
        shape = (needed, self.block_size, self.config.kv_heads, self.config.head_dim)
        self.layers = ()  # give the old arrays back before the new ones are made
        self.layers = [
            LayerCache(self.device.zeros(shape, self.dtype), self.device.zeros(shape, self.dtype))
            for _ in range(self.config.layers)
        ]
        self._blocks = needed
        self._free = list(range(needed - 1, -1, -1))
