"""One safetensors file: its header walked and checked against the file's size, its tensors mapped and not copied.

A file is an unsigned 64-bit little-endian length, a JSON header of that length that gives each tensor's dtype, shape
and byte range, and then the data, which the ranges must cover exactly: without overlap or gap, to the end.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit import dtypes
from toolkit.checkpoints import strict_json
from toolkit.checkpoints.files import open_regular
from toolkit.errors import ToolkitError

LENGTH_BYTES = 8
MAX_DIMENSIONS = 8

# Bytes of an element, for every dtype of the format whose elements are whole bytes.
ITEM_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
}
WEIGHTS: Mapping[str, np.dtype[Any]] = {
    "BF16": dtypes.BFLOAT16,
    "F16": dtypes.FLOAT16,
    "F32": dtypes.FLOAT32,
}


_NOTHING = np.empty(0, np.uint8)


@dataclass(frozen=True)
class Entry:
    """A tensor as the header describes it: its bytes are data[begin:end]."""

    kind: str  # the format's name of the dtype, such as "BF16"
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class File:
    """A checked file: what it holds, and its data section as mapped bytes."""

    path: Path
    entries: Mapping[str, Entry]
    data: NDArray[np.uint8]


@dataclass(frozen=True)
class MappedTensor:
    """One tensor of weights inside a mapped file."""

    data: NDArray[np.uint8]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self) -> NDArray[Any]:
        """A read-only view of the mapped bytes; a copy only where the file leaves them unaligned."""
        view = self.data.view(self.dtype).reshape(self.shape)
        return view if view.flags.aligned else view.copy()


def open_file(path: Path) -> File:
    """The safetensors file at ``path``, mapped. Raises ToolkitError, naming file and tensor, if anything is amiss."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise ToolkitError(f"{path} is empty; download it again")
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES or length > size - LENGTH_BYTES:
            raise ToolkitError(
                f"{path} is truncated or not a safetensors file: it claims a header of {length} bytes but holds "
                f"{size} in all; download it again"
            )
        if length > strict_json.MAX_BYTES:
            raise ToolkitError(
                f"{path} has a header of {length} bytes; this toolkit reads up to {strict_json.MAX_BYTES}, more than "
                "any model's needs"
            )
        header = file.read(length)
        data_size = size - LENGTH_BYTES - length
        entries = parse_header(header, data_size, where=str(path))
        try:
            # An empty map is an error to the operating system.
            data = np.memmap(file, np.uint8, "r", LENGTH_BYTES + length, data_size) if data_size else _NOTHING
        except (OSError, ValueError) as error:
            raise ToolkitError(f"{path} cannot be mapped into memory: {error}; is it being written?") from error
    return File(path, entries, data.view(np.ndarray))


def parse_header(header: bytes, data_size: int, *, where: str) -> dict[str, Entry]:
    """The entries of a header, in the order of their data, checked to cover ``data_size`` bytes exactly."""
    if not header.startswith(b"{"):
        raise ToolkitError(f"{where} is not a safetensors file: its header does not begin with a brace")
    fields = strict_json.parse_object(header, where=f"{where} (header)")
    metadata = fields.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ToolkitError(f"{where}: __metadata__ must map names to strings; download the file again")
    entries = {name: _entry(value, f"{where}: tensor {name!r:.120}") for name, value in fields.items()}
    reached = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != reached:
            problem = "overlaps the tensor before it" if entry.begin < reached else "leaves a gap before it"
            raise ToolkitError(
                f"{where}: tensor {name!r:.120} begins at byte {entry.begin} of the data but {reached} was expected: "
                f"it {problem}; download the file again"
            )
        reached = entry.end
    if reached != data_size:
        what = "is truncated" if reached > data_size else "has bytes that belong to no tensor"
        raise ToolkitError(
            f"{where} {what}: its tensors take {reached} bytes and the file holds {data_size}; download it again"
        )
    return entries


def _entry(value: Any, where: str) -> Entry:
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise ToolkitError(f"{where} must have dtype, shape and data_offsets and nothing else; download the file again")
    kind, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(kind, str) or kind not in ITEM_BYTES:
        raise ToolkitError(f"{where} has the unknown dtype {kind!r:.40}; weights must be {', '.join(WEIGHTS)}")
    if not _naturals(shape) or len(shape) > MAX_DIMENSIONS:
        raise ToolkitError(
            f"{where} has the shape {shape!r:.80}, which is not a list of sizes; download the file again"
        )
    if not _naturals(offsets) or len(offsets) != 2:
        raise ToolkitError(f"{where} has the data_offsets {offsets!r:.80}, not a begin and an end; download it again")
    begin, end = offsets
    needed = math.prod(shape) * ITEM_BYTES[kind]
    if end - begin != needed:
        raise ToolkitError(
            f"{where} is given the bytes {begin!r:.40} to {end!r:.40}, but {kind} of shape {shape!r:.80} needs "
            f"{needed!r:.40} bytes; download the file again"
        )
    return Entry(kind, tuple(shape), begin, end)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)
