// Jobs of different sizes. A block takes a fixed run of jobs, or the next one of the list whenever it is done (REPAIRED=1).
#include <warplens.cuh>

constexpr int THREADS = 128;

extern "C" __global__ void __launch_bounds__(THREADS)
    job_list(const int* sizes, const float* values, float* out, int* next, int jobs, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ int taken;
  const int each = jobs / gridDim.x;
#pragma unroll 1
  for (int turn = 0;; ++turn) {
    int job = blockIdx.x * each + turn;
    {
      WL_REGION("take job");
#if REPAIRED
      if (threadIdx.x == 0) taken = atomicAdd(next, 1);
      __syncthreads();
      job = taken;
      __syncthreads();
      if (job >= jobs) break;
#else
      if (turn == each) break;
#endif
    }
    WL_REGION("job");
    float sum = 0;
    const int size = sizes[job];
    for (int i = 0; i < size; ++i) sum = fmaf(sum, 0.5f, values[(i & 63) * THREADS + threadIdx.x]);
    out[job * THREADS + threadIdx.x] = sum;
  }
  (void)taken;
  (void)next;
}
