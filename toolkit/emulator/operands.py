"""The texts of LLVM's disassembler, taken apart: mnemonic, operands, modifiers; and operands as the engine reads them."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace

# Numbers of native/wave.h for scalar registers with a name.
NAMED_SCALARS = {
    "vcc": 106,
    "vcc_lo": 106,
    "vcc_hi": 107,
    "m0": 125,
    "exec": 126,
    "exec_lo": 126,
    "exec_hi": 127,
    "src_shared_base": 240,
    "src_private_base": 244,
    "scc": 253,
    "src_scc": 253,
}
VCC, EXEC, SCC, DISCARD = 106, 126, 253, 254
TTMP = 108
ACCUMULATORS = 256  # a0 is register 256 of the vector file

NONE, VGPR, SGPR, CONSTANT = range(4)
NEGATE, ABSOLUTE, HIGH_HALF = 1, 2, 4

INVERSE_TWO_PI = {"f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}
FLOAT_FORMAT = {"f16": ("<e", "<H"), "f32": ("<f", "<I"), "f64": ("<d", "<Q")}


class Unsupported(Exception):
    """The instruction, or a detail of it, is not known here: it becomes a record that stops the kernel with its text."""


@dataclass(frozen=True)
class Operand:
    """One operand: a register's index or a constant's value, and the modifiers on it."""

    kind: int = NONE
    index: int = 0
    value: int = 0
    modifiers: int = 0
    has_half: bool = False

    def pack(self) -> bytes:
        """As native/program.h lays it out."""
        return struct.pack("<QHBBI", self.value & 0xFFFFFFFFFFFFFFFF, self.index, self.kind, self.modifiers, 0)


@dataclass
class Text:
    """An instruction's text: ``modifiers`` maps "offset:16" to {"offset": "16"} and "clamp" to {"clamp": ""}."""

    name: str
    operands: list[str]
    modifiers: dict[str, str] = field(default_factory=dict)

    def number(self, modifier: str, default: int = 0) -> int:
        """An integer modifier."""
        return int(self.modifiers[modifier], 0) if modifier in self.modifiers else default

    def bits(self, modifier: str, default: int = 0) -> int:
        """A list of bits, the first the lowest: "op_sel:[0,1]" is 2."""
        if modifier not in self.modifiers:
            return default
        parts = self.modifiers[modifier].strip("[]").split(",")
        return sum(int(bit) << k for k, bit in enumerate(parts))


def parse(text: str) -> Text:
    """Take an instruction's text apart."""
    name, _, rest = text.partition(" ")
    parts = _split(rest.strip(), ",")
    if not parts:
        return Text(name, [])
    last = _split(parts[-1], " ")
    modifiers = {}
    for word in last[1:]:
        key, _, value = word.partition(":")
        modifiers[key] = value
    return Text(name, [*parts[:-1], last[0]], modifiers)


def _split(text: str, separator: str) -> list[str]:
    """Split outside brackets."""
    parts, depth, word = [], 0, ""
    for character in text:
        depth += (character in "[(") - (character in ")]")
        if character == separator and not depth:
            parts.append(word.strip())
            word = ""
        else:
            word += character
    parts.append(word.strip())
    return [part for part in parts if part]


def source(text: str, kind: str) -> Operand:
    """A source operand whose instruction reads it as ``kind`` (a type of semantics.py)."""
    for opening, closing, modifier in (("|", "|", ABSOLUTE), ("abs(", ")", ABSOLUTE), ("neg(", ")", NEGATE)):
        if text.startswith(opening) and text.endswith(closing):
            inner = source(text[len(opening) : -1], kind)
            return replace(
                inner, modifiers=inner.modifiers ^ modifier if modifier == NEGATE else inner.modifiers | modifier
            )
    if re.match(r"-[a-z|]", text):
        inner = source(text[1:], kind)
        return replace(inner, modifiers=inner.modifiers ^ NEGATE)
    register = _register(text)
    if register is not None:
        return register
    return Operand(CONSTANT, value=_constant(text, kind))


def vector(text: str) -> Operand:
    """A vector register, without modifiers."""
    register = _register(text)
    if register is None or register.kind != VGPR:
        raise Unsupported(f"operand {text}")
    return register


def scalar(text: str) -> int:
    """Number of the scalar register (the first of a range) that an instruction writes."""
    if text == "null":
        return DISCARD
    register = _register(text)
    if register is None or register.kind != SGPR:
        raise Unsupported(f"operand {text}")
    return register.index


def _register(text: str) -> Operand | None:
    if text == "null":
        return Operand(CONSTANT)
    if text in NAMED_SCALARS:
        return Operand(SGPR, NAMED_SCALARS[text])
    match = re.fullmatch(r"(v|s|a|ttmp)(?:(\d+)|\[(\d+):\d+\])(\.[lh])?", text)
    if not match:
        return None
    bank, single, first, half = match.groups()
    index = int(single or first)
    if bank == "ttmp":
        return Operand(SGPR, TTMP + index)
    if bank == "s":
        return Operand(SGPR, index)
    modifiers = HIGH_HALF if half == ".h" else 0
    return Operand(VGPR, index + (ACCUMULATORS if bank == "a" else 0), modifiers=modifiers, has_half=bool(half))


def _constant(text: str, kind: str) -> int:
    """Bits of a constant: integers are taken as they are, decimal fractions in the operand's own float format."""
    wide = kind in ("u64", "i64", "f64")
    literal = re.fullmatch(r"lit(64)?\((.*)\)", text)
    if literal:
        text = literal[2]
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?0x[0-9a-f]+", text):
        value = int(text, 16)
        if literal and literal[1]:
            return value
        # A literal has 32 bits: the high half of a double, sign-extended for signed integers.
        if kind == "f64":
            return value << 32
        return value - (1 << 32) if kind == "i64" and value >> 31 == 1 else value
    try:
        number = float(text)
    except ValueError:
        raise Unsupported(f"operand {text}") from None
    name = "f64" if wide else "f16" if kind in ("f16", "u16", "i16") else "f32"
    if text.startswith("0.15915494"):
        return INVERSE_TWO_PI[name]
    to_bytes, from_bytes = FLOAT_FORMAT[name]
    return int(struct.unpack(from_bytes, struct.pack(to_bytes, number))[0])
