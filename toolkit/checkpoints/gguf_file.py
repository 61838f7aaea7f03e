"""The header of a GGUF file (versions 2 and 3), walked within the file's own bounds: nothing is believed before it fits.

magic "GGUF", version, number of tensors, number of metadata pairs; the pairs (name, type, value); the tensors (name,
dimensions with the fastest first, type, offset); padding to the alignment; the data, each tensor aligned.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolkit.checkpoints.files import open_regular
from toolkit.checkpoints.quants import FORMATS, Format
from toolkit.errors import ToolkitError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 16

# Far above what models need; together with the file's size they bound what reading can allocate.
MAX_PAIRS = 1 << 12
MAX_TENSORS = 1 << 16
MAX_NAME_BYTES = 1 << 10
MAX_STRING_BYTES = 1 << 20
MAX_ITEMS = 1 << 20
MAX_DIMENSIONS = 4

_STRING, _ARRAY = 8, 9
# struct formats of the types of metadata; 7 is a byte that must be 0 or 1.
_SCALARS: Mapping[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as it lies in the file: ``shape`` is NumPy's (rows first), ``blocks`` its mapped bytes, one row a block."""

    format: Format
    shape: tuple[int, ...]
    blocks: NDArray[np.uint8]


@dataclass(frozen=True)
class GgufFile:
    """A checked file: metadata by name, as Python's own numbers, strings and lists, and tensors."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]


def open_file(path: Path) -> GgufFile:
    """The GGUF file at ``path``, mapped. Raises ToolkitError, naming file and place, if anything in it does not fit."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            raise ToolkitError(f"{path} is empty; download it again")
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            raise ToolkitError(f"{path} is not a GGUF file: it begins with {magic!r}; give a GGUF file or a folder")
        try:
            data = np.memmap(file, np.uint8, "r", 0, size).view(np.ndarray)
        except (OSError, ValueError) as error:
            raise ToolkitError(f"{path} cannot be mapped into memory: {error}; is it being written?") from error
    return _Walk(path, data).file()


