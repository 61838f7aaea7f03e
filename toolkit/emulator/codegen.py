"""C++ from the instruction tables: one function for each instruction, over all lanes of a wave at once.

The unit of generation is the instruction, not the kernel: a kernel becomes a list of pointers to these functions, so that
the C++ compiler runs once for each machine instead of once for each kernel, and every instruction of a kernel keeps its
address for reports, random time slices and memory faults. The loops over lanes are written for the vectoriser.
"""

from __future__ import annotations

from . import semantics
from .semantics import Row

HEADER = '#include "lane.h"\n#include "wave.h"\n\n'

# How a source row of this type is declared, fetched, and turned into the value of one lane.
FETCH = {
    "u32": ("fetch32", "Row32", "{row}[l]"),
    "i32": ("fetch32", "Row32", "(i32){row}[l]"),
    "f32": ("fetch32", "Row32", "as_f32({row}[l])"),
    "u64": ("fetch64", "Row64", "{row}[l]"),
    "i64": ("fetch64", "Row64", "(i64){row}[l]"),
    "f64": ("fetch64", "Row64", "as_f64({row}[l])"),
    "u16": ("fetch16", "Row32", "(u16){row}[l]"),
    "i16": ("fetch16", "Row32", "(i16){row}[l]"),
    "f16": ("fetch16", "Row32", "from_f16({row}[l])"),
}
LANE_TYPE = {name: "f32" if name == "f16" else name for name in FETCH}


def vector_source() -> list[str]:
    """Translation units for the vector unit; together they hold every row of the tables."""
    rows = semantics.rows(semantics.VECTOR)
    parts = [rows[k::4] for k in range(4)]
    units = [HEADER + "\n".join(_vector(row) for row in part) for part in parts]
    units[0] += "\n".join(_packed(row) for row in semantics.rows(semantics.PACKED))
    units[1] += _comparisons() + _two_over_pi()
    units[2] += "\n".join(_scalar(row) for row in semantics.rows(semantics.SCALAR, scc=True))
    units[3] += "\n".join(_scalar(row, prefix="v_s_") for row in semantics.rows(semantics.SCALAR_TRANSCENDENTAL))
    return units


def handler_names() -> dict[str, str]:
    """Every mnemonic of the tables (without encoding suffix) and the handler that executes it."""
    names: dict[str, str] = {}
    for prefix, rows in (
        ("v_", semantics.rows(semantics.VECTOR) + semantics.rows(semantics.PACKED)),
        ("s_", semantics.rows(semantics.SCALAR, scc=True)),
        ("v_s_", semantics.rows(semantics.SCALAR_TRANSCENDENTAL)),
    ):
        names |= {prefix + name: prefix + row.name for row in rows for name in row.names}
    return names


def _sources(types: tuple[str, ...], first: int = 0) -> tuple[str, str]:
    """Declarations before the loop, and the lane's ``a``, ``b``, ``c`` inside it."""
    before, inside = [], []
    for k, kind in enumerate(types):
        fetch, row, lane = FETCH[kind]
        name = "abc"[k]
        before.append(f"  {row} row_{name};\n  const auto* in_{name} = {fetch}(i->src[{first + k}], w, row_{name});\n")
        inside.append(f"    {LANE_TYPE[kind]} {name} = {lane.format(row=f'in_{name}')};\n")
    return "".join(before), "".join(inside)


