// One producer warp group and two consumer groups that trade registers (setmaxnreg) and tiles through shared memory.
#include <warplens.cuh>

__device__ __forceinline__ void arrive(int barrier) { asm volatile("bar.arrive %0, 384;" ::"r"(barrier) : "memory"); }
__device__ __forceinline__ void wait(int barrier) { asm volatile("bar.sync %0, 384;" ::"r"(barrier) : "memory"); WL_SETTLE(); }

extern "C" __global__ void __launch_bounds__(384, 1) specialised(int* out, int rounds, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int tile[256];
  const int thread = threadIdx.x;
  if (thread < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    for (int i = 0; i < rounds; ++i) {
      { WL_REGION("acquire"); wait(2); }
      { WL_REGION("produce"); tile[thread] = i * 3 + thread; tile[thread + 128] = i * 5 + thread; }
      { WL_REGION("publish"); arrive(1); }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int sum = 0;
    arrive(2);
    for (int i = 0; i < rounds; ++i) {
      { WL_REGION("wait"); wait(1); }
      { WL_REGION("consume"); sum += tile[thread - 128]; }
      if (i + 1 < rounds) arrive(2);
    }
    out[blockIdx.x * 256 + thread - 128] = sum;
  }
}

// Exits in the middle of a region without returning through the end of the kernel.
extern "C" __global__ void leaves(int* out, wl::Buffer prof) {
  wl::Kernel k(prof);
  WL_INSTANT("first");
  WL_BEGIN("never ended");
  out[threadIdx.x] = 1;
  if (threadIdx.x >= 32) asm volatile("exit;");
  WL_END("never ended");
}
