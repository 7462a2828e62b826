// The recording part of warplens.cuh, which includes it when compiling device code.
#ifndef WARPLENS_DEVICE_H
#define WARPLENS_DEVICE_H

#if defined(WARPLENS_SHIM)
#include "warplens_shim.h"  // the same state and stores in plain C++, for tests on a machine without a GPU
#else
#include "warplens_ptx.h"
#endif

namespace wl {

__device__ __forceinline__ When when(bool condition) { return When{condition}; }

namespace detail {

struct Place {
  unsigned block, warp, lane, thread;
};

__device__ __forceinline__ Place place() {
  Place p;
  p.block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  p.thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  p.warp = p.thread >> 5;
  p.lane = p.thread & 31u;
  return p;
}

__device__ __forceinline__ bool leads(const Place& p, PerWarp) { return p.lane == 0; }
__device__ __forceinline__ bool leads(const Place& p, PerBlock) { return p.thread == 0; }
__device__ __forceinline__ bool leads(const Place& p, OneWarp w) { return p.lane == 0 && p.warp == w.index; }
__device__ __forceinline__ bool leads(const Place& p, OneLane l) { return p.lane == l.index; }
__device__ __forceinline__ bool leads(const Place&, EveryThread) { return true; }
__device__ __forceinline__ bool leads(const Place& p, When w) {
  const unsigned votes = vote(w.condition);
  return (votes & (0u - votes)) == 1u << p.lane;
}

// The lane that writes the track's header: the leader, or the first lane of a warp that has none.
template <class Leader>
__device__ __forceinline__ bool scribes(const Place& p, bool lead, Leader) {
  const unsigned votes = vote(lead);
  return votes ? lead : p.lane == first_lane();
}
__device__ __forceinline__ bool scribes(const Place&, bool lead, PerWarp) { return lead; }
__device__ __forceinline__ bool scribes(const Place&, bool lead, EveryThread) { return lead; }

// The warp, and in the upper half the lane that writes the track's header.
__device__ __forceinline__ unsigned scribe_of(const Place& p, PerWarp) { return p.warp; }
template <class Leader>
__device__ __forceinline__ unsigned scribe_of(const Place& p, Leader) { return p.warp | p.lane << 16; }

__device__ __forceinline__ unsigned slot_in_block(const Place& p, EveryThread) { return p.thread; }
template <class Leader>
__device__ __forceinline__ unsigned slot_in_block(const Place& p, Leader) { return p.warp; }

// At: the offset of the track's header from `base`. warp: its index, with the recording lane in the upper half.
template <unsigned At = 0>
__device__ __forceinline__ void write_start(unsigned long long base, unsigned block, unsigned warp, bool wanted = true) {
  store<At + WL_TRACK_MAGIC_AT>(base, WL_TRACK_MAGIC, block, warp, sm_id(), wanted);
  const unsigned long long ns = globaltimer(), clock = clock64_now();
  store<At + WL_TRACK_START_CLOCK_AT>(base, clock, ns, wanted);
}

__device__ __forceinline__ void write_exit(unsigned long long track, unsigned written) {
  const unsigned long long ns = globaltimer(), clock = clock64_now();
  store64(track + WL_TRACK_WRITTEN_AT, written | static_cast<unsigned long long>(WL_STATE_EXITED) << 32);
  store<WL_TRACK_EXIT_CLOCK_AT>(track, clock, ns);
}

// The 8 bytes of a value and their type.
struct Payload {
  unsigned long long bits;
  unsigned type;
};
__device__ __forceinline__ Payload payload(long long v) { return {static_cast<unsigned long long>(v), WL_VALUE_I64}; }
__device__ __forceinline__ Payload payload(unsigned long long v) { return {v, WL_VALUE_U64}; }
__device__ __forceinline__ Payload payload(double v) { return {double_bits(v), WL_VALUE_F64}; }
__device__ __forceinline__ Payload payload(float v) { return payload(static_cast<double>(v)); }
__device__ __forceinline__ Payload payload(int v) { return payload(static_cast<long long>(v)); }
__device__ __forceinline__ Payload payload(long v) { return payload(static_cast<long long>(v)); }
__device__ __forceinline__ Payload payload(unsigned v) { return payload(static_cast<unsigned long long>(v)); }
__device__ __forceinline__ Payload payload(unsigned long v) { return payload(static_cast<unsigned long long>(v)); }

__device__ __forceinline__ void anchor() { record_payload(word0(WL_KIND_ANCHOR, 0), globaltimer()); }

template <unsigned Word, class Index>
__device__ __forceinline__ void iteration(Index index) {
  const Payload p = payload(index);
  record_payload(Word | p.type << WL_TAG_SHIFT, p.bits);
  if ((p.bits & 63u) == 0) anchor();
}

template <unsigned Word, class Type>
__device__ __forceinline__ void value(Type v) {
  const Payload p = payload(number(v));
  record_payload(Word | p.type << WL_TAG_SHIFT, p.bits);
}

template <unsigned Word, unsigned Operation>
__device__ __forceinline__ void barrier(unsigned which, unsigned parity) {
  const unsigned high = Operation | (parity & 1u) << (WL_BARRIER_PARITY_SHIFT - WL_BARRIER_OPERATION_SHIFT);
  const unsigned long long bits = static_cast<unsigned long long>(high) << WL_BARRIER_OPERATION_SHIFT | which;
  record_payload(Word | WL_VALUE_BARRIER << WL_TAG_SHIFT, bits);
}

template <unsigned Word>
__device__ __forceinline__ void async(unsigned tag) { record_word(Word | tag << WL_TAG_SHIFT); }

}  // namespace detail

// Records a kernel: construct it on the kernel's first line. Its destructor writes the end on every return.
template <class Leader = PerWarp>
struct Kernel {
  __device__ __forceinline__ explicit Kernel(Buffer buffer, Leader leader = Leader()) : buffer_(buffer), leader_(leader) {
    const detail::Place p = detail::place();
    const bool lead = detail::leads(p, leader);
    scribe_ = detail::scribes(p, lead, leader) && buffer.address;
    // All lanes execute this with predicated stores; a branch would keep the registers it sets live from before it.
    const detail::Sizes sizes = detail::load_sizes(buffer, scribe_);
    const unsigned slot = detail::slot_in_block(p, leader), track = p.block * sizes.per_block + slot;
    const bool in_reach = static_cast<unsigned long long>(track + 1) * sizes.stride >> 32 == 0;  // as high_of assumes
    const bool fits = slot < sizes.per_block && track < sizes.tracks && in_reach;
    // For track 0, and if the track does not fit, this is the launch header, so that its fields can be stored too.
    const unsigned long long at = buffer.address + static_cast<unsigned long long>(fits ? track : 0) * sizes.stride;
    detail::store<WL_BUFFER_REFUSED_AT>(at, 1u, scribe_ && !fits);
    scribe_ = scribe_ && fits;
    detail::store<WL_BUFFER_MODE_AT>(at, WARPLENS_RING ? WL_MODE_RING : WL_MODE_STOP, scribe_ && track == 0);
    detail::write_start<WL_BUFFER_BYTES>(at, p.block, detail::scribe_of(p, leader), scribe_);
    const unsigned low = static_cast<unsigned>(at) + WL_BUFFER_BYTES + WL_HEADER_BYTES;
    detail::open(buffer, low, sizes.capacity, lead && scribe_);
  }

