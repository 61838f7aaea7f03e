"""Code object → program: every instruction becomes a record that names its handler and its operands.

The result is the file that native/program.cpp reads. Nothing is executed here, and nothing is guessed: an instruction
that is not known, or that carries a modifier whose meaning is not, becomes a record that stops the kernel with its text.
"""

from __future__ import annotations

import re
import signal
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import semantics
from .cache import write
from .code_object import CodeObject
from .codegen import handler_names
from .disassembly import Disassembler, Line
from .errors import EmulatorError
from .operands import (
    CONSTANT,
    DISCARD,
    EXEC,
    HIGH_HALF,
    SGPR,
    VCC,
    VGPR,
    Operand,
    Text,
    Unsupported,
    parse,
    scalar,
    source,
    vector,
)

VERSION = 1
CLAMP, TIMES_2, TIMES_4, HALVE, RETURN_OLD, HIGH_DESTINATION, ZERO_HIGH = (1 << k for k in range(7))

# Registers beyond the architecture's, for what one instruction is split into.
SPARE_DUAL, SPARE_DPP, SPARE_SDWA = 512, 513, 514

R_AMDGPU_ABS64, R_AMDGPU_RELATIVE64 = 3, 13

# Instructions without effect here: waits, hints, cache control. Memory is coherent and every access completes at once.
NO_EFFECT = re.compile(
    r"s_(nop|clause|delay_alu|wait\w*|set_inst_prefetch_distance|inst_prefetch|sleep|setprio|sendmsg|icache_inv|"
    r"dcache_\w+|barrier_signal|prefetch_\w+|ttracedata\w*|setkill|wakeup|version)|"
    r"buffer_(gl0_inv|gl1_inv|wbl2|inv|invl2|wbinvl1|wbinvl1_vol)|global_(inv|wb|wbinv|prefetch_b8)|v_nop|v_pipeflush"
)
IGNORED_MODIFIERS = {"glc", "slc", "dlc", "sc0", "sc1", "nt", "scope", "th", "offset", "bound_ctrl", "fi"}


@dataclass
class Record:
    """One step of a program; fields as in native/program.h, ``branch`` = address that ``target`` is made from."""

    name: str
    sources: list[Operand] = field(default_factory=list)
    dst: int = 0
    sdst: int = DISCARD
    flags: int = 0
    target: int = 0
    offset: int = 0
    op_sel: int = 0
    op_sel_hi: int = 0
    neg_lo: int = 0
    neg_hi: int = 0
    branch: int | None = None


# Operands of instructions that are no table rows: D = vector result, X = scalar result, S = lane mask written as a second
# result, m = lane mask read, a type = source.
SPECIAL = {
    "v_cndmask_b32": ("v_cndmask_b32", "D u32 u32 m"),
    "v_cndmask_b16": ("v_cndmask_b16", "D u16 u16 m"),
    "v_swap_b32": ("v_swap_b32", "D u32"),
    "v_swap_b16": ("v_swap_b16", "D u16"),
    "v_add_co_u32": ("v_add_co_u32", "D S u32 u32"),
    "v_sub_co_u32": ("v_sub_co_u32", "D S u32 u32"),
    "v_subrev_co_u32": ("v_subrev_co_u32", "D S u32 u32"),
    "v_add_co_ci_u32": ("v_add_co_u32", "D S u32 u32 m"),
    "v_sub_co_ci_u32": ("v_sub_co_u32", "D S u32 u32 m"),
    "v_subrev_co_ci_u32": ("v_subrev_co_u32", "D S u32 u32 m"),
    "v_addc_co_u32": ("v_add_co_u32", "D S u32 u32 m"),
    "v_subb_co_u32": ("v_sub_co_u32", "D S u32 u32 m"),
    "v_subbrev_co_u32": ("v_subrev_co_u32", "D S u32 u32 m"),
    "v_mad_u64_u32": ("v_mad_u64_u32", "D S u32 u32 u64"),
    "v_mad_co_u64_u32": ("v_mad_u64_u32", "D S u32 u32 u64"),
    "v_mad_i64_i32": ("v_mad_i64_i32", "D S u32 u32 u64"),
    "v_mad_co_i64_i32": ("v_mad_i64_i32", "D S u32 u32 u64"),
    "v_div_scale_f32": ("v_div_scale_f32", "D S f32 f32 f32"),
    "v_div_scale_f64": ("v_div_scale_f64", "D S f64 f64 f64"),
    "v_div_fmas_f32": ("v_div_fmas_f32", "D f32 f32 f32"),
    "v_div_fmas_f64": ("v_div_fmas_f64", "D f64 f64 f64"),
    "v_readfirstlane_b32": ("v_readfirstlane_b32", "X u32"),
    "v_readlane_b32": ("v_readlane_b32", "X u32 u32"),
    "v_writelane_b32": ("v_writelane_b32", "D u32 u32"),
    "v_mbcnt_lo_u32_b32": ("v_mbcnt_lo_u32_b32", "D u32 u32"),
    "v_mbcnt_hi_u32_b32": ("v_mbcnt_hi_u32_b32", "D u32 u32"),
    "v_permlane16_b32": ("v_permlane16_b32", "D u32 u32 u32"),
    "v_permlanex16_b32": ("v_permlanex16_b32", "D u32 u32 u32"),
    "v_permlane16_var_b32": ("v_permlane16_var_b32", "D u32 u32"),
    "v_permlanex16_var_b32": ("v_permlanex16_var_b32", "D u32 u32"),
    "v_permlane64_b32": ("v_permlane64_b32", "D u32"),
    "v_permlane16_swap_b32": ("v_permlane16_swap_b32", "D u32"),
    "v_permlane32_swap_b32": ("v_permlane32_swap_b32", "D u32"),
    "v_movrels_b32": ("v_movrels_b32", "D u32"),
    "v_movreld_b32": ("v_movreld_b32", "D u32"),
    "v_accvgpr_read_b32": ("v_mov_b32", "D u32"),
    "v_accvgpr_write_b32": ("v_mov_b32", "D u32"),
    "v_accvgpr_mov_b32": ("v_mov_b32", "D u32"),
    "s_setpc_b64": ("s_setpc_b64", "u64"),
    "s_movrels_b32": ("s_movrels_b32", "X u32"),
    "s_movreld_b32": ("s_movreld_b32", "X u32"),
    "s_endpgm": ("s_endpgm", ""),
    "s_barrier": ("s_barrier", ""),
    "s_memtime": ("s_clock_u64", "X"),
    "s_memrealtime": ("s_clock_u64", "X"),
    "s_get_shader_cycles_u64": ("s_clock_u64", "X"),
}
SPECIAL |= {f"s_bitcmp{bit}_b32": (f"s_bitcmp{bit}_b32", "u32 u32") for bit in "01"}
SPECIAL |= {f"s_bitcmp{bit}_b64": (f"s_bitcmp{bit}_b64", "u64 u32") for bit in "01"}

