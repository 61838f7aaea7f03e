// One block while it runs: its waves, its LDS, and the record of who touched which byte of it.
#pragma once
#include <csetjmp>
#include <memory>

#include "engine.h"
#include "wave.h"

// A byte's tag says in which interval between barriers, and by which wave, it was last written or read:
// interval << 8 | who. Two waves that meet in one interval, one of them writing, are a race.
enum Who : u32 { MANY = 0x3f, ATOMIC = 0x40 };

struct Lds {
  u8* memory = nullptr;  // starts a region of 4 GiB of addresses, so that a flat address names its aperture
  u32 size = 0;
  LdsChecks checks = LdsChecks::RACES;
  u32 first_interval = 1, interval = 1;
  std::unique_ptr<u32[]> written, read;

  bool contains(u64 address) const { return address >> 32 == (u64)memory >> 32; }
};

constexpr u32 LDS_CAPACITY = 160 * 1024;

enum class Access { READ, WRITE, ATOMIC };

struct Block {
  u32 index[3];
  u32 waves;
};

// Checks an access of ``size`` bytes at ``address`` of LDS; on failure the wave has failed. ``value`` = what is written.
bool lds_access(const Inst* i, Wave* w, u32 address, u32 size, Access access, const void* value);
u64 private_aperture();
