// Modules and launches: a code object is handed to the translator (a Python process that stays), its answer is cached on disk.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <thread>

#include "hip.h"
#include "program_file.h"

extern char** environ;

namespace {

std::string variable(const char* name, const char* fallback = nullptr) {
  const char* value = getenv(name);
  if (value && *value) return value;
  if (fallback) return fallback;
  throw std::runtime_error(std::string(name) + " is not set; start the program with `python -m toolkit.emulator`");
}

Settings settings() {
  Settings chosen;
  std::string order = variable("NEARTIE_EMULATOR_ORDER", "forward");
  if (order == "reversed") {
    chosen.order = Order::REVERSED;
  } else if (order.compare(0, 6, "random") == 0) {
    chosen.order = Order::RANDOM;
    if (order.size() > 7) chosen.seed = strtoull(order.c_str() + 7, nullptr, 10);
  } else if (order != "forward") {
    throw std::runtime_error("NEARTIE_EMULATOR_ORDER is forward, reversed or random:SEED, not " + order);
  }
  std::string lds = variable("NEARTIE_EMULATOR_LDS", "races");
  chosen.lds_checks = lds == "off" ? LdsChecks::OFF : lds == "strict" ? LdsChecks::STRICT : LdsChecks::RACES;
  std::string threads = variable("NEARTIE_EMULATOR_THREADS", "0");
  chosen.threads = (u32)strtoul(threads.c_str(), nullptr, 10);
  if (!chosen.threads) chosen.threads = std::min(std::max(std::thread::hardware_concurrency(), 1u), 16u);
  chosen.describe = describe_address;
  return chosen;
}

// ---- the translator's process -----------------------------------------------------------------------------------------

class Translator {
 public:
  // Answers "" or an error.
  std::string translate(const std::string& source, const std::string& destination) {
    std::lock_guard lock(mutex_);
    if (process_ != getpid()) start();
    std::string request = source + "\t" + destination + "\n";
    if (write(to_, request.data(), request.size()) != (ssize_t)request.size()) return "the translator does not read";
    std::string answer;
    for (char c; read(from_, &c, 1) == 1 && c != '\n';) answer += c;
    if (answer == "ok") return "";
    if (answer.compare(0, 6, "error ") == 0) return answer.substr(6);
    process_ = 0;
    return "the translator ended (its message is above)";
  }

 private:
  void start() {
    int request[2], answer[2];
    if (pipe2(request, O_CLOEXEC) || pipe2(answer, O_CLOEXEC)) throw std::runtime_error("no pipe for the translator");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, request[0], 0);
    posix_spawn_file_actions_adddup2(&actions, answer[1], 1);
    std::string python = variable("NEARTIE_EMULATOR_PYTHON"), llvm = variable("NEARTIE_EMULATOR_LLVM");
    std::string path = "PYTHONPATH=" + variable("NEARTIE_EMULATOR_ROOT");
    std::string module = variable("NEARTIE_EMULATOR_TRANSLATOR", "toolkit.emulator.translate");
    const char* arguments[] = {python.c_str(), "-m", module.c_str(), llvm.c_str(), nullptr};
    // The translator sees neither the program's Python path nor its preloaded libraries.
    std::vector<char*> environment;
    for (char** entry = environ; *entry; ++entry) {
      std::string name(*entry, strcspn(*entry, "="));
      if (name != "PYTHONPATH" && name != "LD_PRELOAD" && name != "PYTHONHOME") environment.push_back(*entry);
    }
    environment.push_back(path.data());
    environment.push_back(nullptr);
    pid_t child;
    int failed = posix_spawn(&child, python.c_str(), &actions, nullptr, (char**)arguments, environment.data());
    posix_spawn_file_actions_destroy(&actions);
    close(request[0]), close(answer[1]);
    if (failed) throw std::runtime_error("cannot start " + python + ": " + strerror(failed));
    to_ = request[1], from_ = answer[0], process_ = getpid();
  }
  std::mutex mutex_;
  pid_t process_ = 0;
  int to_ = -1, from_ = -1;
};

Translator& translator() {
  static Translator* only = new Translator;
  return *only;
}

std::string fingerprint(const void* data, size_t size) {  // FNV-1a twice, from two starting points
  u64 a = 14695981039346656037ull, b = 0x9e3779b97f4a7c15ull;
  for (size_t k = 0; k < size; ++k) {
    a = (a ^ ((const u8*)data)[k]) * 1099511628211ull;
    b = (b ^ ((const u8*)data)[k]) * 1099511628211ull + (b >> 47);
  }
  char text[40];
  snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
  return text;
}

