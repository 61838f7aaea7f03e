"""The text of machine code, by the LLVM library that comes with hipRTC: whatever that compiler emits, it can read."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path

from .errors import EmulatorError

# The assembly printer of LLVM; longer texts than this do not exist for AMDGPU.
TEXT_BYTES = 512


@dataclass(frozen=True)
class Line:
    """One instruction: ``address`` and ``size`` in bytes, and its text; text "" = not an instruction."""

    address: int
    size: int
    text: str


class Disassembler:
    """LLVM's disassembler for one target ("gfx1200")."""

    def __init__(self, llvm: Path, target: str) -> None:
        self._lib = _load(llvm)
        self._context = self._lib.LLVMCreateDisasmCPU(b"amdgcn-amd-amdhsa", target.encode(), None, 0, None, None)
        if not self._context:
            raise EmulatorError(f"the LLVM in {llvm} does not know {target}")

    def lines(self, code: bytes, address: int) -> list[Line]:
        """Disassemble ``code``, which lies at ``address``, from its first byte to its last."""
        buffer = (ctypes.c_uint8 * len(code)).from_buffer_copy(code)
        start = ctypes.addressof(buffer)
        text = ctypes.create_string_buffer(TEXT_BYTES)
        position, found = 0, []
        while position < len(code):
            size = self._lib.LLVMDisasmInstruction(
                self._context, start + position, len(code) - position, address + position, text, TEXT_BYTES
            )
            found.append(Line(address + position, size or 4, text.value.decode().strip() if size else ""))
            position += size or 4
        return found


@functools.cache
def _load(llvm: Path) -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL(str(llvm))
        for part in ("TargetInfo", "Target", "TargetMC", "Disassembler"):
            getattr(lib, f"LLVMInitializeAMDGPU{part}")()
    except (OSError, AttributeError) as error:
        raise EmulatorError(f"{llvm} cannot disassemble AMD GPU code: {error}") from error
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64
    lib.LLVMCreateDisasmCPU.restype = pointer
    lib.LLVMCreateDisasmCPU.argtypes = [text, text, pointer, ctypes.c_int, pointer, pointer]
    lib.LLVMDisasmInstruction.restype = ctypes.c_size_t
    lib.LLVMDisasmInstruction.argtypes = [pointer, pointer, number, number, text, ctypes.c_size_t]
    return lib
