// Just enough of CUDA for warplens.cuh, warplens_host.h and test kernels to run as C++20 threads.
#pragma once
#include <barrier>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __constant__
#define __host__
#define __shared__ static
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace shim {

// A ballot of all threads of a warp, each of which must call it once.
class Ballot {
 public:
  explicit Ballot(unsigned lanes) : lanes_(lanes) {}
  unsigned vote(unsigned lane, bool condition) {
    std::unique_lock lock(mutex_);
    const unsigned round = round_;
    if (condition) votes_ |= 1u << lane;
    if (++arrived_ == lanes_) {
      result_ = votes_;
      votes_ = arrived_ = 0;
      ++round_;
      changed_.notify_all();
      return result_;
    }
    changed_.wait(lock, [&] { return round_ != round; });
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned lanes_, arrived_ = 0, votes_ = 0, result_ = 0, round_ = 0;
};

inline thread_local unsigned block_number, lane;
inline thread_local Ballot* warp_ballot;
inline thread_local std::barrier<>* block_barrier;

inline unsigned ballot(bool condition) { return warp_ballot->vote(lane, condition); }

// kernel<<<grid, block>>>(...): blocks one after another, the threads of a block at once.
inline void launch(dim3 grid, dim3 block, const std::function<void()>& kernel) {
  const unsigned threads = block.x * block.y * block.z;
  for (unsigned b = 0; b < grid.x * grid.y * grid.z; ++b) {
    std::barrier<> sync(threads);
    std::vector<std::unique_ptr<Ballot>> warps;
    for (unsigned t = 0; t < threads; t += 32) warps.push_back(std::make_unique<Ballot>(threads - t < 32 ? threads - t : 32));
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; ++t)
      running.emplace_back([&, b, t] {
        gridDim = grid;
        blockDim = block;
        blockIdx = dim3(b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y));
        threadIdx = dim3(t % block.x, t / block.x % block.y, t / (block.x * block.y));
        block_number = b;
        lane = t & 31;
        warp_ballot = warps[t / 32].get();
        block_barrier = &sync;
        kernel();
        sync.arrive_and_drop();
      });
    for (std::thread& thread : running) thread.join();
  }
}

}  // namespace shim

inline unsigned atomicAdd(unsigned* at, unsigned value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
inline void __syncthreads() { shim::block_barrier->arrive_and_wait(); }