// A folder for whoever keeps a record of what was executed: every code object that was loaded, and a line with the name of
// the code object and of the kernel for each launch that ran to its end.
void record_code(const std::string& name, const std::vector<u8>& code) {
  std::string folder = variable("NEARTIE_EMULATOR_RECORD", "");
  if (folder.empty()) return;
  std::string path = folder + "/" + name + ".co";
  if (!std::ofstream(path, std::ios::binary).write((const char*)code.data(), (std::streamsize)code.size()).flush())
    throw std::runtime_error("NEARTIE_EMULATOR_RECORD: cannot write " + path);
}
Error record_launch(const std::string& code, const std::string& kernel) {
  std::string folder = variable("NEARTIE_EMULATOR_RECORD", "");
  if (folder.empty()) return hipSuccess;
  std::string path = folder + "/launches.txt";
  if (std::ofstream(path, std::ios::app) << code + " " + kernel + "\n" << std::flush) return hipSuccess;
  return fail(hipErrorLaunchFailure, "NEARTIE_EMULATOR_RECORD: cannot write " + path);
}

struct Engine {
  BindFunction* bind;
  LaunchFunction* launch;
};
Engine& engine(u32 wave) {
  static std::map<u32, Engine> engines;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  auto found = engines.find(wave);
  if (found != engines.end()) return found->second;
  if (wave != device_wave_size())
    throw std::runtime_error("a kernel for waves of " + std::to_string(wave) + " lanes; " + device_target() + " is emulated with " +
                             std::to_string(device_wave_size()));
  std::string path = variable("NEARTIE_EMULATOR_ENGINE");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(std::string("cannot load the engine: ") + dlerror());
  return engines[wave] = {(BindFunction*)dlsym(library, "engine_bind"), (LaunchFunction*)dlsym(library, "engine_launch")};
}

size_t elf_size(const u8* image) {  // hipModuleLoadData gets no size: the section table is the last thing in the file
  u64 offset;
  u16 entry, count;
  memcpy(&offset, image + 40, 8), memcpy(&entry, image + 58, 2), memcpy(&count, image + 60, 2);
  return offset + (u64)entry * count;
}

}  // namespace

std::string device_target() { return variable("NEARTIE_EMULATOR_TARGET"); }
u32 device_wave_size() { return device_target().compare(0, 4, "gfx9") == 0 ? 64 : 32; }
u32 lds_per_block() { return device_target() == "gfx950" ? 160 * 1024 : 64 * 1024; }

Module::~Module() {
  if (program && program->memory) {
    release(program->memory);
    munmap(program->memory, program->image.size());
  }
}

Error load_module(const void* image, size_t size, std::unique_ptr<Module>& module) {
  const u8* data = (const u8*)image;
  if (memcmp(data, "\x7f" "ELF", 4)) return fail(hipErrorInvalidImage, "a module that is no ELF code object");
  if (!size) size = elf_size(data);
  // The last byte belongs to the last section header, and is zero; CuPy does not pass it on.
  std::vector<u8> code(data, data + size - 1);
  code.push_back(0);
  std::string digest = fingerprint(code.data(), code.size());
  record_code(digest, code);
  std::string name = variable("NEARTIE_EMULATOR_CACHE") + "/" + digest;
  std::string translated = name + ".program";
  if (access(translated.c_str(), R_OK)) {
    std::string source = name + "." + std::to_string(getpid()) + ".co";
    std::ofstream(source, std::ios::binary).write((const char*)code.data(), (std::streamsize)code.size());
    std::string error = translator().translate(source, translated);
    unlink(source.c_str());
    if (!error.empty()) return fail(hipErrorInvalidImage, error);
  }
  module = std::make_unique<Module>();
  module->code = digest;
  module->program = read_program(translated);
  Program& program = *module->program;
  std::string target = device_target();
  if (program.target != target)
    return fail(hipErrorNoBinaryForGpu, "a code object for " + program.target + " on an emulated " + target);
  size_t length = program.image.size();
  program.memory = (u8*)mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (program.memory == MAP_FAILED) return fail(hipErrorOutOfMemory);
  memcpy(program.memory, program.image.data(), length);
  for (auto [where, address] : program.relocations) {
    u64 value = (u64)program.memory + address;
    memcpy(program.memory + where, &value, 8);
  }
  adopt(program.memory, length, hipMemoryTypeDevice);
  u32 wave = program.kernels.empty() ? device_wave_size() : program.kernels[0].wavefront;
  engine(wave).bind(program);
  module->launch = engine(wave).launch;
  return hipSuccess;
}