def _vector(row: Row) -> str:
    before, inside = _sources(row.sources)
    kind = row.result
    uses_old = "d" in _identifiers(row.expression)
    out = [f"HANDLER(v_{row.name}) {{\n"]
    if "f64" in (kind, *row.sources):
        out.append("  DoublePrecision precision(w);\n")
    out.append(before)
    if kind in ("u32", "i32", "f32"):
        out.append(f"  alignas(64) {kind} result[LANES];\n")
        old = f"    {kind} d = {FETCH[kind][2].format(row='w->v[i->dst]')};\n" if uses_old else ""
        assign = "    result[l] = "
        store = "  store32(w->v[i->dst], (const u32*)result, w->exec());\n"
        if kind == "f32":
            store = "  if (i->flags & (CLAMP | TIMES_2 | TIMES_4 | HALVE)) clamp_f32(i, result);\n" + store
    elif kind in ("u64", "i64", "f64"):
        out.append(f"  alignas(64) {kind} result[LANES];\n")
        pair = "(w->v[i->dst][l] | (u64)w->v[i->dst + 1][l] << 32)"
        old = f"    {kind} d = {'as_f64' if kind == 'f64' else ''}{pair};\n" if uses_old else ""
        assign = "    result[l] = "
        store = "  store64(i, w, (const u64*)result);\n"
        if kind == "f64":
            store = "  if (i->flags & (CLAMP | TIMES_2 | TIMES_4 | HALVE)) clamp_f64(i, result);\n" + store
    else:
        out.append("  alignas(64) u32 result[LANES];\n")
        half = "w->v[i->dst][l] >> (i->flags & HIGH_DESTINATION ? 16 : 0)"
        old = f"    f32 d = from_f16({half});\n" if uses_old else ""
        assign = "    result[l] = " + ("to_f16(" if kind == "f16" else f"(u16)({kind})(")
        store = "  store16(i, w, result);\n"
        if kind == "f16":
            store = (
                "  if (i->flags & (CLAMP | TIMES_2 | TIMES_4 | HALVE)) {\n    f32 wide[LANES];\n"
                "    for (int l = 0; l < LANES; ++l) wide[l] = from_f16(result[l]);\n    clamp_f16(i, wide);\n"
                "    for (int l = 0; l < LANES; ++l) result[l] = to_f16(wide[l]);\n  }\n" + store
            )
    close = ");\n" if kind in ("u16", "i16", "f16") else ";\n"
    out += ["  for (int l = 0; l < LANES; ++l) {\n", inside, old, assign, row.expression, close, "  }\n", store]
    out.append("  return i + 1;\n}\n")
    return "".join(out)


def _packed(row: Row) -> str:
    out = [f"HANDLER(v_{row.name}) {{\n  alignas(64) u32 halves[2][LANES];\n"]
    out.append("  for (int half = 0; half < 2; ++half) {\n    u8 select = half ? i->op_sel_hi : i->op_sel;\n")
    out.append("    u8 negate = half ? i->neg_hi : i->neg_lo;\n")
    inside = ""
    for k, kind in enumerate(row.sources):
        name = "abc"[k]
        flip = f" ^ (negate >> {k} & 1 ? 0x8000 : 0)" if kind == "f16" else ""
        out.append(f"    Row32 row_{name};\n    const u32* in_{name} = fetch32(i->src[{k}], w, row_{name});\n")
        out.append(f"    int shift_{name} = select >> {k} & 1 ? 16 : 0;\n")
        value = f"((in_{name}[l] >> shift_{name} & 0xffff){flip})"
        inside += f"      {LANE_TYPE[kind]} {name} = {'from_f16' if kind == 'f16' else f'({kind})'}{value};\n"
    if "d" in _identifiers(row.expression):
        inside += "      f32 d = from_f16(w->v[i->dst][l] >> 16 * half);\n"
    convert = "to_f16(" if row.result == "f16" else "(u16)("
    out.append(
        f"    for (int l = 0; l < LANES; ++l) {{\n{inside}"
        f"      halves[half][l] = {convert}{row.expression});\n    }}\n  }}\n"
    )
    if row.result == "f16":
        out.append("  if (i->flags & CLAMP)\n    for (auto& half : halves)\n      for (u32& h : half) {\n")
        out.append("        f32 x = from_f16(h);\n        h = to_f16(x > 0 ? (x < 1 ? x : 1.f) : 0.f);\n      }\n")
    out.append("  for (int l = 0; l < LANES; ++l) halves[0][l] |= halves[1][l] << 16;\n")
    out.append("  store32(w->v[i->dst], halves[0], w->exec());\n  return i + 1;\n}\n")
    return "".join(out)


