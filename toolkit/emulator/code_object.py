"""What an AMD code object says of itself: an ELF file with a kernel descriptor and a metadata note for each kernel.

Formats: ELF-64; "User Guide for AMDGPU Backend" of LLVM, sections "Code Object Metadata" and "Kernel Descriptor".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .errors import EmulatorError

EM_AMDGPU = 224
PT_LOAD, PT_NOTE = 1, 4
SHT_RELA, SHT_DYNSYM = 4, 11
SHF_EXECINSTR = 4
NT_AMDGPU_METADATA = 32
BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


@dataclass(frozen=True)
class Argument:
    """One kernel argument: bytes [offset, offset + size) of the kernarg segment; kind as LLVM names it."""

    offset: int
    size: int
    kind: str
    name: str

    @property
    def hidden(self) -> bool:
        """Filled in by the runtime, not by the caller."""
        return self.kind.startswith("hidden_")


@dataclass(frozen=True)
class Kernel:
    """One kernel's resources, from the metadata note, and its descriptor. Sizes in bytes."""

    name: str
    descriptor_address: int
    descriptor: bytes
    arguments: tuple[Argument, ...]
    kernarg_size: int
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    lds: int
    private: int
    max_flat_workgroup_size: int
    wavefront_size: int

    @property
    def entry_address(self) -> int:
        """Address of the first instruction."""
        (offset,) = struct.unpack_from("<q", self.descriptor, 16)
        return self.descriptor_address + int(offset)


@dataclass(frozen=True)
class Segment:
    """Bytes loaded at ``address``; ``memory_size`` exceeds len(data) by what is zero."""

    address: int
    data: bytes
    memory_size: int
    executable: bool


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol; ``section`` 0 = undefined."""

    name: str
    address: int
    size: int
    section: int


@dataclass(frozen=True)
class Relocation:
    """Store ``symbol's address + addend`` (no symbol: load address + addend) at ``offset``; kind as in the ELF file."""

    offset: int
    kind: int
    symbol: str
    addend: int


class CodeObject:
    """A parsed code object.

    Raises:
        EmulatorError: the bytes are not an AMD GPU code object with a metadata note.
    """

    def __init__(self, data: bytes) -> None:
        data = _unbundle(data)
        if data[:5] != b"\x7fELF\x02" or len(data) < 64 or struct.unpack_from("<H", data, 18)[0] != EM_AMDGPU:
            raise EmulatorError("not an AMD GPU code object (ELF, machine 224)")
        # CuPy cuts the last byte off what hipRTC returned; it is zero, but the section table must be whole.
        self._data = data + b"\0"
        program_offset, section_offset = struct.unpack_from("<QQ", data, 32)
        program_count, _, section_count = struct.unpack_from("<HHH", data, 56)
        try:
            self._programs = [
                struct.unpack_from("<IIQQQQQQ", data, program_offset + 56 * i) for i in range(program_count)
            ]
            self._sections = [
                struct.unpack_from("<IIQQQQIIQQ", self._data, section_offset + 64 * i) for i in range(section_count)
            ]
        except struct.error as error:
            raise EmulatorError("the code object is cut short") from error

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The metadata note as it stands."""
        for kind, _, offset, _, _, size, *_ in self._programs:
            end = offset + size
            while kind == PT_NOTE and offset < end:
                name_size, description_size, note = struct.unpack_from("<III", self._data, offset)
                description = offset + 12 + _up4(name_size)
                if note == NT_AMDGPU_METADATA:
                    value, _ = _unpack(self._data, description)
                    return dict(value)
                offset = description + _up4(description_size)
        raise EmulatorError("the code object has no AMDGPU metadata note")

    @cached_property
    def target(self) -> str:
        """Target with its features, for example "gfx90a:sramecc+:xnack-" or "gfx1200"."""
        return str(self.metadata["amdhsa.target"]).split("--")[1]

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """Kernels by name."""
        return {entry[".name"]: self._kernel(entry) for entry in self.metadata["amdhsa.kernels"]}

    @cached_property
    def segments(self) -> list[Segment]:
        """What is loaded into memory."""
        return [
            Segment(address, self._data[offset : offset + size], memory, bool(flags & 1))
            for kind, flags, offset, address, _, size, memory, _ in self._programs
            if kind == PT_LOAD
        ]

    @cached_property
    def text(self) -> list[tuple[int, bytes]]:
        """Address and bytes of the sections that hold instructions."""
        return [
            (address, self._data[offset : offset + size])
            for _, _, flags, address, offset, size, *_ in self._sections
            if flags & SHF_EXECINSTR
        ]

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The dynamic symbols."""
        found = []
        for _, kind, _, _, offset, size, link, *_ in self._sections:
            if kind == SHT_DYNSYM:
                names = self._sections[link][4]
                for entry in range(offset, offset + size, 24):
                    name, _, _, section, value, length = struct.unpack_from("<IBBHQQ", self._data, entry)
                    end = self._data.index(b"\0", names + name)
                    found.append(Symbol(self._data[names + name : end].decode(), value, length, section))
        return found

    @cached_property
    def relocations(self) -> list[Relocation]:
        """Dynamic relocations."""
        found = []
        for _, kind, _, _, offset, size, *_ in self._sections:
            if kind == SHT_RELA:
                for entry in range(offset, offset + size, 24):
                    where, info, addend = struct.unpack_from("<QQq", self._data, entry)
                    found.append(Relocation(where, info & 0xFFFFFFFF, self.symbols[info >> 32].name, addend))
        return found

    def _kernel(self, entry: dict[str, Any]) -> Kernel:
        symbol = next(s for s in self.symbols if s.name == entry[".symbol"])
        return Kernel(
            name=entry[".name"],
            descriptor_address=symbol.address,
            descriptor=self._bytes_at(symbol.address, 64),
            arguments=tuple(
                Argument(a[".offset"], a[".size"], a[".value_kind"], a.get(".name", "")) for a in entry.get(".args", ())
            ),
            kernarg_size=entry[".kernarg_segment_size"],
            vgprs=entry[".vgpr_count"],
            agprs=entry.get(".agpr_count", 0),
            sgprs=entry[".sgpr_count"],
            vgpr_spills=entry.get(".vgpr_spill_count", 0),
            sgpr_spills=entry.get(".sgpr_spill_count", 0),
            lds=entry[".group_segment_fixed_size"],
            private=entry[".private_segment_fixed_size"],
            max_flat_workgroup_size=entry[".max_flat_workgroup_size"],
            wavefront_size=entry[".wavefront_size"],
        )

    def _bytes_at(self, address: int, size: int) -> bytes:
        for segment in self.segments:
            if segment.address <= address <= address + size <= segment.address + len(segment.data):
                return segment.data[address - segment.address :][:size]
        raise EmulatorError(f"no bytes at address {address:#x} of the code object")