# Vector instructions whose sources are chosen by op_sel, op_sel_hi, neg_lo and neg_hi: operands and default op_sel_hi.
PACKED = {row_name: row for row in semantics.rows(semantics.PACKED) for row_name in row.names}
SELECTED = {
    "v_fma_mix_f32": ("D f32 f32 f32", 0),
    "v_fma_mixlo_f16": ("D f32 f32 f32", 0),
    "v_fma_mixhi_f16": ("D f32 f32 f32", 0),
    "v_dot4_i32_iu8": ("D u32 u32 u32", 0),
    "v_dot4_u32_u8": ("D u32 u32 u32", 0),
    "v_dot8_i32_iu4": ("D u32 u32 u32", 0),
    "v_dot8_u32_u4": ("D u32 u32 u32", 0),
    "v_pk_add_f32": ("D f32 f32", 7),
    "v_pk_mul_f32": ("D f32 f32", 7),
    "v_pk_fma_f32": ("D f32 f32 f32", 7),
    "v_pk_mov_b32": ("D u32 u32", 7),
}
FUSED_MATRIX = re.compile(r"v_mfma_(f32|i32|f64)_(\d+x\d+x\d+)_?(bf16|f16|f32|i8|f64)(_1k)?")
MATRIX = re.compile(r"v_wmma_(f32|f16|bf16|i32)_16x16x16_(f16|bf16|iu8|iu4)")

# The older line's names for what gfx11 and gfx12 call otherwise.
OLD_VECTOR_NAMES = {
    "v_add_u32": "v_add_nc_u32",
    "v_sub_u32": "v_sub_nc_u32",
    "v_subrev_u32": "v_subrev_nc_u32",
    "v_mad_mix_f32": "v_fma_mix_f32",
    "v_mad_mixlo_f16": "v_fma_mixlo_f16",
    "v_mad_mixhi_f16": "v_fma_mixhi_f16",
    "v_mov_b64": "v_mov_b64",
}
SIZES = {
    "dword": "b32",
    "dwordx2": "b64",
    "dwordx3": "b96",
    "dwordx4": "b128",
    "dwordx8": "b256",
    "dwordx16": "b512",
    "ubyte": "u8",
    "sbyte": "i8",
    "ushort": "u16",
    "sshort": "i16",
    "byte": "b8",
    "short": "b16",
    "ubyte_d16": "d16_u8",
    "ubyte_d16_hi": "d16_hi_u8",
    "sbyte_d16": "d16_i8",
    "sbyte_d16_hi": "d16_hi_i8",
    "short_d16": "d16_b16",
    "short_d16_hi": "d16_hi_b16",
    "byte_d16_hi": "d16_hi_b8",
    "u8_d16": "d16_u8",
    "u8_d16_hi": "d16_hi_u8",
    "i8_d16": "d16_i8",
    "i8_d16_hi": "d16_hi_i8",
    "u16_d16": "d16_b16",
    "u16_d16_hi": "d16_hi_b16",
    "b16_d16_hi": "d16_hi_b16",
    "b8_d16_hi": "d16_hi_b8",
}
ATOMICS = {
    "add": "add_u",
    "sub": "sub_u",
    "smin": "min_i",
    "umin": "min_u",
    "smax": "max_i",
    "umax": "max_u",
    "and": "and_b",
    "or": "or_b",
    "xor": "xor_b",
    "swap": "swap_b",
    "cmpswap": "cmpswap_b",
    "inc": "inc_u",
    "dec": "dec_u",
}