def _comparisons() -> str:
    out = []
    for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
        out += [_compare(f"{op}_{kind}", (kind, kind), test) for op, test in semantics.INTEGER_COMPARISONS.items()]
    for kind in ("f16", "f32", "f64"):
        out += [_compare(f"{op}_{kind}", (kind, kind), test) for op, test in semantics.FLOAT_COMPARISONS.items()]
    out.append(_compare("class_f32", ("f32", "u32"), "is_class(a, b)"))
    out.append(_compare("class_f64", ("f64", "u32"), "is_class(a, b)"))
    out.append(_compare("class_f16", ("u16", "u16"), "is_class_f16(a, b)"))
    for kind in ("i32", "u32", "u64"):
        out += [_scalar_compare(f"{op}_{kind}", kind, test) for op, test in semantics.INTEGER_COMPARISONS.items()]
    out += [_scalar_compare(f"{op}_f32", "f32", test) for op, test in semantics.FLOAT_COMPARISONS.items()]
    return "".join(out)


def _compare(name: str, types: tuple[str, ...], test: str) -> str:
    before, inside = _sources(types)
    if "f64" in types:
        before = "  DoublePrecision precision(w);\n" + before
    return (
        f"HANDLER(v_cmp_{name}) {{\n{before}  alignas(64) u32 holds[LANES];\n"
        f"  for (int l = 0; l < LANES; ++l) {{\n{inside}    holds[l] = {test} ? ~0u : 0;\n  }}\n"
        "  w->set_mask(i->dst, pack(holds) & w->exec());\n  return i + 1;\n}\n"
    )


def _scalar_value(kind: str, operand: str) -> str:
    wide = kind in ("u64", "i64")
    value = f"scalar{64 if wide else 32}({operand}, w)"
    return {"f32": f"as_f32({value})", "i32": f"(i32){value}", "i64": f"(i64){value}"}.get(kind, value)


def _scalar_compare(name: str, kind: str, test: str) -> str:
    return (
        f"HANDLER(s_cmp_{name}) {{\n  {kind} a = {_scalar_value(kind, 'i->src[0]')}, "
        f"b = {_scalar_value(kind, 'i->src[1]')};\n  w->s[SCC] = {test};\n  return i + 1;\n}}\n"
    )


def _scalar(row: Row, prefix: str = "s_") -> str:
    out = [f"HANDLER({prefix}{row.name}) {{\n  [[maybe_unused]] u32 scc = w->s[SCC];\n"]
    for k, kind in enumerate(row.sources):
        value = _scalar_value(kind, f"i->src[{k}]")
        if kind == "f32":  # scalar float operands have modifiers in v_s_* only
            value = f"scalar_f32(i->src[{k}], w)"
        out.append(f"  {kind} {'abc'[k]} = {value};\n")
    wide = row.result in ("u64", "i64")
    if "d" in _identifiers(row.expression + " " + row.scc):
        old = "w->s64(i->dst)" if wide else "w->s[i->dst]"
        out.append(f"  {row.result} d = {'as_f32' if row.result == 'f32' else ''}({old});\n")
    out.append(f"  {row.result} D = {row.expression};\n")
    if wide:
        out.append("  w->set_s64(i->dst, (u64)D);\n")
    else:
        out.append(f"  w->s[i->dst] = {'bits(D)' if row.result == 'f32' else '(u32)D'};\n")
    if row.scc != "-":
        out.append(f"  w->s[SCC] = ({row.scc}) ? 1 : 0;\n")
    out.append("  return i + 1;\n}\n")
    return "".join(out)


def _two_over_pi() -> str:
    """The table of v_trig_preop_f64: binary digits of 2/π, from Machin's formula in integers."""
    scale = 1 << 1400

    def arctan_inverse(n: int) -> int:
        term, total, k = scale // n, 0, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term //= n * n
            k += 2
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    digits = (2 * scale * (1 << 1280)) // pi
    words = [digits >> (1280 - 64 * (k + 1)) & 0xFFFFFFFFFFFFFFFF for k in range(20)]
    return "const u64 two_over_pi[20] = {" + ", ".join(f"{word:#x}ull" for word in words) + "};\n"


def _identifiers(expression: str) -> set[str]:
    word, found = "", set()
    for character in expression + " ":
        if character.isalnum() or character == "_":
            word += character
        else:
            found.add(word)
            word = ""
    return found
