// sm_profiler.h: a drop-in replacement for the header of the SM Profiler library that writes warplens records.
//
// Kernels written for that library have no wl::Kernel, so a warp's write position is kept in its track's header in
// memory, as in the original. Ranges of the same event may nest. Nothing is written outside a group's buffer: events
// that do not fit are counted, and sm_profiler_export_to_file reports their number on stderr. Prefer warplens.cuh for
// new kernels.
#ifndef WARPLENS_SM_PROFILER_H
#define WARPLENS_SM_PROFILER_H

#if defined(__CUDACC_RTC__)
typedef unsigned long long uint64_t;  // as in <cuda/std/cstdint>
typedef unsigned int uint32_t;
#else
#include <stdint.h>

#include <cuda_runtime.h>
#endif

#ifndef WARPLENS_CPP14
#define WARPLENS_CPP14  // kernels written for this library have no wl::Kernel, and its Makefile uses C++14
#endif
#include "warplens.cuh"

#define SM_PROFILER_MAX_EVENTS 32
#define SM_PROFILER_MAX_EVENT_TYPES SM_PROFILER_MAX_EVENTS
#define SM_PROFILER_MAX_EVENT_NAME_LEN 128  // longer names are accepted and kept whole

#if defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(WARPLENS_SHIM)

#if WARPLENS && (defined(__CUDA_ARCH__) || defined(WARPLENS_SHIM))
namespace wl {
namespace compat {

__device__ __forceinline__ void refuse(unsigned long long buffer) {
  atomicAdd(reinterpret_cast<unsigned*>(buffer + WL_BUFFER_REFUSED_AT), 1u);
}

// Not inlined, because it is long and a kernel may call it many times.
static __noinline__ __device__ void event(uint64_t* buffer, unsigned kind, unsigned event_no, bool predicate) {
  if (!buffer || !predicate) return;
  const detail::Place p = detail::place();
  if (p.lane != detail::first_lane()) return;  // one of the lanes with a true predicate records for the warp
  const unsigned long long base = reinterpret_cast<unsigned long long>(buffer);
  const detail::Sizes sizes = detail::load_sizes(Buffer{base});
  const unsigned track = p.block * sizes.per_block + p.warp;
  if (!sizes.tracks) return;  // a profiler made with enabled=False
  if (p.warp >= sizes.per_block || track >= sizes.tracks || event_no >= SM_PROFILER_MAX_EVENTS) return refuse(base);
  const unsigned long long at = base + WL_BUFFER_BYTES + static_cast<unsigned long long>(track) * sizes.stride;
  if (*reinterpret_cast<volatile unsigned*>(at + WL_TRACK_MAGIC_AT) != WL_TRACK_MAGIC)
    detail::write_start(at, p.block, p.warp | p.lane << 16);
  const unsigned written = *reinterpret_cast<volatile unsigned*>(at + WL_TRACK_WRITTEN_AT);
  const unsigned long long clock = detail::clock64_now();
  if (written < sizes.capacity)
    detail::store64(at + WL_HEADER_BYTES + written * WL_SLOT_BYTES,
                    clock << 32 | detail::word0(kind, event_no + 1));
  // The track ends with its latest event, because the end of the kernel is not known.
  detail::store64(at + WL_TRACK_WRITTEN_AT, (written + 1) | static_cast<unsigned long long>(WL_STATE_EXITED) << 32);
  detail::store<WL_TRACK_EXIT_CLOCK_AT>(at, clock, detail::globaltimer());
}

}  // namespace compat
}  // namespace wl
#define SM_PROFILER_EVENT_(buffer, kind, event_no, predicate) ::wl::compat::event(buffer, kind, event_no, predicate)
#else
#define SM_PROFILER_EVENT_(buffer, kind, event_no, predicate) ((void)(buffer), (void)(event_no), (void)(predicate))
#endif

static __device__ __forceinline__ void sm_profiler_event_start(uint64_t* buffer, uint32_t event_no, bool predicate) {
  SM_PROFILER_EVENT_(buffer, WL_KIND_BEGIN, event_no, predicate);
}
static __device__ __forceinline__ void sm_profiler_event_end(uint64_t* buffer, uint32_t event_no, bool predicate) {
  SM_PROFILER_EVENT_(buffer, WL_KIND_END, event_no, predicate);
}
static __device__ __forceinline__ void sm_profiler_event_instant(uint64_t* buffer, uint32_t event_no, bool predicate) {
  SM_PROFILER_EVENT_(buffer, WL_KIND_INSTANT, event_no, predicate);
}

static __device__ __forceinline__ uint32_t sm_profiler_get_thread_() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
static __device__ __forceinline__ uint32_t sm_profiler_get_lane_id() { return sm_profiler_get_thread_() & 31u; }
static __device__ __forceinline__ uint32_t sm_profiler_get_warp_id() { return sm_profiler_get_thread_() >> 5; }
static __device__ __forceinline__ uint32_t sm_profiler_get_block_idx() {
  return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}
