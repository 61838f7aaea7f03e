// Running blocks: initial registers, the order of waves, barriers, and what happens when an access hits no memory.
#include "block.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

Handler find_handler(const std::string& name);

extern "C" void engine_bind(Program& program) {
  std::vector<Handler> handlers;
  for (const std::string& name : program.names) {
    Handler handler = find_handler(name);
    if (!handler) throw std::runtime_error("the engine has no handler named " + name);
    handlers.push_back(handler);
  }
  for (Inst& inst : program.code) inst.run = handlers[inst.name];
}

// ---- LDS checks -------------------------------------------------------------------------------------------------------

// The verdict on ``N`` bytes without branches: almost every access is in order.
template <u32 N, Access A>
static bool in_order(Lds& lds, const Wave* w, u32 address, const u8* value) {
  const u32 interval = lds.interval, own = interval << 8 | w->number;
  const u32 first = lds.checks == LdsChecks::STRICT ? lds.first_interval : 0;
  u32 *written = &lds.written[address], *read = &lds.read[address];
  const u8* old = lds.memory + address;
  u32 bad = 0;
  for (u32 k = 0; k < N; ++k) {
    u32 w_tag = written[k], r_tag = read[k];
    bool w_other = w_tag >> 8 == interval && (w_tag & MANY) != w->number;
    bool r_other = r_tag >> 8 == interval && (r_tag & MANY) != w->number;
    if (A == Access::READ) {
      bad |= (u32)(w_tag >> 8 < first) | (u32)w_other;
      read[k] = r_other ? (own | MANY) : r_tag == (own | MANY) ? r_tag : own;
    } else if (A == Access::WRITE) {
      bad |= (u32)(w_other || r_other) & (u32)(value[k] != old[k]);  // writing what is there already harms nobody
      written[k] = own;
    } else {
      bad |= (u32)(w_other && !(w_tag & ATOMIC)) | (u32)r_other;
      written[k] = w_tag >> 8 == interval && w_tag & ATOMIC && w_tag != (own | ATOMIC) ? (own | ATOMIC | MANY) : (own | ATOMIC);
    }
  }
  return !bad;
}

// Which byte it was, and in which way. (The tags are those after the access, so the old ones are passed in.)
static void explain(const Inst* i, Wave* w, u32 address, u32 size, Access access, const u32* written, const u32* read) {
  Lds& lds = *w->lds;
  auto other = [&](u32 tag) { return tag >> 8 == lds.interval && (tag & MANY) != w->number; };
  for (u32 k = 0; k < size; ++k) {
    if (access == Access::READ && written[k] >> 8 < lds.first_interval) {
      w->fail(i, "lane %d reads byte %u of LDS, which nothing has written (uninitialised shared memory)", w->lane, address + k);
      return;
    }
    bool by_write = other(written[k]) && !(access == Access::ATOMIC && written[k] & ATOMIC);
    if (by_write || (access != Access::READ && other(read[k]))) {
      w->fail(i, "data race in LDS: lane %d of wave %u %s byte %u, which another wave %s, and no barrier lies between", w->lane,
              w->number, access == Access::READ ? "reads" : "writes", address + k, by_write ? "wrote" : "read");
      return;
    }
  }
}

template <u32 N>
static bool access_bytes(const Inst* i, Wave* w, u32 address, Access access, const u8* value) {
  Lds& lds = *w->lds;
  u32 written[N], read[N];
  memcpy(written, &lds.written[address], sizeof written);
  memcpy(read, &lds.read[address], sizeof read);
  bool fine = access == Access::READ     ? in_order<N, Access::READ>(lds, w, address, value)
              : access == Access::WRITE ? in_order<N, Access::WRITE>(lds, w, address, value)
                                        : in_order<N, Access::ATOMIC>(lds, w, address, value);
  if (!fine) explain(i, w, address, N, access, written, read);
  return fine;
}

bool lds_access(const Inst* i, Wave* w, u32 address, u32 size, Access access, const void* value) {
  const u8* bytes = (const u8*)value;
  switch (size) {
    case 1: return access_bytes<1>(i, w, address, access, bytes);
    case 2: return access_bytes<2>(i, w, address, access, bytes);
    case 4: return access_bytes<4>(i, w, address, access, bytes);
    case 8: return access_bytes<8>(i, w, address, access, bytes);
    case 12: return access_bytes<12>(i, w, address, access, bytes);
    default: return access_bytes<16>(i, w, address, access, bytes);
  }
}

// ---- memory --------------------------------------------------------------------------------------------------------------

