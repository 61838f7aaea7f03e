// Device memory is host memory. Every allocation ends right before a page without access, and starts as NaN.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>

#include "hip.h"

namespace {

struct Allocation {
  u64 start, size;  // what the program asked for
  u8* mapping;      // nullptr: adopted
  size_t mapped;
  MemoryType type;
};

std::mutex mutex;
std::map<u64, Allocation> allocations;  // by start
std::deque<Range> freed;                // the last ones, for messages
u64 in_use = 0;

const size_t page = (size_t)sysconf(_SC_PAGESIZE);
// Kernels read 16 bytes at once; more alignment would leave bytes past the end without guard.
constexpr u64 ALIGNMENT = 16;

u64 total_memory() { return (u64)sysconf(_SC_PHYS_PAGES) * page; }

const Allocation* find(u64 address) {
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return nullptr;
  const Allocation& a = std::prev(after)->second;
  return address < a.start + std::max<u64>(a.size, 1) ? &a : nullptr;
}

}  // namespace

void* allocate(size_t size, MemoryType type) {
  std::lock_guard lock(mutex);
  if (in_use + size > total_memory()) return nullptr;
  size_t inside = (std::max<size_t>(size, 1) + ALIGNMENT + page - 1) / page * page, mapped = inside + 2 * page;
  u8* mapping = (u8*)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  mprotect(mapping, page, PROT_NONE);
  mprotect(mapping + page + inside, page, PROT_NONE);
  u64 start = ((u64)mapping + page + inside - std::max<size_t>(size, 1)) & ~(ALIGNMENT - 1);
  memset((void*)start, 0xff, size);
  allocations[start] = {start, size, mapping, mapped, type};
  in_use += size;
  return (void*)start;
}

void adopt(void* start, size_t size, MemoryType type) {
  std::lock_guard lock(mutex);
  allocations[(u64)start] = {(u64)start, size, nullptr, 0, type};
}

bool release(void* pointer) {
  std::lock_guard lock(mutex);
  auto found = allocations.find((u64)pointer);
  if (found == allocations.end()) return false;
  Allocation a = found->second;
  if (a.mapping) {
    munmap(a.mapping, a.mapped);
    in_use -= a.size;
  }
  freed.push_back({a.start, a.size});
  if (freed.size() > 256) freed.pop_front();
  allocations.erase(found);
  return true;
}

bool find_allocation(const void* pointer, Range& range, MemoryType& type) {
  std::lock_guard lock(mutex);
  const Allocation* a = find((u64)pointer);
  if (!a) return false;
  range = {a->start, a->size};
  type = a->type;
  return true;
}

void describe_address(u64 address, char* text, size_t size) {
  std::lock_guard lock(mutex);
  if (address < page) {
    snprintf(text, size, "a null pointer");
    return;
  }
  auto after = allocations.upper_bound(address);
  if (after != allocations.begin()) {
    const Allocation& a = std::prev(after)->second;
    u64 past = address - (a.start + a.size);
    if (address >= a.start + a.size && past < 64 * page) {
      snprintf(text, size, "%llu bytes past the end of an allocation of %llu bytes", (unsigned long long)past,
               (unsigned long long)a.size);
      return;
    }
  }
  if (after != allocations.end() && after->first - address < 64 * page) {
    snprintf(text, size, "%llu bytes before an allocation of %llu bytes", (unsigned long long)(after->first - address),
             (unsigned long long)after->second.size);
    return;
  }
  for (auto range = freed.rbegin(); range != freed.rend(); ++range)
    if (address - range->start < range->size) {
      snprintf(text, size, "in an allocation of %llu bytes that was freed", (unsigned long long)range->size);
      return;
    }
  snprintf(text, size, "far from every allocation");
}

// ---- the interface ----------------------------------------------------------------------------------------------------

static Error allocate_for(void** pointer, size_t size, MemoryType type) {
  if (!pointer) return fail(hipErrorInvalidValue);
  *pointer = nullptr;
  if (Error error = forbid_while_capturing(true)) return error;
  if (!size) return hipSuccess;
  *pointer = allocate(size, type);
  return *pointer ? hipSuccess : fail(hipErrorOutOfMemory);
}
HIP int hipMalloc(void** pointer, size_t size) { return allocate_for(pointer, size, hipMemoryTypeDevice); }
HIP int hipExtMallocWithFlags(void** pointer, size_t size, unsigned) { return allocate_for(pointer, size, hipMemoryTypeDevice); }
HIP int hipMallocManaged(void** pointer, size_t size, unsigned) { return allocate_for(pointer, size, hipMemoryTypeManaged); }
HIP int hipHostMalloc(void** pointer, size_t size, unsigned) { return allocate_for(pointer, size, hipMemoryTypeHost); }
HIP int hipHostAlloc(void** pointer, size_t size, unsigned) { return allocate_for(pointer, size, hipMemoryTypeHost); }

