// warplens_host.h: the host side, for C++ programs without Python. Header-only; needs only the CUDA runtime.
//
//   wl::Capture capture;
//   wl::Buffer prof = capture.launch("gemm", grid, block, {/*records=*/4096});
//   gemm<<<grid, block>>>(..., prof);
//   capture.write("gemm.wlcap");            // for `warplens stats gemm.wlcap`, or wl.load in Python
//   capture.write_chrome("gemm.json");      // for chrome://tracing and ui.perfetto.dev
//
// Errors are thrown as std::runtime_error. A launch costs one asynchronous memset, and nothing waits for the GPU until
// write(). With -DWARPLENS=0, or WARPLENS=0 in the environment, nothing is allocated, recorded or written.
#ifndef WARPLENS_HOST_H
#define WARPLENS_HOST_H

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "warplens.cuh"
#include "warplens_chrome.h"

#ifndef WL_CLOCK_NAME_
#define WL_CLOCK_NAME_ "gpu"
#endif

namespace wl {

struct LaunchOptions {
  unsigned records = 4096;    // slots per warp; a value or an anchor takes two
  bool every_thread = false;  // set for kernels with wl::every_thread: one track per thread
};

namespace host {

inline void check(cudaError_t status, const char* doing) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string("warplens: ") + doing + ": " + cudaGetErrorString(status));
}

inline bool off() {
  const char* said = std::getenv("WARPLENS");
  return !WARPLENS || (said && std::strcmp(said, "0") == 0);
}

inline std::uint32_t crc32(const void* data, std::size_t size) {
  static const std::vector<std::uint32_t> table = [] {
    std::vector<std::uint32_t> t(256);
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0u);
      t[i] = c;
    }
    return t;
  }();
  std::uint32_t c = 0xffffffffu;
  const auto* p = static_cast<const unsigned char*>(data);
  while (size--) c = table[(c ^ *p++) & 255] ^ c >> 8;
  return ~c;
}

inline std::string triple(dim3 d) {
  return "[" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + "]";
}

// Region names that marks left in a module's data; see warplens/record/name_table.py.
inline void scan_names(const std::vector<unsigned char>& data, std::map<unsigned, std::string>& names) {
  const unsigned long long magic = WL_NAME_MAGIC;
  for (std::size_t at = 0; at + WL_NAME_BYTES <= data.size(); at += 8) {
    if (std::memcmp(&data[at], &magic, 8) != 0) continue;
    const unsigned id = read<std::uint32_t>(data.data(), at + 8);
    const std::size_t size = read<std::uint16_t>(data.data(), at + 16);
    if (size == 0 || at + WL_NAME_BYTES + size > data.size()) continue;
    const std::string name = std::string(reinterpret_cast<const char*>(&data[at + WL_NAME_BYTES]), size - 1).c_str();
    if (region_id(name.c_str()) != id) continue;
    const auto found = names.emplace(id, name).first;
    if (found->second != name)
      throw std::runtime_error("warplens: regions \"" + found->second + "\" and \"" + name +
                               "\" have the same id; rename one of them");
  }
}

}  // namespace host

