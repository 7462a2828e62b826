// Runs the attention kernels of examples/attention through the shim:
//   main KERNEL TYPE HEAD LENGTH HEADS CAUSAL FOLDER
// reads q, k and v of FOLDER, writes out and capture.wlcap there.
#define WARPLENS_SHIM 1
#include "cuda_shim.h"
#include "flash.cu"
#include "naive.cu"
#include "tiled.cu"
#include "broken/decode.cu"
#include "broken/rows.cu"
#include <warplens_host.h>

#include <fstream>
#include <iostream>
#include <string>

template <class T>
std::vector<T> read(const std::string& path, std::size_t count) {
  std::vector<T> data(count);
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(data.data()), static_cast<std::streamsize>(count * sizeof(T)));
  return data;
}

template <class T, int Head>
int run(const std::string& name, int length, int heads, int causal, const std::string& folder) {
  const bool one_query = name == "decode" || name == "uncoalesced";
  const std::size_t all = static_cast<std::size_t>(heads) * length * Head, asked = one_query ? heads * Head : all;
  const auto q = read<T>(folder + "/q", asked), k = read<T>(folder + "/k", all), v = read<T>(folder + "/v", all);
  std::vector<T> out(asked);
  std::memset(out.data(), 0xff, out.size() * sizeof(T));  // NaN in all three types
  std::vector<float> scores(static_cast<std::size_t>(heads) * length * length);
  const float scale = 1 / std::sqrt(static_cast<float>(Head));
  unsigned turn = 0;
  wl::Capture capture;
  const auto go = [&](dim3 grid, dim3 block, auto kernel) {
    const wl::Buffer prof = capture.launch(name, grid, block, {256});
    shim::launch(grid, block, [&] { kernel(prof); });
  };
  const unsigned h = heads, tiles64 = (length + 63) / 64, tiles32 = (length + 31) / 32;
  const T *a = q.data(), *b = k.data(), *c = v.data();
  if (name == "naive") go(dim3(length, h), Head, [&](wl::Buffer p) { naive_attention<T, Head>(a, b, c, out.data(), scores.data(), length, scale, causal, p); });
  if (name == "tiled") go(dim3(tiles64, h), 256, [&](wl::Buffer p) { tiling::tiled_attention<T, Head>(a, b, c, out.data(), length, scale, causal, p); });
  if constexpr (!std::is_same_v<T, float>)
    if (name == "flash") go(dim3(tiles64, h), 128, [&](wl::Buffer p) { flashing::flash_attention<T, Head>(a, b, c, out.data(), length, scale, causal, p); });
  if constexpr (std::is_same_v<T, half_t>) {
    if (name == "decode") go(h, 256, [&](wl::Buffer p) { broken::decode_attention<T, Head, true>(a, b, c, out.data(), length, scale, p); });
    if (name == "uncoalesced") go(h, 256, [&](wl::Buffer p) { broken::decode_attention<T, Head, false>(a, b, c, out.data(), length, scale, p); });
    if (name == "rows") go(dim3(tiles32, h), 32, [&](wl::Buffer p) { broken::rows_attention<T, Head, 32, false, true>(a, b, c, out.data(), &turn, length, scale, p); });
    if (name == "low_occupancy") go(dim3(tiles32, h), 32, [&](wl::Buffer p) { broken::rows_attention<T, Head, 256, false, true>(a, b, c, out.data(), &turn, length, scale, p); });
    if (name == "serialised") go(dim3(tiles32, h), 32, [&](wl::Buffer p) { broken::rows_attention<T, Head, 32, true, true>(a, b, c, out.data(), &turn, length, scale, p); });
    if (name == "overflowing") go(dim3(tiles32, h), 32, [&](wl::Buffer p) { broken::rows_attention<T, Head, 32, false, false>(a, b, c, out.data(), &turn, length, scale, p); });
  }
  capture.write(folder + "/capture.wlcap");
  std::ofstream(folder + "/out", std::ios::binary).write(reinterpret_cast<const char*>(out.data()), static_cast<std::streamsize>(out.size() * sizeof(T)));
  shim::check_guards();
  return shim::guards_intact ? 0 : 3;
}

int main(int argc, char** argv) {
  if (argc != 8) return 9;
  const std::string name = argv[1], type = argv[2], folder = argv[7];
  const int head = std::stoi(argv[3]), length = std::stoi(argv[4]), heads = std::stoi(argv[5]), causal = std::stoi(argv[6]);
  const auto by_type = [&](auto size) {
    constexpr int Head = decltype(size)::value;
    if (type == "fp32") return run<float, Head>(name, length, heads, causal, folder);
    if (type == "fp16") return run<half_t, Head>(name, length, heads, causal, folder);
    return run<bfloat_t, Head>(name, length, heads, causal, folder);
  };
  return head == 64 ? by_type(std::integral_constant<int, 64>()) : by_type(std::integral_constant<int, 128>());
}