def _unbundle(data: bytes) -> bytes:
    """The GPU entry of a clang offload bundle; other bytes as they are."""
    if not data.startswith(BUNDLE_MAGIC):
        return data
    (count,) = struct.unpack_from("<Q", data, 24)
    position, entries = 32, []
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", data, position)
        if size:
            entries.append(data[offset : offset + size])
        position += 24 + length
    if len(entries) != 1:
        raise EmulatorError(f"an offload bundle of {len(entries)} code objects; pass the one for the target")
    return entries[0]


def _up4(size: int) -> int:
    return (size + 3) & ~3


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    """One MessagePack value at ``at`` and where the next begins: the types that the metadata note uses."""
    kind, at = data[at], at + 1

    def number(width: int, signed: bool = False) -> int:
        return int.from_bytes(data[at : at + width], "big", signed=signed)

    if kind < 0x80 or kind >= 0xE0:
        return (kind if kind < 0x80 else kind - 256), at
    if kind < 0x90:
        return _unpack_map(data, at, kind & 15)
    if kind < 0xA0:
        return _unpack_list(data, at, kind & 15)
    if kind < 0xC0:
        return data[at : at + (kind & 31)].decode(), at + (kind & 31)
    if kind in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[kind], at
    if 0xCC <= kind <= 0xCF:
        return number(1 << (kind - 0xCC)), at + (1 << (kind - 0xCC))
    if 0xD0 <= kind <= 0xD3:
        return number(1 << (kind - 0xD0), signed=True), at + (1 << (kind - 0xD0))
    if 0xD9 <= kind <= 0xDB:
        width = 1 << (kind - 0xD9)
        end = at + width + number(width)
        return data[at + width : end].decode(), end
    if kind in (0xDC, 0xDD):
        width = 2 << (kind - 0xDC)
        return _unpack_list(data, at + width, number(width))
    if kind in (0xDE, 0xDF):
        width = 2 << (kind - 0xDE)
        return _unpack_map(data, at + width, number(width))
    raise EmulatorError(f"metadata note: MessagePack type {kind:#x} is not used by AMDGPU")


def _unpack_list(data: bytes, at: int, count: int) -> tuple[list[Any], int]:
    values = []
    for _ in range(count):
        value, at = _unpack(data, at)
        values.append(value)
    return values, at


def _unpack_map(data: bytes, at: int, count: int) -> tuple[dict[str, Any], int]:
    values, at = _unpack_list(data, at, 2 * count)
    return dict(zip(values[::2], values[1::2], strict=True)), at