static __device__ __forceinline__ uint32_t sm_profiler_get_smid() {
#if defined(WARPLENS_SHIM)
  return wl::detail::sm_id();
#else
  uint32_t id;
  asm("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
#endif
}
static __device__ __forceinline__ uint64_t sm_profiler_get_timestamp() {
#if defined(WARPLENS_SHIM)
  return wl::detail::globaltimer();
#else
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
#endif
}

#endif  // device code

#if !defined(__CUDACC_RTC__)

#include <map>
#include <string>
#include <vector>

#include "warplens_chrome.h"

struct sm_profiler_buffer {
  uint32_t num_blocks, num_groups, capacity, stride;
  unsigned char* device;  // null when disabled
  std::map<unsigned, std::string> names;
};
typedef struct sm_profiler_buffer* sm_profiler_buffer_t;

static inline uint64_t sm_profiler_size_(const struct sm_profiler_buffer* b) {
  return WL_BUFFER_BYTES + static_cast<uint64_t>(b->num_blocks) * b->num_groups * b->stride;
}

// Returns 0 on success, like every function here that returns an int.
static inline int sm_profiler_init_buffer(sm_profiler_buffer_t b) {
  if (!b || !b->device) return b ? 0 : -1;
  const uint32_t header[WL_BUFFER_BYTES / 4] = {
      WL_BUFFER_MAGIC, WL_LAYOUT_VERSION, 0, 0, b->capacity, b->stride, b->num_blocks * b->num_groups, b->num_groups};
  static_assert(WL_BUFFER_CAPACITY_AT == 16 && WL_BUFFER_PER_BLOCK_AT == 28, "the launch header moved");
  if (cudaMemset(b->device, 0, sm_profiler_size_(b)) != cudaSuccess) return -1;
  return cudaMemcpy(b->device, header, sizeof header, cudaMemcpyHostToDevice) == cudaSuccess ? 0 : -1;
}

static inline sm_profiler_buffer_t sm_profiler_create_buffer(uint32_t num_blocks, uint32_t num_groups,
                                                             uint32_t max_events_per_group, int enabled) {
  const uint64_t capacity = 2ull * max_events_per_group;  // a range is a begin and an end
  if (capacity > WL_MAX_SLOTS) {
    std::fprintf(stderr, "sm_profiler: %u events per group exceed the limit of %u\n", max_events_per_group,
                 WL_MAX_SLOTS / 2);
    return nullptr;
  }
  auto* b = new sm_profiler_buffer{num_blocks, num_groups, static_cast<uint32_t>(capacity), 0, nullptr, {}};
  const uint64_t line = WL_HEADER_BYTES;
  b->stride = static_cast<uint32_t>((line + capacity * WL_SLOT_BYTES + line - 1) / line * line);
  for (unsigned i = 0; i < SM_PROFILER_MAX_EVENTS; ++i) b->names[i + 1] = "event " + std::to_string(i);
  if (!enabled) return b;
  if (cudaMalloc(&b->device, sm_profiler_size_(b)) == cudaSuccess && sm_profiler_init_buffer(b) == 0) return b;
  std::fprintf(stderr, "sm_profiler: cannot allocate a buffer for %u blocks of %u groups: %s\n", num_blocks, num_groups,
               cudaGetErrorString(cudaGetLastError()));
  cudaFree(b->device);
  delete b;
  return nullptr;
}

static inline int sm_profiler_register_event(sm_profiler_buffer_t b, uint32_t event_no, const char* name) {
  if (!b || !name || event_no >= SM_PROFILER_MAX_EVENTS) return -1;
  b->names[event_no + 1] = name;
  return 0;
}

static inline uint64_t* sm_profiler_get_device_ptr(sm_profiler_buffer_t b) {
  return b ? reinterpret_cast<uint64_t*>(b->device) : nullptr;
}

static inline void sm_profiler_get_info(sm_profiler_buffer_t b, uint32_t* num_blocks, uint32_t* num_groups,
                                        uint32_t* max_events) {
  if (num_blocks) *num_blocks = b ? b->num_blocks : 0;
  if (num_groups) *num_groups = b ? b->num_groups : 0;
  if (max_events) *max_events = b ? b->capacity / 2 : 0;
}

static inline int sm_profiler_export_to_file(sm_profiler_buffer_t b, const char* filename) {
  using wl::host::read;
  if (!b || !filename) return -1;
  std::vector<unsigned char> data(b->device ? sm_profiler_size_(b) : 0);
  if (b->device && (cudaDeviceSynchronize() != cudaSuccess ||
                    cudaMemcpy(data.data(), b->device, data.size(), cudaMemcpyDeviceToHost) != cudaSuccess)) {
    std::fprintf(stderr, "sm_profiler: the records could not be copied back; did the kernel fail?\n");
    return -1;
  }
  uint64_t lost = data.empty() ? 0 : read<uint32_t>(data.data(), WL_BUFFER_REFUSED_AT);
  uint32_t most = 0;
  try {
    wl::host::Chrome chrome(filename, b->names);
    for (size_t at = WL_BUFFER_BYTES; at < data.size(); at += b->stride) chrome.origin(&data[at]);
    for (size_t at = WL_BUFFER_BYTES; at < data.size(); at += b->stride) {
      const uint32_t written = read<uint32_t>(data.data(), at + WL_TRACK_WRITTEN_AT);
      most = written > most ? written : most;
      lost += written > b->capacity ? written - b->capacity : 0;
      chrome.track(&data[at], b->capacity, false);
    }
    chrome.close();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return -1;
  }
  if (lost)
    std::fprintf(stderr, "sm_profiler: %llu records were lost; max_events_per_group=%u would keep all of a group's, and "
                 "num_blocks x num_groups must cover the launch\n", static_cast<unsigned long long>(lost), (most + 1) / 2);
  return 0;
}

static inline void sm_profiler_destroy_buffer(sm_profiler_buffer_t b) {
  if (!b) return;
  cudaFree(b->device);
  delete b;
}

#endif  // host code

#endif  // WARPLENS_SM_PROFILER_H
