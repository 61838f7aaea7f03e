"""Named tensors that are read when asked for, and the one hash that identifies them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from toolkit import dtypes

HASH_CHUNK_BYTES = 16 << 20


class Source(Protocol):
    """Where one tensor comes from: dtype and shape are known before ``read`` touches the data."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def read(self) -> NDArray[Any]: ...


class Tensors(Mapping[str, NDArray[Any]]):
    """Tensors by name. Each access reads its source anew: a view of a mapped file, or a fresh dequantised array."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = dict(sources)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._sources[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def dtype(self, name: str) -> np.dtype[Any]:
        """The dtype that reading ``name`` gives."""
        return self._sources[name].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape that reading ``name`` gives."""
        return self._sources[name].shape


def weights_hash(tensors: Tensors) -> str:
    """SHA-256, in hexadecimal, over the tensors in the order of their names.

    Each contributes "name NUL dtype NUL shape NUL" (the shape as "3x4") and then its elements, little-endian and row by
    row. The same weights have the same hash whatever files they come from.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        shape = "x".join(str(size) for size in tensors.shape(name))
        digest.update(f"{name}\0{dtypes.name(tensors.dtype(name))}\0{shape}\0".encode())
        raw = np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8)
        for start in range(0, raw.size, HASH_CHUNK_BYTES):
            digest.update(raw[start : start + HASH_CHUNK_BYTES].data)
    return digest.hexdigest()