  __device__ __forceinline__ ~Kernel() {
    if (!scribing(leader_)) return;
    const detail::Cursor cursor = detail::cursor(buffer_);
    detail::write_exit(cursor.slots - WL_HEADER_BYTES, detail::leading() ? cursor.written : 0);
    if (cursor.slots == buffer_.address + WL_BUFFER_BYTES + WL_HEADER_BYTES) detail::send_names(buffer_);
  }

  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

 private:
  // Where the leader also writes the header, the recording predicate serves both and saves a register.
  __device__ __forceinline__ bool scribing(PerWarp) const { return detail::leading(); }
  __device__ __forceinline__ bool scribing(EveryThread) const { return detail::leading(); }
  template <class Other>
  __device__ __forceinline__ bool scribing(Other) const { return scribe_; }

  Buffer buffer_;
  Leader leader_;
  bool scribe_;
};

// Marks in a function that is not inlined:
//
//   __noinline__ __device__ void helper(wl::Link& link) { wl::Callee here(link); WL_REGION("helper"); ... }
//   ...
//   { wl::Link link; helper(link); }      // in the kernel; the records of both are one track
struct Link {
  __device__ __forceinline__ Link() : state(detail::save()) {}
  __device__ __forceinline__ ~Link() { detail::restore(state); }
  detail::State state;
};

struct Callee {
  __device__ __forceinline__ explicit Callee(Link& link) : link_(link) {
    detail::declare();
    detail::restore(link.state);
  }
  __device__ __forceinline__ ~Callee() { link_.state = detail::save(); }

 private:
  Link& link_;
};

}  // namespace wl

#include "warplens_marks.h"

#endif  // WARPLENS_DEVICE_H