class _Walk:
    """A cursor over the mapped file. Every step checks that what it reads lies inside."""

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self.path = path
        self.data = data
        self.view = data.data
        self.at = len(MAGIC)

    def refuse(self, problem: str) -> ToolkitError:
        return ToolkitError(f"{self.path}, byte {self.at}: {problem}; the file is damaged, download it again")

    def skip(self, count: int, what: str) -> int:
        """Step over ``count`` bytes and return where they begin."""
        if count > self.data.size - self.at:
            raise self.refuse(f"{what} would take {count} bytes and {self.data.size - self.at} are left")
        begin = self.at
        self.at += count
        return begin

    def scalar(self, code: str, what: str) -> Any:
        begin = self.skip(struct.calcsize(f"<{code}"), what)
        if code == "?" and self.data[begin] > 1:
            raise self.refuse(f"{what} is a truth value of {self.data[begin]}")
        return struct.unpack_from(f"<{code}", self.view, begin)[0]

    def count(self, what: str, *, limit: int, item_bytes: int) -> int:
        """A number of items, each of at least ``item_bytes``, that the rest of the file can hold."""
        count: int = self.scalar("Q", what)
        left = (self.data.size - self.at) // item_bytes
        if count > min(limit, left):
            raise self.refuse(f"{what} is {count}, but at most {min(limit, left)} are possible")
        return count

    def string(self, what: str, *, limit: int = MAX_STRING_BYTES) -> str:
        length = self.count(f"the length of {what}", limit=limit, item_bytes=1)
        begin = self.skip(length, what)
        try:
            return self.data[begin : begin + length].tobytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.refuse(f"{what} is not UTF-8") from error

    def file(self) -> GgufFile:
        version = self.scalar("I", "the version")
        if version not in VERSIONS:
            raise ToolkitError(
                f"{self.path} is GGUF version {version} or big-endian; this toolkit reads versions 2 and 3, convert it"
            )
        tensor_count = self.count("the number of tensors", limit=MAX_TENSORS, item_bytes=32)
        pair_count = self.count("the number of metadata pairs", limit=MAX_PAIRS, item_bytes=13)
        metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            name = self.string("a metadata name", limit=MAX_NAME_BYTES)
            if name in metadata:
                raise self.refuse(f"the metadata name {name!r:.80} is there twice")
            metadata[name] = self.value(name)
        infos: dict[str, tuple[Format, tuple[int, ...], int]] = {}
        for _ in range(tensor_count):
            name = self.string("a tensor's name", limit=MAX_NAME_BYTES)
            if name in infos:
                raise self.refuse(f"the tensor {name!r:.80} is there twice")
            infos[name] = self.tensor_info(name)
        return GgufFile(self.path, metadata, self.tensors(infos, self.alignment(metadata)))

    def value(self, name: str) -> Any:
        what = f"{name!r:.80}"
        kind = self.scalar("I", f"the type of {what}")
        if kind == _STRING:
            return self.string(what)
        if kind != _ARRAY:
            return self.scalar(self.code(kind, what), what)
        kind = self.scalar("I", f"the type of {what}")
        if kind == _STRING:
            return [self.string(what) for _ in range(self.count(what, limit=MAX_ITEMS, item_bytes=8))]
        code = self.code(kind, what)
        count = self.count(f"the length of {what}", limit=MAX_ITEMS, item_bytes=struct.calcsize(f"<{code}"))
        begin = self.skip(count * struct.calcsize(f"<{code}"), what)
        return np.frombuffer(self.view, np.dtype(code).newbyteorder("<"), count, begin).tolist()

    def code(self, kind: int, what: str) -> str:
        if kind not in _SCALARS:
            raise self.refuse(f"{what} has the unknown type {kind}")
        return _SCALARS[kind]

    def tensor_info(self, name: str) -> tuple[Format, tuple[int, ...], int]:
        what = f"tensor {name!r:.80}"
        dimensions = self.scalar("I", what)
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            raise self.refuse(f"{what} has {dimensions} dimensions")
        sizes = [self.scalar("Q", what) for _ in range(dimensions)]
        kind, offset = self.scalar("I", what), self.scalar("Q", what)
        if kind not in FORMATS:
            raise ToolkitError(
                f"{self.path}: {what} is of the unsupported type {kind}; "
                f"supported are {', '.join(format.name for format in FORMATS.values())}, quantise the model to one of them"
            )
        if sizes[0] % FORMATS[kind].elements or 0 in sizes:
            raise self.refuse(f"{what} has the sizes {sizes}, which {FORMATS[kind].name} cannot hold")
        return FORMATS[kind], tuple(reversed(sizes)), offset

    def alignment(self, metadata: Mapping[str, Any]) -> int:
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise self.refuse(f"general.alignment is {alignment!r:.80}, not a power of two up to {MAX_ALIGNMENT}")
        return alignment

    def tensors(
        self, infos: Mapping[str, tuple[Format, tuple[int, ...], int]], alignment: int
    ) -> dict[str, StoredTensor]:
        """The tensors' mapped bytes, after checking that they follow each other without overlap or gap."""
        start = self.at + -self.at % alignment
        reached = start
        found: dict[str, StoredTensor] = {}
        for name, (format, shape, offset) in sorted(infos.items(), key=lambda item: item[1][2]):
            begin = start + offset
            expected = reached + (start - reached) % alignment
            if begin != expected:
                problem = "overlaps the tensor before it" if begin < expected else "leaves a gap before it"
                raise self.refuse(f"tensor {name!r:.80} begins at byte {begin}, not at {expected}: it {problem}")
            blocks = math.prod(shape) // format.elements
            reached = begin + blocks * format.block_bytes
            if reached > self.data.size:
                raise ToolkitError(
                    f"{self.path} is truncated: tensor {name!r:.80} ends at byte {reached} and the file at "
                    f"{self.data.size}; download it again"
                )
            found[name] = StoredTensor(format, shape, self.data[begin:reached].reshape(blocks, format.block_bytes))
        if self.data.size - reached >= alignment and self.data.size > start:
            raise ToolkitError(
                f"{self.path} has {self.data.size - reached} bytes after its last tensor, which belong to none; "
                "download it again"
            )
        return {name: found[name] for name in infos}
