// The part of HIP's binary interface that is emulated: values and layouts are fixed by the callers that exist.
#pragma once
#include <cstddef>

#include "program.h"

#define HIP extern "C" __attribute__((visibility("default")))

enum Error {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorInvalidConfiguration = 9,
  hipErrorInvalidDevicePointer = 17,
  hipErrorInvalidDeviceFunction = 98,
  hipErrorInvalidDevice = 101,
  hipErrorInvalidImage = 200,
  hipErrorNoBinaryForGpu = 209,
  hipErrorFileNotFound = 301,
  hipErrorSharedObjectInitFailed = 303,
  hipErrorInvalidHandle = 400,
  hipErrorIllegalState = 401,
  hipErrorNotFound = 500,
  hipErrorNotReady = 600,
  hipErrorIllegalAddress = 700,
  hipErrorLaunchFailure = 719,
  hipErrorNotSupported = 801,
  hipErrorStreamCaptureUnsupported = 900,
  hipErrorStreamCaptureInvalidated = 901,
  hipErrorStreamCaptureUnmatched = 903,
  hipErrorStreamCaptureUnjoined = 904,
  hipErrorStreamCaptureIsolation = 905,
  hipErrorStreamCaptureImplicit = 906,
  hipErrorCapturedEvent = 907,
  hipErrorUnknown = 999,
};

enum MemoryType { hipMemoryTypeUnregistered = 0, hipMemoryTypeHost = 1, hipMemoryTypeDevice = 2, hipMemoryTypeManaged = 3 };
enum CopyKind { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice, hipMemcpyDefault };
enum CaptureStatus { hipStreamCaptureStatusNone, hipStreamCaptureStatusActive, hipStreamCaptureStatusInvalidated };
enum CaptureMode { hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal, hipStreamCaptureModeRelaxed };

struct PointerAttributes {
  int type, device;
  void *device_pointer, *host_pointer;
  int is_managed;
  unsigned allocation_flags;
};

// hipDeviceProp_tR0600
struct DeviceProperties {
  char name[256];
  char uuid[16], luid[8];
  unsigned luid_device_node_mask;
  size_t total_global_memory, shared_memory_per_block;
  int registers_per_block, warp_size;
  size_t memory_pitch;
  int max_threads_per_block, max_threads_dimension[3], max_grid_size[3], clock_rate;
  size_t total_constant_memory;
  int major, minor;
  size_t texture_alignment, texture_pitch_alignment;
  int device_overlap, multiprocessor_count, kernel_timeout_enabled, integrated, can_map_host_memory, compute_mode;
  int textures[26], surfaces[14];
  size_t surface_alignment;
  int concurrent_kernels, ecc_enabled, pci_bus, pci_device, pci_domain, tcc_driver, async_engines, unified_addressing;
  int memory_clock_rate, memory_bus_width, l2_cache_size, persisting_l2_cache_max_size;
  int max_threads_per_multiprocessor, stream_priorities_supported, global_l1_cache, local_l1_cache;
  size_t shared_memory_per_multiprocessor;
  int registers_per_multiprocessor, managed_memory, is_multi_gpu_board, multi_gpu_board_group;
  int host_native_atomics, single_to_double_ratio, pageable_memory_access, concurrent_managed_access;
  int compute_preemption, host_pointer_for_registered_memory, cooperative_launch, cooperative_multi_device_launch;
  size_t shared_memory_per_block_optin;
  int pageable_memory_uses_host_tables, direct_managed_access, max_blocks_per_multiprocessor, access_policy_window;
  size_t reserved_shared_memory_per_block;
  int tail[13 + 63 + 32];  // features that are absent, and reserved words
  char gcn_arch_name[256];
  size_t max_shared_memory_per_multiprocessor;
  int clock_instruction_rate;
  unsigned arch_flags;
  unsigned *hdp_memory_flush, *hdp_register_flush;
  int cooperative_unmatched[4], is_large_bar, asic_revision;
};

// ---- inside the runtime ---------------------------------------------------------------------------------------------------

#include <functional>
#include <memory>
#include <mutex>

#include "engine.h"

// Records an error for hipGetLastError; the text is printed and becomes the error's string.
Error fail(Error error, const std::string& text = "");
std::string error_text(int error);

// memory.cpp of the runtime
struct Range {
  u64 start, size;
};
void* allocate(size_t size, MemoryType type);
void adopt(void* start, size_t size, MemoryType type);  // memory that is not ours to unmap, for example a module's image
bool release(void* pointer);
bool find_allocation(const void* pointer, Range& range, MemoryType& type);
void describe_address(u64 address, char* text, size_t size);

// module.cpp
struct Module {
  std::string code;  // names the code object
  std::unique_ptr<Program> program;
  LaunchFunction* launch = nullptr;
  ~Module();
};
struct Function {
  Module* module;
  const Kernel* kernel;
};
Error load_module(const void* image, size_t size, std::unique_ptr<Module>& module);
std::string device_target();  // read anew each time: a process may go from one target to another
u32 device_wave_size();
u32 lds_per_block();

// A launch with its arguments copied, as a stream or a graph keeps it.
struct Work {
  std::string name;
  std::function<Error()> run;
};
Error prepare_launch(Function* function, const u32 grid[3], const u32 block[3], u32 shared, void** parameters, void** extra,
                     Work& work);

// stream.cpp
struct Stream;
Error submit(Stream* stream, Work work);              // runs it now, or records it where the stream is capturing
Error forbid_while_capturing(bool relaxed_allows);  // for calls that a capture does not permit
