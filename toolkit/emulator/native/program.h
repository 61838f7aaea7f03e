// A translated code object as the translator writes it: memory image, kernels, and one record for each instruction.
// translate.py writes the same layout; PROGRAM_VERSION is raised there and here when it changes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;
using f32 = float;
using f64 = double;

constexpr u32 PROGRAM_VERSION = 1;

enum Kind : u8 { NONE, VGPR, SGPR, CONSTANT };
enum Modifier : u8 { NEGATE = 1, ABSOLUTE = 2, HIGH_HALF = 4 };
enum Flag : u8 { CLAMP = 1, TIMES_2 = 2, TIMES_4 = 4, HALVE = 8, RETURN_OLD = 16, HIGH_DESTINATION = 32, ZERO_HIGH = 64 };

struct Operand {
  u64 value;  // of a constant
  u16 index;  // of a register
  Kind kind;
  u8 modifiers;
  u32 unused;
};

struct Wave;
struct Inst;
// Executes one instruction; returns the next one, or nullptr after setting the wave's status.
using Handler = const Inst* (*)(const Inst*, Wave*);

struct Inst {
  union {
    Handler run;
    u64 name;  // in the file: index into Program::names
  };
  u32 address;  // in the code object
  i32 target;   // of a branch: records from this one
  i64 offset;   // of a memory access, or an immediate
  u16 dst, sdst;
  u8 flags, op_sel, op_sel_hi, neg_lo, neg_hi, unused[7];
  Operand src[5];
};
static_assert(sizeof(Operand) == 16 && sizeof(Inst) == 120);

struct Argument {
  u32 offset, size;
  std::string kind;
};

struct Kernel {
  std::string name;
  u64 entry, descriptor;
  u32 kernarg_size, vgprs, lds, scratch, max_threads, wavefront;
  u32 rsrc1, rsrc2, properties, preload;
  std::vector<Argument> arguments;
};

struct Symbol {
  std::string name;
  u64 address, size;
};

struct Program {
  std::string target;
  std::vector<u8> image;
  std::vector<std::pair<u64, u64>> relocations;  // (where, address in the image)
  std::vector<std::string> names;                // of handlers
  std::vector<Symbol> symbols;
  std::vector<Kernel> kernels;
  u64 text_start = 0, text_end = 0;
  std::vector<Inst> code;
  std::vector<i32> at;             // record of the instruction at text_start + 4 * index, or -1
  std::vector<std::string> texts;  // of code
  u8* memory = nullptr;            // the image where it was loaded

  const Inst* find(u64 address) const {
    if (address < text_start || address >= text_end || address % 4) return nullptr;
    i32 index = at[(address - text_start) / 4];
    return index < 0 ? nullptr : &code[index];
  }
};
