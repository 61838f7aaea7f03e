// The one emulated device, and errors.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>

#include "hip.h"

// ---- errors ---------------------------------------------------------------------------------------------------------------

static thread_local int last_error = hipSuccess;
static thread_local std::string last_text;
static thread_local int text_of = hipSuccess;

Error fail(Error error, const std::string& text) {
  last_error = error;
  last_text = text;
  text_of = error;
  if (!text.empty() && getenv("NEARTIE_EMULATOR_QUIET") == nullptr) fprintf(stderr, "emulated GPU: %s\n", text.c_str());
  return error;
}
HIP int hipGetLastError() {
  int error = last_error;
  last_error = hipSuccess;
  return error;
}
HIP int hipExtGetLastError() { return hipGetLastError(); }
HIP int hipPeekAtLastError() { return last_error; }

static const std::map<int, std::pair<const char*, const char*>>& errors() {
#define NAME(name, text) {name, {#name, text}}
  static const std::map<int, std::pair<const char*, const char*>> table = {
      NAME(hipSuccess, "no error"),
      NAME(hipErrorInvalidValue, "invalid argument"),
      NAME(hipErrorOutOfMemory, "out of memory"),
      NAME(hipErrorInvalidConfiguration, "invalid configuration argument"),
      NAME(hipErrorInvalidDevicePointer, "invalid device pointer"),
      NAME(hipErrorInvalidDeviceFunction, "invalid device function"),
      NAME(hipErrorInvalidDevice, "invalid device ordinal"),
      NAME(hipErrorInvalidImage, "device kernel image is invalid"),
      NAME(hipErrorNoBinaryForGpu, "no kernel image is available for execution on the device"),
      NAME(hipErrorFileNotFound, "file not found"),
      NAME(hipErrorSharedObjectInitFailed, "shared object initialization failed"),
      NAME(hipErrorInvalidHandle, "invalid resource handle"),
      NAME(hipErrorIllegalState, "the operation cannot be performed in the present state"),
      NAME(hipErrorNotFound, "named symbol not found"),
      NAME(hipErrorNotReady, "device not ready"),
      NAME(hipErrorIllegalAddress, "an illegal memory access was encountered"),
      NAME(hipErrorLaunchFailure, "unspecified launch failure"),
      NAME(hipErrorNotSupported, "operation not supported"),
      NAME(hipErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
      NAME(hipErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
      NAME(hipErrorStreamCaptureUnmatched, "capture was not initiated in this stream"),
      NAME(hipErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
      NAME(hipErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
      NAME(hipErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream"),
      NAME(hipErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
      NAME(hipErrorUnknown, "unknown error"),
  };
  return table;
}
HIP const char* hipGetErrorName(int error) {
  auto found = errors().find(error);
  return found == errors().end() ? "hipErrorUnknown" : found->second.first;
}
HIP const char* hipGetErrorString(int error) {
  if (error == text_of && !last_text.empty()) return last_text.c_str();
  auto found = errors().find(error);
  return found == errors().end() ? "unknown error" : found->second.second;
}
// What the generated functions do whose names exist in HIP but not here.
extern "C" int refuse(const char* name) { return fail(hipErrorNotSupported, std::string(name) + " is not emulated"); }

// ---- the device -----------------------------------------------------------------------------------------------------------

static constexpr int VERSION = 71460850;
// As the name of the target says: gfx1201 is 12.0, gfx90a is 9.0, gfx942 is 9.4.
static int major_version() {
  std::string digits = device_target().substr(3);
  return atoi(digits.substr(0, digits.size() - 2).c_str());
}
static int minor_version() {
  std::string target = device_target();
  return target[target.size() - 2] - '0';
}

static Error guarded_target() {
  try {
    device_target();
    return hipSuccess;
  } catch (const std::exception& error) {
    return fail(hipErrorSharedObjectInitFailed, error.what());
  }
}

HIP int hipInit(unsigned) { return guarded_target(); }
HIP int hipGetDeviceCount(int* count) {
  *count = 1;
  return guarded_target();
}
HIP int hipGetDevice(int* device) {
  *device = 0;
  return hipSuccess;
}
HIP int hipSetDevice(int device) { return device ? fail(hipErrorInvalidDevice) : hipSuccess; }
HIP int hipRuntimeGetVersion(int* version) {
  *version = VERSION;
  return hipSuccess;
}
HIP int hipDriverGetVersion(int* version) {
  *version = VERSION;
  return hipSuccess;
}
HIP int hipGetDevicePropertiesR0600(DeviceProperties* out, int device) {
  static_assert(sizeof(DeviceProperties) == 1472);
  if (device) return fail(hipErrorInvalidDevice);
  if (Error error = guarded_target()) return error;
  size_t unused, total;
  extern int hipMemGetInfo(size_t*, size_t*) asm("hipMemGetInfo");
  hipMemGetInfo(&unused, &total);
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "emulated AMD GPU (%s)", device_target().c_str());
  snprintf(out->gcn_arch_name, sizeof out->gcn_arch_name, "%s", device_target().c_str());
  out->total_global_memory = total;
  out->shared_memory_per_block = out->shared_memory_per_block_optin = lds_per_block();
  out->shared_memory_per_multiprocessor = out->max_shared_memory_per_multiprocessor = lds_per_block();
  out->registers_per_block = out->registers_per_multiprocessor = 65536;
  out->warp_size = (int)device_wave_size();
  out->max_threads_per_block = 1024;
  for (int& n : out->max_threads_dimension) n = 1024;
  out->max_grid_size[0] = 0x7fffffff;
  out->max_grid_size[1] = out->max_grid_size[2] = 65536;
  out->clock_rate = out->memory_clock_rate = 1000000;
  out->memory_bus_width = 64;
  out->total_constant_memory = 0x7fffffff;
  out->major = major_version();
  out->minor = minor_version();
  out->texture_alignment = out->texture_pitch_alignment = 256;
  out->multiprocessor_count = 8;
  out->l2_cache_size = 4 << 20;
  out->max_threads_per_multiprocessor = 2048;
  out->max_blocks_per_multiprocessor = 32;
  out->concurrent_kernels = out->can_map_host_memory = out->unified_addressing = out->managed_memory = 1;
  out->clock_instruction_rate = 100000;
  out->memory_pitch = 0x7fffffff;
  return hipSuccess;
}
HIP int hipDeviceGetAttribute(int* value, int attribute, int device) {
  DeviceProperties p;
  if (int error = hipGetDevicePropertiesR0600(&p, device)) return error;
  switch (attribute) {  // numbers of hipDeviceAttribute_t
    case 3: *value = p.can_map_host_memory; break;
    case 5: *value = p.clock_rate; break;
    case 8: *value = p.concurrent_kernels; break;
    case 19: *value = p.l2_cache_size; break;
    case 23: *value = p.major; break;
    case 24: *value = p.managed_memory; break;
    case 25: *value = p.max_blocks_per_multiprocessor; break;
    case 26: case 27: case 28: *value = p.max_threads_dimension[attribute - 26]; break;
    case 29: case 30: case 31: *value = p.max_grid_size[attribute - 29]; break;
    case 56: *value = p.max_threads_per_block; break;
    case 57: *value = p.max_threads_per_multiprocessor; break;
    case 61: *value = p.minor; break;
    case 63: *value = p.multiprocessor_count; break;
    case 71: *value = p.registers_per_block; break;
    case 72: *value = p.registers_per_multiprocessor; break;
    case 74: *value = (int)p.shared_memory_per_block; break;
    case 75: *value = (int)p.shared_memory_per_block_optin; break;
    case 76: *value = (int)p.shared_memory_per_multiprocessor; break;
    case 85: *value = p.unified_addressing; break;
    case 87: *value = p.warp_size; break;
    default: *value = 0;
  }
  return hipSuccess;
}
HIP int hipDeviceGet(int* device, int ordinal) {
  *device = 0;
  return ordinal ? fail(hipErrorInvalidDevice) : hipSuccess;
}
HIP int hipDeviceGetName(char* name, int size, int) {
  snprintf(name, (size_t)size, "emulated AMD GPU (%s)", device_target().c_str());
  return hipSuccess;
}
HIP int hipDeviceGetLimit(size_t* value, int) {
  *value = 65536;
  return hipSuccess;
}
HIP int hipDeviceGetPCIBusId(char* text, int size, int) {
  snprintf(text, (size_t)size, "0000:00:00.0");
  return hipSuccess;
}
HIP int hipDeviceGetByPCIBusId(int* device, const char*) {
  *device = 0;
  return hipSuccess;
}
HIP int hipDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return hipSuccess;
}
HIP int hipDeviceEnablePeerAccess(int, unsigned) { return hipSuccess; }
HIP int hipDeviceDisablePeerAccess(int) { return hipSuccess; }
HIP int hipDeviceReset() { return hipSuccess; }
