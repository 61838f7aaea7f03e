// Reads the file that translate.py writes.
#include "program_file.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    data_.assign(std::istreambuf_iterator<char>(file), {});
  }
  u64 number() {
    u64 value;
    memcpy(&value, take(8), 8);
    return value;
  }
  std::string text() {
    u64 size = number();
    return std::string((const char*)take(size), size);
  }
  std::vector<u8> blob() {
    u64 size = number();
    const u8* from = take(size);
    return std::vector<u8>(from, from + size);
  }

 private:
  const u8* take(u64 size) {
    if (size > data_.size() - at_) throw std::runtime_error("the translated program is cut short");
    at_ += size;
    return (const u8*)data_.data() + at_ - size;
  }
  std::vector<char> data_;
  size_t at_ = 0;
};

}  // namespace

std::unique_ptr<Program> read_program(const std::string& path) {
  Reader in(path);
  auto program = std::make_unique<Program>();
  if (in.number() != PROGRAM_VERSION) throw std::runtime_error("the translated program has another version");
  program->target = in.text();
  program->image = in.blob();
  for (u64 n = in.number(); n; --n) {
    u64 where = in.number();
    program->relocations.emplace_back(where, in.number());
  }
  for (u64 n = in.number(); n; --n) {
    Symbol symbol;
    symbol.name = in.text(), symbol.address = in.number(), symbol.size = in.number();
    program->symbols.push_back(symbol);
  }
  for (u64 n = in.number(); n; --n) {
    Kernel kernel;
    kernel.name = in.text(), kernel.entry = in.number(), kernel.descriptor = in.number();
    for (u32* field : {&kernel.kernarg_size, &kernel.vgprs, &kernel.lds, &kernel.scratch, &kernel.max_threads,
                       &kernel.wavefront, &kernel.rsrc1, &kernel.rsrc2, &kernel.properties, &kernel.preload})
      *field = (u32)in.number();
    for (u64 m = in.number(); m; --m) {
      Argument argument;
      argument.offset = (u32)in.number(), argument.size = (u32)in.number(), argument.kind = in.text();
      kernel.arguments.push_back(argument);
    }
    program->kernels.push_back(kernel);
  }
  for (u64 n = in.number(); n; --n) program->names.push_back(in.text());
  program->text_start = in.number(), program->text_end = in.number();
  std::vector<u8> code = in.blob();
  program->code.resize(code.size() / sizeof(Inst));
  memcpy((void*)program->code.data(), code.data(), code.size());
  program->at.assign((program->text_end - program->text_start) / 4, -1);
  for (u64 n = in.number(); n; --n) {
    u64 address = in.number(), index = in.number();
    program->at.at((address - program->text_start) / 4) = (i32)index;
  }
  std::string texts = in.text();
  for (size_t start = 0; start <= texts.size();) {
    size_t end = std::min(texts.find('\n', start), texts.size());
    program->texts.push_back(texts.substr(start, end - start));
    start = end + 1;
  }
  return program;
}