// The launches of one run. Construct it once, get a buffer for each launch, and write it at the end.
class Capture {
 public:
  Capture() = default;
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    for (Launch& l : launches_) cudaFree(l.allocation);
  }

  // Returns a zeroed buffer for one launch of `kernel`, ready on `stream`.
  Buffer launch(const std::string& kernel, dim3 grid, dim3 block, LaunchOptions options = {}, cudaStream_t stream = nullptr) {
    if (host::off()) return Buffer{0};
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z)
      throw std::runtime_error("warplens: " + kernel + ": grid " + host::triple(grid) + ", block " + host::triple(block) +
                               ": each size must be at least 1");
    Launch l{};
    l.kernel = kernel;
    l.grid = grid;
    l.block = block;
    const unsigned long long threads = 1ull * block.x * block.y * block.z;
    const unsigned long long in_block = options.every_thread ? threads : (threads + 31) / 32;
    const unsigned long long tracks = in_block * grid.x * grid.y * grid.z;
    l.capacity = options.records;
    const unsigned long long line = WL_HEADER_BYTES;
    // Woven marks need more than direct ones.
    const unsigned long long spare = options.every_thread ? WL_DIRECT_SPARE : WL_SPARE;
    const unsigned long long stride = (line + (l.capacity + spare) * WL_SLOT_BYTES + line - 1) / line * line;
    l.size = WL_BUFFER_BYTES + tracks * stride;
    if (tracks == 0 || l.capacity > WL_MAX_SLOTS || l.size + stride > 1ull << 32)
      throw std::runtime_error("warplens: " + kernel + ": " + std::to_string(tracks) + " tracks of " +
                               std::to_string(l.capacity) + " records need more than 4 GiB; request fewer records");
    l.stride = static_cast<unsigned>(stride);
    host::check(cudaMalloc(&l.allocation, l.size + stride + WL_NAMES_BYTES), "allocating the buffer");
    l.address = place(reinterpret_cast<unsigned long long>(l.allocation), tracks, stride);
    l.names = (l.address + l.size + WL_HEADER_BYTES - 1) / WL_HEADER_BYTES * WL_HEADER_BYTES;
    l.header.resize(WL_BUFFER_BYTES);
    put(l.header, WL_BUFFER_MAGIC_AT, WL_BUFFER_MAGIC);
    put(l.header, WL_BUFFER_VERSION_AT, WL_LAYOUT_VERSION);
    put(l.header, WL_BUFFER_CAPACITY_AT, l.capacity);
    put(l.header, WL_BUFFER_STRIDE_AT, l.stride);
    put(l.header, WL_BUFFER_TRACKS_AT, static_cast<unsigned>(tracks));
    put(l.header, WL_BUFFER_PER_BLOCK_AT, static_cast<unsigned>(in_block));
    put(l.header, WL_BUFFER_NAMES_AT, l.names);
    void* at = reinterpret_cast<void*>(l.address);
    host::check(cudaMemsetAsync(at, 0, l.size, stream), "clearing the buffer");
    host::check(cudaMemcpyAsync(at, l.header.data(), l.header.size(), cudaMemcpyHostToDevice, stream), "starting");
    launches_.push_back(std::move(l));
    return Buffer{launches_.back().address};
  }

  // Names a region id that no mark of this program defines.
  void name(unsigned id, const std::string& text) { names_[id] = text; }

  // Waits for the GPU and copies the records of every launch to the host; write() calls it when needed.
  void collect() { complain(bring_home()); }

  // The number of slots that did not fit, over all launches; 0 if the capture is complete.
  unsigned long long lost() {
    collect();
    unsigned long long total = 0;
    for (const Launch& l : launches_)
      for (std::size_t at = 0; at < l.raw.size(); at += l.stride) {
        const auto written = host::read<std::uint32_t>(l.raw.data(), at + WL_TRACK_WRITTEN_AT);
        total += written > l.capacity ? written - l.capacity : 0;
      }
    return total;
  }

  // Writes the capture. If a launch could not record, throws after the records of the others are written.
  void write(const std::string& path) {
    if (host::off()) return;
    const std::string problem = bring_home();
    const std::string text = document();
    host::File out(path);
    const std::uint32_t fixed[4] = {1, static_cast<std::uint32_t>(text.size()), host::crc32(text.data(), text.size()), 0};
    out.put("WLCAP\0\r\n", 8);
    out.put(fixed, sizeof fixed);
    out.put(text.data(), text.size());
    out.pad(24 + text.size());
    for (const Launch& l : launches_) {
      out.put(l.raw.data(), l.raw.size());
      out.pad(l.raw.size());
    }
    out.close();
    complain(problem);
  }

  // Writes Chrome JSON with one process per SM and one thread per warp. Each track is placed by the line through its
  // own start and exit; `warplens export` places all tracks of an SM together.
  void write_chrome(const std::string& path) {
    if (host::off()) return;
    const std::string problem = bring_home();
    host::Chrome chrome(path, names_);
    for (const Launch& l : launches_)
      for (std::size_t at = 0; at < l.raw.size(); at += l.stride) chrome.origin(&l.raw[at]);
    for (const Launch& l : launches_)
      for (std::size_t at = 0; at < l.raw.size(); at += l.stride) chrome.track(&l.raw[at], l.capacity, l.ring);
    chrome.close();
    complain(problem);
  }

 private:
  struct Launch {
    std::string kernel;
    dim3 grid, block;
    unsigned capacity, stride;
    bool ring;
    void* allocation;
    unsigned long long address, size, names;
    std::vector<unsigned char> header, raw;
  };

  template <class Type>
  static void put(std::vector<unsigned char>& to, std::size_t at, Type value) {
    std::memcpy(&to[at], &value, sizeof value);
  }

  // Copies the launches that are not on the host yet. Returns why one of them could not record, or nothing.
  std::string bring_home() {
    std::string problem;
    if (!launches_.empty()) host::check(cudaDeviceSynchronize(), "waiting for the kernels");
    for (Launch& l : launches_) {
      if (!l.raw.empty()) continue;
      std::vector<unsigned char> all(l.size);
      host::check(cudaMemcpy(all.data(), reinterpret_cast<void*>(l.address), l.size, cudaMemcpyDeviceToHost), "copying");
      l.header.assign(all.begin(), all.begin() + WL_BUFFER_BYTES);
      l.raw.assign(all.begin() + WL_BUFFER_BYTES, all.end());
      l.ring = host::read<std::uint16_t>(l.header.data(), WL_BUFFER_MODE_AT) == WL_MODE_RING;
      while (l.ring && (l.capacity & (l.capacity - 1))) l.capacity &= l.capacity - 1;  // the ring the device used
      std::vector<unsigned char> names(host::read<std::uint32_t>(l.header.data(), WL_BUFFER_NAMES_SIZE_AT));
      const void* from = reinterpret_cast<const void*>(l.names);
      host::check(cudaMemcpy(names.data(), from, names.size(), cudaMemcpyDeviceToHost), "copying the names");
      host::scan_names(names, names_);
      if (problem.empty()) problem = why_not(l, host::read<std::uint32_t>(l.header.data(), WL_BUFFER_REFUSED_AT));
    }
    return problem;
  }

  static void complain(const std::string& problem) {
    if (!problem.empty()) throw std::runtime_error("warplens: " + problem);
  }

  // Why warps of a launch could not record; see REFUSALS in warplens/record/launch_buffer.py.
  static std::string why_not(const Launch& l, std::uint32_t refused) {
    if (refused == WL_REFUSED_BLOCK)
      return l.kernel + ": its marks are woven for blocks of whole warps, but block " + host::triple(l.block) +
             " has a partial warp; compile it with `warplens nvcc --any-block`";
    if (refused == WL_REFUSED_ROOM)
      return l.kernel + ": its buffer is too small for woven marks: set every_thread only for kernels with "
                        "wl::every_thread, and compile all files with the same warplens";
    if (refused)
      return l.kernel + ": it was launched with more warps than its buffer has tracks: pass the grid and block of the "
                        "launch to Capture::launch, and set every_thread for kernels with wl::every_thread";
    for (std::size_t at = 0; at < l.raw.size(); at += l.stride)
      if (host::read<std::uint32_t>(l.raw.data(), at + WL_TRACK_MAGIC_AT) == WL_TRACK_MAGIC) return "";
    return l.kernel + " recorded nothing: no warp reached a wl::Kernel. Is `wl::Kernel k(prof);` its first line, was it "
                      "launched with this buffer, and compiled without -DWARPLENS=0?";
  }

  // See BufferPlan.place in warplens/record/launch_buffer.py: no track may cross a 4 GiB boundary.
  static unsigned long long place(unsigned long long at, unsigned long long tracks, unsigned long long stride) {
    const unsigned long long to_boundary = (0ull - (at + WL_BUFFER_BYTES)) & 0xffffffffull;
    return to_boundary >= tracks * stride ? at : at + to_boundary % stride;
  }

  std::string document() const {
    int index = 0, driver = 0;
    cudaDeviceProp device{};
    cudaGetDevice(&index);
    host::check(cudaGetDeviceProperties(&device, index), "reading the device's properties");
    cudaDriverGetVersion(&driver);
    std::string text = "{\"producer\":\"warplens_host.h\",\"rank\":0,\"cost\":{},\"device\":{\"name\":" +
                       host::quoted(device.name) + ",\"index\":" + std::to_string(index) +
                       ",\"sm_count\":" + std::to_string(device.multiProcessorCount) + ",\"capability\":\"" +
                       std::to_string(device.major) + "." + std::to_string(device.minor) +
                       "\",\"clock_mhz\":0,\"driver\":\"" + std::to_string(driver) + "\"},\"launches\":[";
    std::size_t offset = 0;
    for (const Launch& l : launches_) {
      if (offset || &l != launches_.data()) text += ",";
      text += "{\"kernel\":" + host::quoted(l.kernel) + ",\"grid\":" + host::triple(l.grid) +
              ",\"block\":" + host::triple(l.block) + ",\"regions\":{";
      for (auto it = names_.begin(); it != names_.end(); ++it)
        text += (it == names_.begin() ? "\"" : ",\"") + std::to_string(it->first) + "\":" + host::quoted(it->second);
      text += "},\"capacity\":" + std::to_string(l.capacity) + ",\"stride\":" + std::to_string(l.stride) +
              ",\"full\":\"" + (l.ring ? "ring" : "stop") + "\",\"clock\":\"" + WL_CLOCK_NAME_ +
              "\",\"size\":" + std::to_string(l.raw.size()) + ",\"offset\":" + std::to_string(offset) +
              ",\"crc32\":" + std::to_string(host::crc32(l.raw.data(), l.raw.size())) + "}";
      offset = (offset + l.raw.size() + 63) / 64 * 64;
    }
    return text + "]}";
  }

  std::vector<Launch> launches_;
  std::map<unsigned, std::string> names_;
};

}  // namespace wl

#endif  // WARPLENS_HOST_H
