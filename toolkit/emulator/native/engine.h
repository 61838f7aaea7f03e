// What the HIP runtime asks of the engine of one wave size, and what it is told.
#pragma once
#include <cstddef>

#include "program.h"

enum class Order : u32 { FORWARD, REVERSED, RANDOM };

// Reading words of LDS that nothing has written is no defect if the value is not used (CuPy's own scans do it), so that
// reporting it is a choice; without it such words are NaN.
enum class LdsChecks : u32 { OFF, RACES, STRICT };

struct Settings {
  Order order = Order::FORWARD;
  u64 seed = 0;
  LdsChecks lds_checks = LdsChecks::RACES;
  u32 threads = 1;
  u64 limit = 1ull << 33;  // instructions of one wave: spinning for ever ends here
  // Writes what is known of an address in device memory (for example how far past an allocation it lies).
  void (*describe)(u64 address, char* text, size_t size) = nullptr;
};

struct Launch {
  const Program* program;
  const Kernel* kernel;
  u32 grid[3], block[3];  // in blocks, in threads
  u32 dynamic_lds;
  const u8* kernarg;
};

enum class Outcome { FINISHED, ILLEGAL_ADDRESS, FAILED };

// What the engine exports.
using BindFunction = void(Program&);
using LaunchFunction = Outcome(const Launch&, const Settings&, std::string& message);