static u8* reserve_4gib() {
  const u64 size = 1ull << 32;
  u8* region = (u8*)mmap(nullptr, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) throw std::runtime_error("no address space for the emulated LDS");
  u8* start = (u8*)(((u64)region + size - 1) & ~(size - 1));
  if (start != region) munmap(region, (size_t)(start - region));
  return start;
}
u64 private_aperture() {
  static u64 aperture = (u64)reserve_4gib();
  return aperture;
}

// What one thread needs to run blocks; kept from launch to launch.
struct Worker {
  Lds lds;
  std::vector<Wave*> waves;
  std::vector<u8> scratch;
  Block block;
  std::string message;
  Outcome outcome = Outcome::FINISHED;

  Worker() {
    lds.memory = reserve_4gib();
    if (mprotect(lds.memory, LDS_CAPACITY, PROT_READ | PROT_WRITE)) throw std::runtime_error("no memory for the emulated LDS");
    lds.written = std::make_unique<u32[]>(LDS_CAPACITY);
    lds.read = std::make_unique<u32[]>(LDS_CAPACITY);
  }
};

// ---- faults --------------------------------------------------------------------------------------------------------------

static thread_local sigjmp_buf fault_exit;
static thread_local volatile bool executing = false;
static thread_local volatile u64 fault_address;
static struct sigaction previous_segv, previous_bus;

static void on_fault(int signal_number, siginfo_t* info, void* context) {
  if (executing) {
    fault_address = (u64)info->si_addr;
    siglongjmp(fault_exit, 1);
  }
  struct sigaction& previous = signal_number == SIGSEGV ? previous_segv : previous_bus;
  if (previous.sa_flags & SA_SIGINFO)
    previous.sa_sigaction(signal_number, info, context);
  else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
    previous.sa_handler(signal_number);
  else {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
}
static void catch_faults() {
  struct sigaction action = {}, current;
  sigaction(SIGSEGV, nullptr, &current);
  if (current.sa_flags & SA_SIGINFO && current.sa_sigaction == on_fault) return;
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);
}

// Runs until the wave stops by itself or ``count`` instructions are done. True: a memory fault ended it.
static bool run(Wave* w, const u64 limit) {
  if (sigsetjmp(fault_exit, 0)) {
    executing = false;
    return true;
  }
  executing = true;
  const Inst* i = w->pc;
  u64 count = limit;
  do {
    w->pc = i;
    i = i->run(i, w);
  } while (i && --count);
  executing = false;
  if (i) w->pc = i;
  return false;
}

// ---- one block -----------------------------------------------------------------------------------------------------------

struct Random {  // xorshift64*
  u64 state;
  u32 below(u32 n) {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (u32)((state * 2685821657736338717ull >> 33) % n);
  }
};

static const u16 SHARED_BASE = 240, PRIVATE_BASE = 244;

static void start_wave(const Launch& launch, Worker& worker, Wave* w, u32 number, const u32* index, const u32* packet) {
  const Kernel& kernel = *launch.kernel;
  const u32* block = launch.block;
  u32 threads = block[0] * block[1] * block[2], first = number * LANES, lanes = std::min<u32>(LANES, threads - first);
  memset(w->s, 0xff, sizeof(u32) * 106);  // poison; NaN as a float
  memset(w->s + 106, 0, sizeof w->s - sizeof(u32) * 106);
  memset(w->v, 0xff, std::min<u32>(kernel.vgprs, 512) * sizeof w->v[0]);
  w->status = Status::RUNNING;
  w->lane = 0;
  w->pc = launch.program->find(kernel.entry);
  w->number = number;
  w->program = launch.program;
  w->block = &worker.block;
  w->lds = &worker.lds;
  w->scratch_size = kernel.scratch;
  w->scratch = worker.scratch.data() + (u64)number * LANES * kernel.scratch;
  w->mode = kernel.rsrc1 >> 12 & 0xff;
  w->set_mask(EXEC, lanes == 64 ? ~0ull : (1ull << lanes) - 1);
  w->set_s64(SHARED_BASE, (u64)worker.lds.memory);
  w->set_s64(PRIVATE_BASE, private_aperture());
  // User registers in the order of the ABI ("Initial Kernel Execution State" of LLVM's guide).
  u32 at = 0, properties = kernel.properties, user = kernel.rsrc2 >> 1 & 31;
  auto pair = [&](u64 value) { w->set_s64((int)at, value), at += 2; };
  if (properties & 1) pair(0), pair(0);
  if (properties & 2) pair((u64)packet);
  if (properties & 4) pair(0);
  if (properties & 8) pair((u64)launch.kernarg);
  if (properties & 16) pair(0);
  if (properties & 32) pair(0);
  if (properties & 64) w->s[at++] = kernel.scratch;
  for (u32 k = 0; k < (kernel.preload & 127); ++k)
    memcpy(&w->s[at++], launch.kernarg + 4 * ((kernel.preload >> 7) + k), 4);
  at = std::max(at, user);
  bool in_ttmp = launch.program->target.compare(0, 5, "gfx12") == 0;
  if (in_ttmp) {
    w->s[TTMP + 9] = index[0];
    w->s[TTMP + 7] = (index[1] & 0xffff) | index[2] << 16;
  } else {
    for (int k = 0; k < 3; ++k)
      if (kernel.rsrc2 >> (7 + k) & 1) w->s[at++] = index[k];
    if (kernel.rsrc2 >> 10 & 1) w->s[at++] = 0;
    if (kernel.rsrc2 & 1) w->s[at++] = 0;  // offset of the wave's scratch
  }
  for (u32 l = 0; l < lanes; ++l) {
    u32 thread = first + l;
    w->v[0][l] = thread % block[0] | thread / block[0] % block[1] << 10 | thread / (block[0] * block[1]) << 20;
  }
}

