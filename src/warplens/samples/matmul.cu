// The demo's kernel: a tiled matrix product with inert marks, which the weaver expands.
// Compile it to matmul.ptx with: nvcc -ptx -arch=compute_80 -lineinfo matmul.cu
#define MARK(text) asm volatile("// @warplens " text ::: "memory")

constexpr int TILE = 16;

// The weaver expects the buffer's address in the last parameter.
extern "C" __global__ void __launch_bounds__(TILE * TILE)
    matmul(const float *a, const float *b, float *c, int n, unsigned long long profile) {
  __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  MARK("B tiles");
  for (int k = 0; k < n; k += TILE) {
    MARK("B load");
    tile_a[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
    MARK("E load");
    MARK("B wait");
    __syncthreads();
    MARK("E wait");
    MARK("B multiply");
#pragma unroll
    for (int i = 0; i < TILE; ++i) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
    MARK("E multiply");
    asm volatile("// @warplens V k s32 %0" ::"r"(k) : "memory");
    __syncthreads();
  }
  MARK("E tiles");
  MARK("B store");
  c[row * n + column] = sum;
  MARK("E store");
}
