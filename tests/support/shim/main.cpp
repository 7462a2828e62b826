// Runs one kernel of kernels.cu through the shim and the unmodified host half: main KERNEL RECORDS OUT [EXTRA].
#define WARPLENS_SHIM 1
#include "cuda_shim.h"
#include "kernels.cu"
#include <warplens_host.h>

#include <iostream>
#include <string>

int main(int argc, char** argv) {
  const std::string name = argv[1], out = argv[3];
  wl::LaunchOptions options;
  options.records = static_cast<unsigned>(std::stoul(argv[2]));
  options.every_thread = name == "by_thread";
  const int steps = argc > 4 ? std::stoi(argv[4]) : 3;
  const bool deep = name == "nested";
  const dim3 grid(2, deep ? 2 : 1), block(deep ? 16 : name == "diverge" ? 40 : 64, deep ? 2 : 1, deep ? 2 : 1);
  std::vector<int> result(4096);
  wl::Capture capture;
  wl::Buffer prof = name == "null" ? wl::Buffer{0} : capture.launch(name, grid, block, options);
  const auto run = [&](auto kernel) { shim::launch(grid, block, kernel); };
  if (name == "nested" || name == "null") run([&] { nested(result.data(), steps, prof); });
  if (name == "early") run([&] { early(result.data(), prof); });
  if (name == "diverge") run([&] { diverge(result.data(), prof); });
  if (name == "by_block") run([&] { by_block(prof); });
  if (name == "by_warp1") run([&] { by_warp1(prof); });
  if (name == "by_lane5") run([&] { by_lane5(prof); });
  if (name == "by_thread") run([&] { by_thread(prof); });
  if (name == "by_predicate") run([&] { by_predicate(prof); });
  if (name == "linked") run([&] { linked(result.data(), prof); });
  if (name == "async_copy") run([&] { async_copy(prof); });
  if (name != "null") {
    capture.write(out);
    capture.write_chrome(out + ".json");
    std::cout << "lost " << capture.lost() << "\n";
  }
  shim::check_guards();
  return shim::guards_intact ? 0 : 3;
}