static void report(const Launch& launch, const Settings& settings, Worker& worker, Wave* w, bool fault) {
  const Program& program = *launch.program;
  char text[1024], where[256] = "";
  if (fault) {
    if (settings.describe) settings.describe(fault_address, where, sizeof where);
    snprintf(w->message, sizeof w->message, "no memory at address %#llx%s%s", (unsigned long long)fault_address,
             *where ? ": " : "", where);
  }
  size_t index = (size_t)(w->pc - program.code.data());
  snprintf(text, sizeof text, "kernel %s, block (%u, %u, %u), wave %u, instruction at %#x `%s`: %s", launch.kernel->name.c_str(),
           worker.block.index[0], worker.block.index[1], worker.block.index[2], w->number, w->pc->address,
           index < program.texts.size() ? program.texts[index].c_str() : "?", w->message);
  worker.message = text;
  worker.outcome = fault ? Outcome::ILLEGAL_ADDRESS : Outcome::FAILED;
}

static bool run_block(const Launch& launch, const Settings& settings, Worker& worker, u64 number, const u32* packet) {
  u32 count = worker.block.waves;
  Lds& lds = worker.lds;
  lds.size = launch.kernel->lds + launch.dynamic_lds;
  lds.checks = settings.lds_checks;
  if (lds.interval >= 0xfffff0) {  // tags have 24 bits for the interval
    lds.interval = 0;
    memset(lds.written.get(), 0, sizeof(u32) * LDS_CAPACITY);
    memset(lds.read.get(), 0, sizeof(u32) * LDS_CAPACITY);
  }
  lds.first_interval = ++lds.interval;
  memset(lds.memory, 0xff, lds.size);
  if (launch.kernel->scratch) memset(worker.scratch.data(), 0xff, worker.scratch.size());
  worker.block.index[0] = (u32)(number % launch.grid[0]);
  worker.block.index[1] = (u32)(number / launch.grid[0] % launch.grid[1]);
  worker.block.index[2] = (u32)(number / launch.grid[0] / launch.grid[1]);
  for (u32 k = 0; k < count; ++k) start_wave(launch, worker, worker.waves[k], k, worker.block.index, packet);

  Random random{(settings.seed + 1) * 0x9e3779b97f4a7c15ull ^ (number + 1) * 0xbf58476d1ce4e5b9ull};
  u64 left = settings.limit;
  for (u32 done = 0; done < count;) {
    u32 waiting = 0, live[64], n = 0;
    for (u32 k = 0; k < count; ++k) live[n++] = settings.order == Order::REVERSED ? count - 1 - k : k;
    while (n) {  // until every wave is at a barrier or at its end
      u32 pick = settings.order == Order::RANDOM ? random.below(n) : 0;
      Wave* w = worker.waves[live[pick]];
      if (w->status == Status::RUNNING) {
        u64 slice = settings.order == Order::RANDOM ? 1 + random.below(64) : settings.limit;
        set_host_flags(host_flags_f32(w->mode));
        bool fault = run(w, slice);
        if (fault || w->status == Status::FAILED) {
          report(launch, settings, worker, w, fault);
          return false;
        }
        if (w->status == Status::RUNNING) {
          if (settings.order == Order::RANDOM && (left -= slice) <= settings.limit) continue;
          snprintf(w->message, sizeof w->message, "%llu instructions without an end: does it wait for another block?",
                   (unsigned long long)settings.limit);
          report(launch, settings, worker, w, false);
          return false;
        }
      }
      if (w->status == Status::BARRIER) ++waiting;
      for (u32 k = pick; k + 1 < n; ++k) live[k] = live[k + 1];
      --n;
    }
    done = count - waiting;
    ++lds.interval;
    for (u32 k = 0; k < count; ++k)
      if (worker.waves[k]->status == Status::BARRIER) worker.waves[k]->status = Status::RUNNING;
  }
  return true;
}

