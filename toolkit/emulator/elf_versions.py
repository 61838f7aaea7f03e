"""Exported names of a shared library with their symbol versions: what a stand-in for it must export, too."""

from __future__ import annotations

import struct
from pathlib import Path

SHT_DYNSYM, SHT_GNU_VERDEF, SHT_GNU_VERSYM = 11, 0x6FFFFFFD, 0x6FFFFFFF


def exported(library: Path) -> dict[str, str]:
    """Name → version ("" without one) of every function and variable that ``library`` (ELF-64) defines."""
    data = library.read_bytes()
    (offset,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + 64 * k) for k in range(count)]

    def text(table: int, at: int) -> str:
        start = sections[table][4] + at
        return data[start : data.index(b"\0", start)].decode()

    versions: dict[int, str] = {}
    numbers: tuple[int, ...] = ()
    for _, kind, _, _, start, size, link, *_ in sections:
        if kind == SHT_GNU_VERDEF:
            at = start
            while True:
                _, _, index, _, _, names, following = struct.unpack_from("<HHHHIII", data, at)
                (name,) = struct.unpack_from("<I", data, at + names)
                versions[index] = text(link, name)
                if not following:
                    break
                at += following
        elif kind == SHT_GNU_VERSYM:
            numbers = struct.unpack_from(f"<{size // 2}H", data, start)
    found = {}
    for _, kind, _, _, start, size, link, *_ in sections:
        if kind == SHT_DYNSYM:
            for k in range(size // 24):
                name, _, _, section = struct.unpack_from("<IBBH", data, start + 24 * k)
                if section and name:
                    found[text(link, name)] = versions.get(numbers[k] & 0x7FFF, "") if numbers else ""
    return found
