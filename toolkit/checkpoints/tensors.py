"""Named tensors that are read when asked for, and the one hash that identifies them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from toolkit import dtypes

HASH_CHUNK_BYTES = 16 << 20


class Tensors(Mapping[str, NDArray[Any]]):
    """Tensors by name. Each access reads anew: a view of a mapped file, or a freshly dequantised array."""

    def __init__(self, readers: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
        self._readers = dict(readers)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, name: object) -> bool:  # Mapping's own would read the tensor
        return name in self._readers


class SharedWeights:
    """Weights as engines hold them: stacked, in one dtype, and the same array for everyone who asks.

    Several engines on one checkpoint would otherwise hold a copy each of what was dequantised or stacked. An array lives
    as long as somebody uses it; afterwards it is read anew.
    """

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self.tensors = tensors
        self._held: WeakValueDictionary[tuple[tuple[str, ...], np.dtype[Any]], NDArray[Any]] = WeakValueDictionary()

    def read(self, names: Sequence[str], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The tensors ``names``, stacked along their rows and rounded to ``dtype``: read-only.

        Raises what reading a tensor raises.
        """
        key = tuple(names), dtype
        held = self._held.get(key)
        if held is None:
            parts = [self.tensors[name].astype(dtype, copy=False) for name in names]
            held = (parts[0] if len(parts) == 1 else np.concatenate(parts)).view()
            held.flags.writeable = False
            self._held[key] = held
        return held


def weights_hash(tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256, in hexadecimal, over the tensors in the order of their names.

    Each contributes "name NUL dtype NUL shape NUL" (the shape as "3x4") and then its elements, little-endian and row by
    row. The same weights have the same hash whatever files they come from.
    """
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        shape = "x".join(str(size) for size in tensor.shape)
        digest.update(f"{name}\0{dtypes.name(tensor.dtype)}\0{shape}\0".encode())
        raw = tensor.reshape(-1).view(np.uint8)
        for start in range(0, raw.size, HASH_CHUNK_BYTES):
            digest.update(raw[start : start + HASH_CHUNK_BYTES].data)
    return digest.hexdigest()