class Translator:
    """Turns instruction texts into records, for one architecture ("gfx1200")."""

    def __init__(self, architecture: str) -> None:
        self.generation = architecture[:-2]  # gfx9, gfx10, gfx11, gfx12
        self.handlers = handler_names()
        self.rows = {"v_" + name: row for row in semantics.rows(semantics.VECTOR) for name in row.names}
        self.scalar_rows = {
            "s_" + name: row for row in semantics.rows(semantics.SCALAR, scc=True) for name in row.names
        }
        self.scalar_rows |= {
            "v_s_" + name: row for row in semantics.rows(semantics.SCALAR_TRANSCENDENTAL) for name in row.names
        }

    def records(self, line: Line) -> list[Record]:
        """The records of one instruction; none if it has no effect."""
        if not line.text or line.text.startswith(("s_code_end", ".long")):
            return [Record("not_code")]
        name = line.text.split(" ", 1)[0]
        if NO_EFFECT.fullmatch(name) and not (name == "s_barrier_signal" and not line.text.endswith(" -1")):
            return []
        try:
            if " :: " in line.text:
                return self._dual(*line.text.split(" :: "))
            return list(self._records(parse(line.text), line))
        except (Unsupported, ValueError, IndexError, KeyError):
            return [Record("unknown")]

    def _records(self, text: Text, line: Line) -> Iterator[Record]:
        if text.name.startswith("s_"):
            yield self._scalar(text, line)
        elif text.name.startswith(("global_", "flat_", "scratch_", "buffer_")):
            yield self._memory(text)
        elif text.name.startswith("ds_"):
            yield self._lds(text)
        elif text.name.startswith("v_"):
            yield from self._vector(text)
        else:
            raise Unsupported(text.name)

    # ---- scalar unit ----------------------------------------------------------------------------------------------

    def _scalar(self, text: Text, line: Line) -> Record:
        name, operands = text.name, text.operands
        after = line.address + line.size
        if name == "s_branch" or name.startswith("s_cbranch_"):
            return Record(name, branch=after + 4 * _signed16(operands[0]))
        if name == "s_call_b64":
            return Record(name, dst=scalar(operands[0]), offset=after, branch=after + 4 * _signed16(operands[1]))
        if name == "s_getpc_b64":
            return Record(name, dst=scalar(operands[0]), offset=after)
        if name == "s_swappc_b64":
            return Record(name, [source(operands[1], "u64")], dst=scalar(operands[0]), offset=after)
        if name == "s_barrier_wait":
            return Record("s_barrier")
        if name == "s_trap":
            return Record(name, offset=int(operands[0], 0))
        if name in ("s_denorm_mode", "s_round_mode"):
            return Record(name, offset=int(operands[0], 0))
        if name in ("s_setreg_b32", "s_setreg_imm32_b32"):
            return Record("s_setreg_mode", [source(operands[1], "u32")], offset=_mode_field(operands[0]))
        if name == "s_getreg_b32":
            if "SHADER_CYCLES" in operands[1]:
                return Record("s_clock_u32", dst=scalar(operands[0]))
            return Record("s_getreg_mode", dst=scalar(operands[0]), offset=_mode_field(operands[1]))
        if name == "s_sendmsg_rtn_b64" and "REALTIME" in operands[1]:
            return Record("s_clock_u64", dst=scalar(operands[0]))
        if name.startswith("s_load_"):
            return self._scalar_load(text)
        if match := re.fullmatch(r"s_(\w+_(?:saveexec|wrexec))_b(?:32|64)", name):
            old = {"andn1": "and_not0", "andn2": "and_not1", "orn1": "or_not0", "orn2": "or_not1"}
            kind, _, suffix = match[1].rpartition("_")
            return Record(f"s_{old.get(kind, kind)}_{suffix}", [source(operands[1], "u32")], dst=scalar(operands[0]))
        if match := re.fullmatch(r"s_cmp(k?)_(\w+)_(i32|u32|u64|f32)", name):
            short, test, kind = match.groups()
            test = "ne" if test == "lg" and kind != "f32" else test
            right = (
                Operand(CONSTANT, value=_signed16(operands[1]))
                if short and kind == "i32"
                else source(operands[1], kind)
            )
            return Record(f"s_cmp_{test}_{kind}", [source(operands[0], kind), right])
        if name in SPECIAL:
            return self._special(text, name)
        row = self.scalar_rows[name]
        short = name in ("s_movk_i32", "s_cmovk_i32", "s_addk_i32", "s_addk_co_i32", "s_mulk_i32")
        values = operands[1:]
        sources = [Operand(CONSTANT, value=_signed16(values[0]))] if short else _sources(values, row.sources)
        return Record(self.handlers[name], sources, dst=scalar(operands[0]))

    def _scalar_load(self, text: Text) -> Record:
        size = text.name.removeprefix("s_load_")
        base, place = text.operands[1], text.operands[2] if len(text.operands) > 2 else "0"
        offset, register = text.number("offset"), Operand()
        if re.fullmatch(r"-?(0x)?[0-9a-f]+", place):
            offset += int(place, 0)
        else:
            register = source(place, "u32")
        return Record(
            f"s_load_{SIZES.get(size, size)}",
            [source(base, "u64"), register],
            dst=scalar(text.operands[0]),
            offset=offset,
        )

    # ---- vector unit ----------------------------------------------------------------------------------------------

    def _vector(self, text: Text) -> Iterator[Record]:
        name = re.sub(r"_(e32|e64)$", "", text.name)
        if name.endswith("_sdwa"):
            yield from self._sdwa(text, name.removesuffix("_sdwa"))
            return
        if name.endswith("_dpp"):
            yield from self._dpp(text, re.sub(r"_(e64_)?dpp$", "", name))
            return
        yield from self._plain(text, name)

    def _plain(self, text: Text, name: str) -> Iterator[Record]:
        name = OLD_VECTOR_NAMES.get(name, name) if self.generation == "gfx9" else name
        if name.startswith("v_s_"):
            row = self.scalar_rows[name]
            yield Record(self.handlers[name], _sources(text.operands[1:], row.sources), dst=scalar(text.operands[0]))
        elif match := re.fullmatch(r"v_cmp(x?)_(\w+)_([iufb]\d\d)", name):
            yield from self._compare(text, *match.groups())
        elif name[2:] in PACKED:
            row = PACKED[name[2:]]
            types = tuple("u32" if kind != "f16" else "f16" for kind in row.sources)
            yield self._selected(text, self.handlers[name], types, 7)
        elif name in SELECTED:
            spec, default = SELECTED[name]
            yield self._selected(text, name, tuple(spec.split()[1:]), default)
        elif MATRIX.fullmatch(name) and self.generation in ("gfx11", "gfx12"):
            types = ("u32", "u32", "f32" if "_f32_" in name else "f16" if "f16_16" in name else "u32")
            yield self._selected(text, f"{name}_{self.generation}", types, 7)
        elif (match := FUSED_MATRIX.fullmatch(name)) and (match[3] != "bf16" or match[4] or "_bf16" in name):
            # Before the suffix _1k, bf16 had other layouts.
            yield self._matrix(text, f"v_mfma_{match[1]}_{match[2]}_{match[3]}")
        elif name in SPECIAL:
            yield self._special(text, name)
        else:
            yield self._row(text, name)

    def _row(self, text: Text, name: str) -> Record:
        """A row of the vector table."""
        if "clamp" in text.modifiers and name + "_clamp" in self.rows:
            name += "_clamp"
            del text.modifiers["clamp"]
        row = self.rows[name]
        sources = _sources(text.operands[1:], row.sources)
        destination = vector(text.operands[0])
        record = Record(self.handlers[name], sources, dst=destination.index)
        if destination.modifiers & HIGH_HALF:
            record.flags |= HIGH_DESTINATION
        halves = {"u16", "i16", "f16"} & {row.result, *row.sources}
        has_half = destination.has_half or any(operand.has_half for operand in sources)
        if halves and not has_half:
            # Without names for halves, op_sel chooses them; the older line clears the half that is not written.
            select = text.bits("op_sel")
            record.sources = [
                replace(operand, modifiers=operand.modifiers | HIGH_HALF) if select >> k & 1 else operand
                for k, operand in enumerate(sources)
            ]
            if select >> len(sources) & 1:
                record.flags |= HIGH_DESTINATION
            elif self.generation == "gfx9" and row.result in ("u16", "i16", "f16"):
                record.flags |= ZERO_HIGH
        record.flags |= _output_flags(text, row.result in ("f16", "f32", "f64"))
        _no_more(text, {"op_sel"} if halves or has_half else set())
        return record

    def _special(self, text: Text, name: str) -> Record:
        handler, spec = SPECIAL[name]
        operands = list(text.operands)
        record = Record(handler)
        for kind in spec.split():
            if kind == "m" and not operands:
                record.sources.append(Operand(SGPR, VCC))
                continue
            word = operands.pop(0)
            if kind == "D":
                register = vector(word)
                record.dst = register.index
                record.flags |= HIGH_DESTINATION if register.modifiers & HIGH_HALF else 0
            elif kind == "X":
                record.dst = scalar(word)
            elif kind == "S":
                record.sdst = scalar(word)
            elif kind == "m":
                record.sources.append(source(word, "u32"))
            else:
                record.sources.append(source(word, kind))
        if operands:
            raise Unsupported(text.name)
        if name.startswith("v_permlane"):
            record.op_sel = text.bits("op_sel")
        record.flags |= _output_flags(text, "co_" in name and "mad" not in name)
        _no_more(text, {"op_sel"})
        return record

    def _compare(self, text: Text, exec_only: str, test: str, kind: str) -> Iterator[Record]:
        operands = list(text.operands)
        older = self.generation == "gfx9"
        if exec_only and not older:
            destination = EXEC
            if operands[0] in ("exec", "exec_lo"):
                operands.pop(0)
        else:
            destination = scalar(operands.pop(0))
        if test in ("t", "tru", "f"):
            raise Unsupported(text.name)
        types = (kind, kind)
        if test == "class":
            types = ("u16", "u16") if kind == "f16" else (kind, "u32")
        sources = _sources(operands, types)
        if not any(operand.has_half for operand in sources):
            select = text.bits("op_sel")
            sources = [
                replace(operand, modifiers=operand.modifiers | HIGH_HALF) if select >> k & 1 else operand
                for k, operand in enumerate(sources)
            ]
        test = "ne" if test == "lg" and kind[0] != "f" else test
        _no_more(text, {"op_sel", "clamp"})
        yield Record(f"v_cmp_{test}_{kind}", sources, dst=destination)
        if exec_only and older:
            yield Record("s_mov_b64", [Operand(SGPR, destination)], dst=EXEC)

    def _selected(self, text: Text, handler: str, types: tuple[str, ...], default: int) -> Record:
        """An instruction whose halves and signs are chosen by lists of bits; modifiers on an operand become those bits."""
        sources = _sources(text.operands[1:], types)
        low, high = text.bits("neg_lo"), text.bits("neg_hi")
        for k, operand in enumerate(sources):
            if operand.modifiers & 1:
                low |= 1 << k
            if operand.modifiers & 2:
                high |= 1 << k
        record = Record(
            handler,
            [replace(operand, modifiers=0) for operand in sources],
            dst=vector(text.operands[0]).index,
            op_sel=text.bits("op_sel"),
            op_sel_hi=text.bits("op_sel_hi", default),
            neg_lo=low,
            neg_hi=high,
            flags=_output_flags(text, True),
        )
        _no_more(text, {"op_sel", "op_sel_hi", "neg_lo", "neg_hi"})
        return record

    def _matrix(self, text: Text, handler: str) -> Record:
        destination, *words = text.operands
        sources = [vector(words[0]), vector(words[1]), source(words[2], "f64" if "f64" in handler else "f32")]
        if any(operand.modifiers for operand in sources):
            raise Unsupported(text.name)
        _no_more(text, set())
        return Record(handler, sources, dst=vector(destination).index)

    def _dual(self, first: str, second: str) -> list[Record]:
        """Two operations in one instruction: both read before either writes."""
        x, y = (
            next(iter(self._plain(text, "v_" + text.name.removeprefix("v_dual_"))))
            for text in (parse(first), parse(second))
        )
        if x.dst not in _reads(y):
            return [x, y]
        if y.dst not in _reads(x):
            return [y, x]
        destination, x.dst = x.dst, SPARE_DUAL
        if x.name in ("v_fmac_f32", "v_dot2acc_f32_f16"):
            raise Unsupported("both halves read what the other writes")
        return [x, y, Record("v_mov_b32", [Operand(VGPR, SPARE_DUAL)], dst=destination)]

    def _dpp(self, text: Text, name: str) -> Iterator[Record]:
        control = _dpp_control(text.modifiers)
        zero = "bound_ctrl" in text.modifiers
        inactive = text.modifiers.get("fi") == "1"
        # Which operand is the first source: results, and masks as second results, stand before it.
        position = 0 if name.startswith("v_cmpx") and self.generation != "gfx9" else 2 if "_co_" in name else 1
        words = list(text.operands)
        register = source(words[position], "u32")
        if register.kind != VGPR or name.endswith(("64", "_b16", "_f16", "_u16", "_i16")):
            raise Unsupported(text.name)
        spare = Record("dpp", [replace(register, modifiers=0)], dst=SPARE_DPP, sdst=zero | inactive << 1)
        if control is None:
            spare.name = "dpp8"
            lanes = text.modifiers.pop("dpp8").strip("[]").split(",")
            spare.offset = sum(int(lane) << 3 * k for k, lane in enumerate(lanes))
        else:
            spare.target = control
            spare.op_sel = text.number("row_mask", 15) | text.number("bank_mask", 15) << 4
        yield spare
        rest = {key: value for key, value in text.modifiers.items() if key in ("clamp", "mul", "div", "op_sel")}
        words[position] = re.sub(r"v\d+", f"v{SPARE_DPP}", words[position])
        yield from self._plain(Text(name, words, rest), name)
        yield Record("restore_exec")

    def _sdwa(self, text: Text, name: str) -> Iterator[Record]:
        """Parts of registers as sources and result (older line): copy the parts out, compute, put the result in."""
        parts = {"DWORD": (0, 32), "WORD_0": (0, 16), "WORD_1": (16, 16)} | {f"BYTE_{k}": (8 * k, 8) for k in range(4)}
        compare = name.startswith("v_cmp")
        words = list(text.operands)
        taken = 0
        for k in range(1, len(words)):
            key = f"src{taken}_sel"
            if key not in text.modifiers or words[k] == "vcc":
                continue
            signed = words[k].startswith("sext(")
            operand = source(words[k].removeprefix("sext(").rstrip(")") if signed else words[k], "u32")
            at, width = parts[text.modifiers[key]]
            spare = SPARE_SDWA + taken
            yield Record("sdwa_select", [operand], dst=spare, target=at | width << 8 | signed << 16)
            words[k] = f"v{spare}"
            taken += 1
        rest = {key: value for key, value in text.modifiers.items() if key in ("clamp", "mul", "div")}
        if compare:
            yield from self._plain(Text(name, words, rest), name)
            return
        destination = vector(words[0]).index
        words[0] = f"v{SPARE_SDWA + 2}"
        yield Record("v_mov_b32", [Operand(VGPR, destination)], dst=SPARE_SDWA + 2)
        for record in self._plain(Text(name, words, rest), name):
            record.flags &= ~ZERO_HIGH
            yield record
        at, width = parts[text.modifiers.get("dst_sel", "DWORD")]
        unused = {"UNUSED_PAD": 0, "UNUSED_SEXT": 1, "UNUSED_PRESERVE": 2}[
            text.modifiers.get("dst_unused", "UNUSED_PAD")
        ]
        yield Record(
            "sdwa_merge", [Operand(VGPR, SPARE_SDWA + 2)], dst=destination, sdst=unused, target=at | width << 8
        )

    # ---- memory ---------------------------------------------------------------------------------------------------

    def _memory(self, text: Text) -> Record:
        space, _, action = text.name.partition("_")
        operands = list(text.operands)
        offset = text.number("offset")
        if space == "buffer":  # only scratch memory of the oldest targets is reached this way
            return self._scratch_buffer(text, action, offset)
        plain = space == "flat"
        if action.startswith("atomic_"):
            returns = len(operands) == (3 if plain else 4)
            name = f"{space}_atomic_{_atomic(action.removeprefix('atomic_'))}"
            dst = vector(operands.pop(0)).index if returns else 0
            address, data = operands[0], vector(operands[1])
            place = _scalar_address(operands[2]) if not plain else Operand()
            flags = RETURN_OLD if returns else 0
            return Record(name, [source(address, "u64"), place, data], dst=dst, flags=flags, offset=offset)
        verb, _, size = action.partition("_")
        name = f"{space}_{verb}_{SIZES.get(size, size)}"
        if verb == "load":
            register = vector(operands.pop(0))
            place = Operand() if plain else _scalar_address(operands[1])
            flags = HIGH_DESTINATION if register.modifiers & HIGH_HALF else 0
            return Record(name, [_vector_address(operands[0]), place], dst=register.index, flags=flags, offset=offset)
        if verb == "store":
            place = Operand() if plain else _scalar_address(operands[2])
            return Record(name, [_vector_address(operands[0]), place, vector(operands[1])], offset=offset)
        raise Unsupported(text.name)

    def _scratch_buffer(self, text: Text, action: str, offset: int) -> Record:
        verb, _, size = action.partition("_")
        if verb not in ("load", "store") or "idxen" in text.modifiers or "lds" in text.modifiers:
            raise Unsupported(text.name)
        data, address, _, place = text.operands
        base = _vector_address(address) if "offen" in text.modifiers else Operand()
        # The scalar offset counts bytes of the whole wave: the engine divides it.
        register = source(place, "u32")
        sources = [base, register if register.kind == SGPR else Operand()]
        if verb == "store":
            sources.append(vector(data))
        return Record(f"swizzled_{verb}_{SIZES.get(size, size)}", sources, dst=vector(data).index, offset=offset)

    def _lds(self, text: Text) -> Record:
        name = text.name.removeprefix("ds_")
        operands = text.operands
        if "gds" in text.modifiers:
            raise Unsupported(text.name)
        if name == "swizzle_b32":
            return Record(
                "ds_swizzle_b32", [vector(operands[1])], dst=vector(operands[0]).index, offset=_swizzle(text.modifiers)
            )
        if name in ("bpermute_b32", "permute_b32"):
            return Record(
                "ds_" + name,
                [vector(operands[1]), Operand(), vector(operands[2])],
                dst=vector(operands[0]).index,
                offset=text.number("offset"),
            )
        name = re.sub(r"^read2st64", "load_2addr_stride64", name)
        name = re.sub(r"^write2st64", "store_2addr_stride64", name)
        name = re.sub(r"^read2", "load_2addr", name)
        name = re.sub(r"^write2", "store_2addr", name)
        name = re.sub(r"^read_", "load_", name)
        name = re.sub(r"^write_", "store_", name)
        if match := re.fullmatch(r"(load|store|storexchg)_2addr_(stride64_)?(rtn_)?(b32|b64)", name):
            return self._lds_pair(text, match[1], bool(match[2]), match[4])
        verb, _, size = name.partition("_")
        offset = text.number("offset")
        if verb == "load":
            register = vector(operands[0])
            flags = HIGH_DESTINATION if register.modifiers & HIGH_HALF else 0
            return Record(
                f"ds_load_{SIZES.get(size, size)}",
                [vector(operands[1]), Operand()],
                dst=register.index,
                flags=flags,
                offset=offset,
            )
        if verb == "store":
            return Record(
                f"ds_store_{SIZES.get(size, size)}",
                [vector(operands[0]), Operand(), vector(operands[1])],
                offset=offset,
            )
        return self._lds_atomic(text, name, offset)

    def _lds_atomic(self, text: Text, name: str, offset: int) -> Record:
        operands = list(text.operands)
        returns = "_rtn" in name
        name = name.replace("_rtn", "")
        dst = vector(operands.pop(0)).index if returns else 0
        data = [vector(word) for word in operands[1:]]
        action = re.sub(r"_num_(f\d\d)$", r"_\1", name)
        action = re.sub(r"^(storexchg|wrxchg)_", "swap_", action)
        if action.startswith("cmpst_"):  # the older line has the expected value first
            action, data = action.replace("cmpst_", "cmpswap_"), data[::-1]
        action = action.replace("cmpstore_", "cmpswap_")
        flags = RETURN_OLD if returns else 0
        return Record(
            f"ds_atomic_{action}", [vector(operands[0]), Operand(), *data], dst=dst, flags=flags, offset=offset
        )

    def _lds_pair(self, text: Text, verb: str, stride: bool, size: str) -> Record:
        operands = text.operands
        unit = (8 if size == "b64" else 4) * (64 if stride else 1)
        offsets = {"op_sel": text.number("offset0"), "op_sel_hi": text.number("offset1"), "offset": unit}
        if verb == "load":
            return Record(f"ds_load_2addr_{size}", [vector(operands[1])], dst=vector(operands[0]).index, **offsets)
        if verb == "store":
            data = [vector(operands[1]), vector(operands[2])]
            return Record(f"ds_store_2addr_{size}", [vector(operands[0]), Operand(), *data], **offsets)
        data = [vector(operands[2]), vector(operands[3])]
        return Record(
            f"ds_storexchg_2addr_rtn_{size}",
            [vector(operands[1]), Operand(), *data],
            dst=vector(operands[0]).index,
            **offsets,
        )


