"""How kernels over independent elements share them among blocks."""

from __future__ import annotations

TILE = 1024  # elements per block, as in kernels/tiles.h


def tiles(elements: int) -> int:
    """The number of blocks for ``elements`` elements."""
    return -(-elements // TILE)