// ---- many blocks ------------------------------------------------------------------------------------------------------------

// Threads that stay; a child process after fork() has none of them and makes its own.
class Pool {
 public:
  static Pool& get() {
    static Pool* pool = nullptr;
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    if (!pool || pool->process_ != getpid()) pool = new Pool;
    return *pool;
  }
  std::mutex in_use;

  Worker& worker(u32 index) {
    while (workers_.size() <= index) workers_.push_back(new Worker);
    return *workers_[index];
  }
  // Calls work(0) … work(count - 1), the first of them in this thread.
  void run(u32 count, const std::function<void(u32)>& work) {
    while (threads_ + 1 < count) std::thread(&Pool::serve, this, ++threads_).detach();
    {
      std::lock_guard lock(mutex_);
      work_ = &work, wanted_ = count, running_ = count - 1, ++generation_;
    }
    start_.notify_all();
    work(0);
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return running_ == 0; });
    work_ = nullptr;
  }

 private:
  void serve(u32 index) {
    u64 seen = 0;
    for (;;) {
      const std::function<void(u32)>* work;
      {
        std::unique_lock lock(mutex_);
        start_.wait(lock, [&] { return generation_ != seen && work_; });
        seen = generation_;
        if (index >= wanted_) continue;
        work = work_;
      }
      (*work)(index);
      std::lock_guard lock(mutex_);
      if (--running_ == 0) finished_.notify_all();
    }
  }
  pid_t process_ = getpid();
  std::vector<Worker*> workers_;
  std::mutex mutex_;
  std::condition_variable start_, finished_;
  const std::function<void(u32)>* work_ = nullptr;
  u32 threads_ = 0, wanted_ = 0, running_ = 0;
  u64 generation_ = 0;
};

extern "C" Outcome engine_launch(const Launch& launch, const Settings& settings, std::string& message) {
  catch_faults();
  const Kernel& kernel = *launch.kernel;
  u64 blocks = (u64)launch.grid[0] * launch.grid[1] * launch.grid[2];
  u32 threads = launch.block[0] * launch.block[1] * launch.block[2], waves = (threads + LANES - 1) / LANES;
  if (!launch.program->find(kernel.entry)) {
    message = "kernel " + kernel.name + " has no instructions";
    return Outcome::FAILED;
  }
  // The dispatch packet, for code that reads sizes from it.
  u32 packet[16] = {};
  u16 head[] = {0, 3, (u16)launch.block[0], (u16)launch.block[1], (u16)launch.block[2], 0};
  memcpy(packet, head, sizeof head);
  for (int k = 0; k < 3; ++k) packet[3 + k] = launch.grid[k] * launch.block[k];

  Pool& pool = Pool::get();
  std::lock_guard lock(pool.in_use);
  u32 workers = (u32)std::min<u64>(blocks, blocks * waves < 8 ? 1 : settings.threads);
  for (u32 k = 0; k < workers; ++k) {
    Worker& worker = pool.worker(k);
    while (worker.waves.size() < waves) {
      worker.waves.push_back((Wave*)aligned_alloc(64, (sizeof(Wave) + 63) & ~63ull));
    }
    worker.scratch.resize((u64)waves * LANES * kernel.scratch);
    worker.block.waves = waves;
    worker.outcome = Outcome::FINISHED;
  }
  std::atomic<u64> next{0};
  std::atomic<bool> stop{false};
  auto work = [&](u32 index) {
    u32 host = __builtin_ia32_stmxcsr();
    Worker& worker = pool.worker(index);
    for (u64 block; !stop && (block = next++) < blocks;) {
      u64 number = settings.order == Order::REVERSED ? blocks - 1 - block : block;
      if (!run_block(launch, settings, worker, number, packet)) stop = true;
    }
    __builtin_ia32_ldmxcsr(host);
  };
  if (workers > 1)
    pool.run(workers, work);
  else
    work(0);
  for (u32 k = 0; k < workers; ++k)
    if (Worker& worker = pool.worker(k); worker.outcome != Outcome::FINISHED) {
      message = worker.message;
      return worker.outcome;
    }
  return Outcome::FINISHED;
}