def _sources(words: list[str], types: tuple[str, ...]) -> list[Operand]:
    if len(words) != len(types):
        raise Unsupported(f"{len(words)} sources")
    return [source(word, kind) for word, kind in zip(words, types, strict=True)]


def _reads(record: Record) -> set[int]:
    """Vector registers of one word that a record reads."""
    found = {operand.index for operand in record.sources if operand.kind == VGPR}
    return found | {record.dst} if record.name in ("v_fmac_f32", "v_dot2acc_f32_f16") else found


def _output_flags(text: Text, allowed: bool) -> int:
    flags = 0
    for word, flag in (("clamp", CLAMP), ("mul:2", TIMES_2), ("mul:4", TIMES_4), ("div:2", HALVE)):
        key, _, value = word.partition(":")
        if text.modifiers.get(key) == value:
            if not allowed:
                raise Unsupported(word)
            flags |= flag
            del text.modifiers[key]
    return flags


def _no_more(text: Text, allowed: set[str]) -> None:
    """Stop at a modifier whose meaning would be lost."""
    left = set(text.modifiers) - allowed - IGNORED_MODIFIERS
    if left:
        raise Unsupported(", ".join(sorted(left)))


def _signed16(text: str) -> int:
    value = int(text, 0) & 0xFFFF
    return value - 0x10000 if value & 0x8000 else value