// Errors of the surroundings (no translator, no engine) reach the caller as a failed call, not as an exception.
template <class F>
static int guarded(F body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return fail(hipErrorSharedObjectInitFailed, error.what());
  }
}

HIP int hipModuleLoadData(Module** out, const void* image) {
  return guarded([&] {
    if (!out || !image) return fail(hipErrorInvalidValue);
    if (Error error = forbid_while_capturing(true)) return error;
    std::unique_ptr<Module> module;
    Error error = load_module(image, 0, module);
    if (!error) *out = module.release();
    return error;
  });
}
HIP int hipModuleLoadDataEx(Module** out, const void* image, unsigned, int*, void**) { return hipModuleLoadData(out, image); }
HIP int hipModuleLoad(Module** out, const char* path) {
  return guarded([&] {
    std::ifstream file(path, std::ios::binary);
    if (!file) return fail(hipErrorFileNotFound, std::string("cannot read ") + path);
    std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
    if (data.size() < 64) return fail(hipErrorInvalidImage, std::string(path) + " is no code object");
    std::unique_ptr<Module> module;
    Error error = load_module(data.data(), data.size(), module);
    if (!error) *out = module.release();
    return error;
  });
}
HIP int hipModuleUnload(Module* module) {
  delete module;
  return hipSuccess;
}
HIP int hipModuleGetFunction(Function** out, Module* module, const char* name) {
  for (const Kernel& kernel : module->program->kernels)
    if (kernel.name == name) {
      *out = new Function{module, &kernel};
      return hipSuccess;
    }
  return fail(hipErrorNotFound, std::string("no kernel named ") + name + " in the module");
}
HIP int hipModuleGetGlobal(void** pointer, size_t* size, Module* module, const char* name) {
  for (const Symbol& symbol : module->program->symbols)
    if (symbol.name == name) {
      if (pointer) *pointer = module->program->memory + symbol.address;
      if (size) *size = symbol.size;
      return hipSuccess;
    }
  return fail(hipErrorNotFound, std::string("no variable named ") + name + " in the module");
}
HIP int hipFuncGetAttribute(int* value, int attribute, Function* function) {
  const Kernel& kernel = *function->kernel;
  switch (attribute) {
    case 0: *value = (int)kernel.max_threads; break;
    case 1: *value = (int)kernel.lds; break;
    case 3: *value = (int)kernel.scratch; break;
    case 4: *value = (int)kernel.vgprs; break;
    case 8: *value = (int)(lds_per_block() - kernel.lds); break;
    default: *value = 0;
  }
  return hipSuccess;
}

// ---- launches -----------------------------------------------------------------------------------------------------------

static Error pack_arguments(const Kernel& kernel, const u32 grid[3], const u32 block[3], u32 shared, void** parameters,
                            void** extra, std::vector<u8>& segment) {
  segment.assign(std::max<u32>(kernel.kernarg_size, 8) + 64, 0);
  if (extra) {  // a list of keys: 1 = pointer to the packed arguments, 2 = pointer to their size, 3 = end
    const void* data = nullptr;
    size_t size = 0;
    for (; *extra != (void*)3; extra += 2) {
      if (*extra == (void*)1) data = extra[1];
      if (*extra == (void*)2) size = *(size_t*)extra[1];
    }
    memcpy(segment.data(), data, std::min<size_t>(size, kernel.kernarg_size));
  }
  size_t next = 0;
  for (const Argument& argument : kernel.arguments) {
    u64 hidden = 0;
    const std::string& kind = argument.kind;
    if (kind.compare(0, 7, "hidden_")) {
      if (extra) continue;
      if (!parameters || !parameters[next]) return fail(hipErrorInvalidValue, "kernel " + kernel.name + ": too few arguments");
      memcpy(segment.data() + argument.offset, parameters[next++], argument.size);
      continue;
    }
    int axis = kind.back() - 'x';
    if (kind.compare(0, 19, "hidden_block_count_") == 0) hidden = grid[axis];
    if (kind.compare(0, 18, "hidden_group_size_") == 0) hidden = block[axis];
    if (kind == "hidden_grid_dims") hidden = grid[2] * block[2] > 1 ? 3 : grid[1] * block[1] > 1 ? 2 : 1;
    if (kind == "hidden_dynamic_lds_size") hidden = shared;
    memcpy(segment.data() + argument.offset, &hidden, std::min<u32>(argument.size, 8));
  }
  return hipSuccess;
}

