// A shared-memory matrix product with marks. `python examples/cuda/matmul.py` runs it from Python. To compile it as a
// standalone program:
//
//   warplens nvcc -std=c++17 -arch=native -DSTANDALONE examples/cuda/matmul.cu -o matmul
//   ./matmul && warplens stats matmul.wlcap
#include <warplens.cuh>

#define TILE 32

extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n, wl::Buffer prof) {
  wl::Kernel k(prof);
  __shared__ float sa[TILE][TILE], sb[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n; t += TILE) {
    {
      WL_REGION("load");
      sa[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
      sb[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
    }
    {
      WL_REGION("wait");
      __syncthreads();
    }
    {
      WL_REGION("multiply");
      for (int i = 0; i < TILE; ++i) sum += sa[threadIdx.y][i] * sb[i][threadIdx.x];
    }
    __syncthreads();
  }
  WL_REGION("store");
  c[row * n + column] = sum;
}

#ifdef STANDALONE
#include <warplens_host.h>

#include <cstdio>

int main() try {
  const int n = 512;
  float* memory = nullptr;
  wl::host::check(cudaMalloc(&memory, 3 * n * n * sizeof(float)), "allocating the matrices");
  wl::host::check(cudaMemset(memory, 0, 3 * n * n * sizeof(float)), "clearing the matrices");
  wl::Capture capture;
  const dim3 grid(n / TILE, n / TILE), block(TILE, TILE);
  matmul<<<grid, block>>>(memory, memory + n * n, memory + 2 * n * n, n, capture.launch("matmul", grid, block, {1024}));
  capture.write("matmul.wlcap");
  capture.write_chrome("matmul.json");
  std::printf("wrote matmul.wlcap and matmul.json, %llu records lost\n", capture.lost());
  cudaFree(memory);
} catch (const std::exception& error) {  // errors of warplens and, through wl::host::check, of CUDA
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
#endif
