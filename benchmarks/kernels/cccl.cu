// Kernels of CUB and Thrust, whose modules hold the variables of libcu++ (cuda::std::ignore, tags of algorithms).
#include <cub/cub.cuh>
#include <cuda/std/tuple>
#include <thrust/device_vector.h>
#include <thrust/for_each.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

struct Twice {
  __device__ float operator()(float x) const { return 2 * x; }
};
struct Odd {
  __device__ bool operator()(int x) const { return x & 1; }
};

template <typename T>
void algorithms(thrust::device_vector<T> &data, thrust::device_vector<T> &other) {
  thrust::sort(data.begin(), data.end());
  thrust::inclusive_scan(data.begin(), data.end(), other.begin());
  thrust::reduce(data.begin(), data.end());
  thrust::transform(data.begin(), data.end(), other.begin(), Twice{});
  thrust::sort_by_key(data.begin(), data.end(), other.begin());
  thrust::reduce_by_key(data.begin(), data.end(), data.begin(), other.begin(), other.begin());
}

template <typename T>
void device_wide(void *space, size_t bytes, T *in, T *out, int *counts, int size) {
  cub::DeviceSelect::If(space, bytes, in, out, counts, size, Odd{});
  cub::DeviceHistogram::HistogramEven(space, bytes, in, counts, 16, T(0), T(100), size);
  cub::DeviceRunLengthEncode::Encode(space, bytes, in, out, counts, counts, size);
  cub::DeviceSegmentedReduce::Sum(space, bytes, in, out, size, counts, counts);
  cub::DeviceMergeSort::SortKeys(space, bytes, in, size, cuda::std::less<T>{});
}

template <int Block>
__global__ void block_sum(const float *in, float *out) {
  using Reduce = cub::BlockReduce<float, Block>;
  __shared__ typename Reduce::TempStorage storage;
  float sum = Reduce(storage).Sum(in[blockIdx.x * Block + threadIdx.x]);
  cuda::std::ignore = sum;
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__device__ float weights[64];
__device__ unsigned calls;

__global__ void weighted(const float *in, float *out) {  // reads a variable that the host sets
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = in[at] * weights[at % 64];
}

__global__ void counted(float *out) {  // writes a variable: must be refused
  out[threadIdx.x] = atomicAdd(&calls, 1u);
}

void host(float *in, float *out, int *counts) {
  thrust::device_vector<float> floats(100), more(100);
  thrust::device_vector<int> numbers(100), others(100);
  algorithms(floats, more);
  algorithms(numbers, others);
  device_wide(nullptr, 0, counts, counts, counts, 100);
  device_wide(nullptr, 0, in, out, counts, 100);
  block_sum<128><<<1, 128>>>(in, out);
  block_sum<256><<<1, 256>>>(in, out);
  weighted<<<1, 64>>>(in, out);
  counted<<<1, 64>>>(out);
}