Error prepare_launch(Function* function, const u32 grid[3], const u32 block[3], u32 shared, void** parameters, void** extra,
                     Work& work) {
  if (!function) return fail(hipErrorInvalidHandle);
  const Kernel& kernel = *function->kernel;
  u64 threads = (u64)block[0] * block[1] * block[2];
  auto dimensions = [](const u32 d[3]) {
    return "(" + std::to_string(d[0]) + ", " + std::to_string(d[1]) + ", " + std::to_string(d[2]) + ")";
  };
  for (int k = 0; k < 3; ++k) {
    if (!grid[k] || !block[k])
      return fail(hipErrorInvalidConfiguration, "kernel " + kernel.name + ": grid " + dimensions(grid) + " of blocks " + dimensions(block));
    if ((u64)grid[k] * block[k] >> 32)
      return fail(hipErrorInvalidConfiguration, "kernel " + kernel.name + ": 2^32 threads or more along one axis");
  }
  if (threads > kernel.max_threads)
    return fail(hipErrorLaunchFailure, "kernel " + kernel.name + ": blocks of " + std::to_string(threads) +
                                           " threads, but it was compiled for at most " + std::to_string(kernel.max_threads) +
                                           " (__launch_bounds__)");
  if (kernel.lds + (u64)shared > lds_per_block())
    return fail(hipErrorInvalidValue, "kernel " + kernel.name + ": " + std::to_string(kernel.lds + (u64)shared) +
                                          " bytes of shared memory, a block has " + std::to_string(lds_per_block()));
  auto segment = std::make_shared<std::vector<u8>>();
  if (Error error = pack_arguments(kernel, grid, block, shared, parameters, extra, *segment)) return error;
  Launch launch{function->module->program.get(), &kernel, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, segment->data()};
  LaunchFunction* run = function->module->launch;
  bool calls_host = std::any_of(kernel.arguments.begin(), kernel.arguments.end(),
                                [](const Argument& argument) { return argument.kind == "hidden_hostcall_buffer"; });
  work.name = kernel.name;
  work.run = [launch, run, segment, calls_host, code = function->module->code] {
    std::string message;
    switch (run(launch, settings(), message)) {
      case Outcome::FINISHED: return record_launch(code, launch.kernel->name);
      case Outcome::ILLEGAL_ADDRESS:
        if (calls_host && message.find("a null pointer") != std::string::npos)
          message += " (printf and the text of a failed assert in a kernel are not emulated)";
        return fail(hipErrorIllegalAddress, message);
      default: return fail(hipErrorLaunchFailure, message);
    }
  };
  return hipSuccess;
}

HIP int hipModuleLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, Stream* stream, void** parameters, void** extra) {
  return guarded([&] {
    const u32 grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    Work work;
    if (Error error = prepare_launch(function, grid, block, shared, parameters, extra, work)) return error;
    return submit(stream, std::move(work));
  });
}
HIP int hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t shared) {
  int by_threads = 2048 / std::max(threads, 1), by_memory = shared ? (int)(lds_per_block() / shared) : by_threads;
  *blocks = std::max(0, std::min({by_threads, by_memory, 32}));
  return hipSuccess;
}
HIP int hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void*, size_t, int limit) {
  *block = limit ? std::min(limit, 256) : 256;
  *grid = 8;
  return hipSuccess;
}

// ---- kernels that a library brings along ------------------------------------------------------------------------------

static std::map<const void*, std::string>& prebuilt() {
  static auto* names = new std::map<const void*, std::string>;
  return *names;
}
HIP void** __hipRegisterFatBinary(const void* data) {
  return new void*((void*)data);
}
HIP void __hipRegisterFunction(void**, const void* host, char*, const char* name, unsigned, void*, void*, void*, void*, int*) {
  prebuilt()[host] = name;
}
HIP int __hipPushCallConfiguration(...) { return hipSuccess; }
HIP int __hipPopCallConfiguration(...) { return hipSuccess; }
HIP void __hipUnregisterFatBinary(void** handle) { delete handle; }
HIP int hipLaunchKernel(const void* host, ...) {
  auto found = prebuilt().find(host);
  return fail(hipErrorNotSupported, "kernel " + (found == prebuilt().end() ? "of a library" : found->second) +
                                        " was compiled ahead of time; only kernels compiled at run time are emulated");
}
