// A C++ program without Python: KERNEL RECORDS[,RECORDS...] OUT. Built several times by the tests: for stop and for ring,
// and with -DONE_LEADER by `warplens nvcc`, which weaves no source with another leader than lane 0. `partial` is a block
// of a warp and a quarter.
#include <warplens_host.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "../support/shim/kernels.cu"

int main(int argc, char** argv) {
  if (argc < 4) return 9;
  const std::string name = argv[1];
  try {
    int* out = nullptr;
    wl::host::check(cudaMalloc(&out, 1 << 16), "out");
    wl::host::check(cudaMemset(out, 0, 1 << 16), "out");
    wl::Capture capture;
    wl::LaunchOptions options;
    const auto run = [&](const char* kernel, dim3 grid, dim3 block, auto launch) {
      if (name != kernel && (name != "all" || std::string(kernel) == "partial")) return;
      options.every_thread = std::string(kernel) == "by_thread";
      launch(grid, block, capture.launch(kernel, grid, block, options));
      wl::host::check(cudaGetLastError(), kernel);
    };
    for (const char* at = argv[2]; at; at = std::strchr(at, ',')) {
      options.records = static_cast<unsigned>(std::atoi(at += *at == ','));
      run("nested", dim3(2, 2), dim3(16, 2, 2), [&](dim3 g, dim3 b, wl::Buffer p) { nested<<<g, b>>>(out, 3, p); });
      run("partial", dim3(2), dim3(40), [&](dim3 g, dim3 b, wl::Buffer p) { nested<<<g, b>>>(out, 3, p); });
      run("early", dim3(2), dim3(64), [&](dim3 g, dim3 b, wl::Buffer p) { early<<<g, b>>>(out, p); });
      run("diverge", dim3(2), dim3(40), [&](dim3 g, dim3 b, wl::Buffer p) { diverge<<<g, b>>>(out, p); });
#ifndef ONE_LEADER
      run("by_block", dim3(2), dim3(64), [&](dim3 g, dim3 b, wl::Buffer p) { by_block<<<g, b>>>(p); });
      run("by_warp1", dim3(2), dim3(64), [&](dim3 g, dim3 b, wl::Buffer p) { by_warp1<<<g, b>>>(p); });
      run("by_lane5", dim3(2), dim3(64), [&](dim3 g, dim3 b, wl::Buffer p) { by_lane5<<<g, b>>>(p); });
      run("by_thread", dim3(2), dim3(64), [&](dim3 g, dim3 b, wl::Buffer p) { by_thread<<<g, b>>>(p); });
      run("by_predicate", dim3(2), dim3(64), [&](dim3 g, dim3 b, wl::Buffer p) { by_predicate<<<g, b>>>(p); });
#endif
      run("linked", dim3(2), dim3(64), [&](dim3 g, dim3 b, wl::Buffer p) { linked<<<g, b>>>(out, p); });
      run("async_copy", dim3(2), dim3(64), [&](dim3 g, dim3 b, wl::Buffer p) { async_copy<<<g, b>>>(p); });
    }
    capture.write(argv[3]);
    capture.write_chrome(std::string(argv[3]) + ".json");
    std::printf("lost %llu\n", capture.lost());
    cudaFree(out);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