def _mode_field(text: str) -> int:
    match = re.fullmatch(r"hwreg\(HW_REG_(?:WAVE_)?MODE(?:, *(\d+), *(\d+))?\)", text)
    if not match:
        raise Unsupported(text)
    return int(match[1] or 0) | int(match[2] or 32) << 8


def _vector_address(text: str) -> Operand:
    return Operand() if text == "off" else vector(text)


def _scalar_address(text: str) -> Operand:
    if text in ("off", "null"):
        return Operand()
    return Operand(SGPR, scalar(text))


def _atomic(name: str) -> str:
    """Canonical name of an atomic operation: the older line says "smax_x2" for max_i64."""
    name = re.sub(r"_num_(f\d\d)$", r"_\1", name)
    base, wide = (name.removesuffix("_x2"), "64") if name.endswith("_x2") else (name, "32")
    return ATOMICS[base] + wide if base in ATOMICS else name


def _dpp_control(modifiers: dict[str, str]) -> int | None:
    """The control code of a DPP modifier; None for dpp8."""
    if "dpp8" in modifiers:
        return None
    if "quad_perm" in modifiers:
        return sum(int(lane) << 2 * k for k, lane in enumerate(modifiers["quad_perm"].strip("[]").split(",")))
    fixed = {"row_mirror": 0x140, "row_half_mirror": 0x141}
    counted = {
        "row_shl": 0x100,
        "row_shr": 0x110,
        "row_ror": 0x120,
        "row_share": 0x150,
        "row_newbcast": 0x150,
        "row_xmask": 0x160,
    }
    waves = {"wave_shl": 0x130, "wave_rol": 0x134, "wave_shr": 0x138, "wave_ror": 0x13C}
    for name, value in modifiers.items():
        if name in fixed:
            return fixed[name]
        if name in counted:
            return counted[name] + int(value)
        if name in waves:
            return waves[name]
        if name == "row_bcast":
            return {"15": 0x142, "31": 0x143}[value]
    raise Unsupported("DPP control")