static int free_pointer(void* pointer) {
  if (!pointer) return hipSuccess;
  if (Error error = forbid_while_capturing(true)) return error;
  return release(pointer) ? hipSuccess : fail(hipErrorInvalidValue, "hipFree of a pointer that no allocation returned");
}
HIP int hipFree(void* pointer) { return free_pointer(pointer); }
HIP int hipHostFree(void* pointer) { return free_pointer(pointer); }

HIP int hipMemGetInfo(size_t* unused, size_t* total) {
  std::lock_guard lock(mutex);
  *total = total_memory();
  *unused = *total - in_use;
  return hipSuccess;
}
HIP int hipPointerGetAttributes(PointerAttributes* out, const void* pointer) {
  Range range;
  MemoryType type = hipMemoryTypeUnregistered;
  memset(out, 0, sizeof *out);
  bool known = find_allocation(pointer, range, type);
  out->type = type;
  out->host_pointer = (void*)pointer;
  out->device_pointer = known ? (void*)pointer : nullptr;
  out->is_managed = type == hipMemoryTypeManaged;
  return hipSuccess;
}
HIP int hipMemAdvise(const void*, size_t, int, int) { return hipSuccess; }
HIP int hipMemPrefetchAsync(const void*, size_t, int, Stream*) { return hipSuccess; }

// ---- copies -------------------------------------------------------------------------------------------------------------

static Error check(const void* pointer, size_t size, bool must_be_ours, const char* what) {
  Range range;
  MemoryType type;
  if (!size) return hipSuccess;
  if (!find_allocation(pointer, range, type)) {
    char text[256];
    if (!must_be_ours) return hipSuccess;
    describe_address((u64)pointer, text, sizeof text);
    return fail(hipErrorInvalidValue, std::string(what) + " is no device memory: " + text);
  }
  if ((u64)pointer + size <= range.start + range.size) return hipSuccess;
  return fail(hipErrorInvalidValue, std::string(what) + ": " + std::to_string(size) + " bytes do not fit into an allocation of " +
                                        std::to_string(range.size));
}
static Error copy_now(void* to, const void* from, size_t size, int kind) {
  bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
  bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
  if (Error error = check(to, size, to_device, "the destination of a copy")) return error;
  if (Error error = check(from, size, from_device, "the source of a copy")) return error;
  memmove(to, from, size);
  return hipSuccess;
}
static Error set_now(void* to, int value, size_t size) {
  if (Error error = check(to, size, true, "the destination of a memset")) return error;
  memset(to, value, size);
  return hipSuccess;
}
HIP int hipMemcpy(void* to, const void* from, size_t size, int kind) {
  if (Error error = forbid_while_capturing(false)) return error;
  return copy_now(to, from, size, kind);
}
HIP int hipMemcpyAsync(void* to, const void* from, size_t size, int kind, Stream* stream) {
  return submit(stream, {"memcpy", [=] { return copy_now(to, from, size, kind); }});
}
HIP int hipMemcpyPeer(void* to, int, const void* from, int, size_t size) {
  return hipMemcpy(to, from, size, hipMemcpyDeviceToDevice);
}
HIP int hipMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, Stream* stream) {
  return hipMemcpyAsync(to, from, size, hipMemcpyDeviceToDevice, stream);
}
HIP int hipMemcpyHtoD(void* to, const void* from, size_t size) { return hipMemcpy(to, from, size, hipMemcpyHostToDevice); }
HIP int hipMemcpyDtoH(void* to, const void* from, size_t size) { return hipMemcpy(to, from, size, hipMemcpyDeviceToHost); }
HIP int hipMemcpyDtoD(void* to, const void* from, size_t size) { return hipMemcpy(to, from, size, hipMemcpyDeviceToDevice); }
HIP int hipMemset(void* to, int value, size_t size) {
  if (Error error = forbid_while_capturing(false)) return error;
  return set_now(to, value, size);
}
HIP int hipMemsetAsync(void* to, int value, size_t size, Stream* stream) {
  return submit(stream, {"memset", [=] { return set_now(to, value, size); }});
}