def _swizzle(modifiers: dict[str, str]) -> int:
    """The offset field of ds_swizzle_b32 from the macro that LLVM prints."""
    text = modifiers.get("offset", "0")
    match = re.fullmatch(r"swizzle\((\w+),(.*)\)", text.replace(" ", ""))
    if not match:
        return int(text, 0)
    kind, rest = match[1], match[2].split(",")
    if kind == "QUAD_PERM":
        return 0x8000 | sum(int(lane) << 2 * k for k, lane in enumerate(rest))
    if kind == "BITMASK_PERM":
        bits = rest[0].strip('"')
        keep = int("".join("1" if bit in "pi" else "0" for bit in bits), 2)
        force = int("".join("1" if bit == "1" else "0" for bit in bits), 2)
        flip = int("".join("1" if bit == "i" else "0" for bit in bits), 2)
        return keep | force << 5 | flip << 10
    if kind == "BROADCAST":
        return (~(int(rest[0]) - 1) & 31) | int(rest[1]) << 5
    if kind == "SWAP":
        return 31 | int(rest[0]) << 10
    if kind == "REVERSE":
        return 31 | (int(rest[0]) - 1) << 10
    if kind == "ROTATE":
        return 0xC000 | int(rest[0]) << 10 | int(rest[1]) << 5
    raise Unsupported(text)


# ---- the file ---------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self) -> None:
        self.data = bytearray()

    def number(self, value: int) -> None:
        self.data += struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF)

    def blob(self, value: bytes) -> None:
        self.number(len(value))
        self.data += value

    def text(self, value: str) -> None:
        self.blob(value.encode())


def translate(data: bytes, llvm: Path) -> bytes:
    """The program file of a code object.

    Args:
        data: the code object.
        llvm: the LLVM library that disassembles it.

    Raises:
        EmulatorError: the bytes are no code object, or it needs something that no instruction record can express.
    """
    code = CodeObject(data)
    target = code.target.split(":")[0]
    translator, disassembler = Translator(target), Disassembler(llvm, target)
    lines = [line for address, text in code.text for line in disassembler.lines(text, address)]
    names: dict[str, int] = {}
    first_record: dict[int, int] = {}
    records: list[tuple[Line, Record]] = []
    for line in lines:
        first_record[line.address] = len(records)
        records += [(line, record) for record in translator.records(line)]
    records.append((Line(lines[-1].address + lines[-1].size, 4, "end of the code"), Record("not_code")))

    out = _Writer()
    out.number(VERSION)
    out.text(target)
    out.blob(_image(code))
    relocations = _relocations(code)
    out.number(len(relocations))
    for where, address in relocations:
        out.number(where)
        out.number(address)
    symbols = [symbol for symbol in code.symbols if symbol.section and symbol.name]
    out.number(len(symbols))
    for symbol in symbols:
        out.text(symbol.name)
        out.number(symbol.address)
        out.number(symbol.size)
    out.number(len(code.kernels))
    for kernel in code.kernels.values():
        rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIHH", kernel.descriptor, 48)
        out.text(kernel.name)
        stack = kernel.private + (0x10000 if properties >> 11 & 1 else 0)  # bit 11: the stack's size is not known
        for value in (
            kernel.entry_address,
            kernel.descriptor_address,
            kernel.kernarg_size,
            kernel.vgprs,
            kernel.lds,
            stack,
            kernel.max_flat_workgroup_size,
            kernel.wavefront_size,
            rsrc1,
            rsrc2,
            properties,
            preload,
        ):
            out.number(value)
        out.number(len(kernel.arguments))
        for argument in kernel.arguments:
            out.number(argument.offset)
            out.number(argument.size)
            out.text(argument.kind)
    packed = bytearray()
    texts = []
    for index, (line, record) in enumerate(records):
        branch = 0 if record.branch is None else first_record.get(record.branch, len(records) - 1) - index
        packed += struct.pack(
            "<QIiqHHBBBBB7x",
            names.setdefault(record.name, len(names)),
            line.address,
            branch or record.target,
            record.offset,
            record.dst,
            record.sdst,
            record.flags,
            record.op_sel,
            record.op_sel_hi,
            record.neg_lo,
            record.neg_hi,
        )
        operands = record.sources + [Operand()] * (5 - len(record.sources))
        packed += b"".join(operand.pack() for operand in operands)
        texts.append(line.text or "(no instruction)")
    out.number(len(names))
    for name in names:
        out.text(name)
    out.number(lines[0].address)
    out.number(lines[-1].address + lines[-1].size)
    out.blob(bytes(packed))
    out.number(len(first_record))
    for address, index in first_record.items():
        out.number(address)
        out.number(index)
    out.text("\n".join(texts))
    return bytes(out.data)


def _image(code: CodeObject) -> bytes:
    image = bytearray(max(segment.address + segment.memory_size for segment in code.segments))
    for segment in code.segments:
        image[segment.address : segment.address + len(segment.data)] = segment.data
    return bytes(image)


def _relocations(code: CodeObject) -> list[tuple[int, int]]:
    defined = {symbol.name: symbol.address for symbol in code.symbols if symbol.section}
    found = []
    for relocation in code.relocations:
        if relocation.kind == R_AMDGPU_RELATIVE64:
            found.append((relocation.offset, relocation.addend))
        elif relocation.kind == R_AMDGPU_ABS64 and relocation.symbol in defined:
            found.append((relocation.offset, defined[relocation.symbol] + relocation.addend))
        else:
            raise EmulatorError(f"the code object refers to {relocation.symbol!r}, which nothing defines")
    return found


def serve(llvm: Path) -> None:
    """Answer requests on standard input: a line "source<TAB>destination" is answered by "ok" or "error <message>"."""
    # An interrupt is for the program whose kernels these are; the end of standard input ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for request in sys.stdin:
        origin, _, destination = request.rstrip("\n").partition("\t")
        try:
            write(Path(destination), translate(Path(origin).read_bytes(), llvm))
            answer = "ok"
        except (EmulatorError, OSError) as error:
            answer = "error " + " ".join(str(error).split())
        print(answer, flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
