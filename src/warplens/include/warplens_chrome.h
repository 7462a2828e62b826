// The Chrome JSON of captured tracks, for C++ programs without Python; used by warplens_host.h and sm_profiler.h.
#ifndef WARPLENS_CHROME_H
#define WARPLENS_CHROME_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "warplens_layout.h"

namespace wl {
namespace host {

inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    char escape[8];
    if (c == '"' || c == '\\') out += '\\';
    if (c < 0x20) {
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

template <class T>
T read(const unsigned char* base, std::size_t at) {
  T value;
  std::memcpy(&value, base + at, sizeof value);
  return value;
}

// A file that appears under its name only when it is complete.
class File {
 public:
  explicit File(const std::string& path) : path_(path), part_(path + ".part"), out_(std::fopen(part_.c_str(), "wb")) {
    if (!out_) throw std::runtime_error("warplens: " + path + ": cannot write here");
  }
  File(const File&) = delete;
  ~File() {
    if (out_) {
      std::fclose(out_);
      std::remove(part_.c_str());
    }
  }
  void put(const void* data, std::size_t size) { good_ = std::fwrite(data, 1, size, out_) == size && good_; }
  void text(const std::string& s) { put(s.data(), s.size()); }
  void pad(std::size_t size) {
    const char zeros[64] = {};
    put(zeros, (64 - size % 64) % 64);
  }
  void close() {
    good_ = std::fclose(out_) == 0 && good_;
    out_ = nullptr;
    if (!good_ || std::rename(part_.c_str(), path_.c_str()) != 0)
      throw std::runtime_error("warplens: " + path_ + ": could not be written");
  }

 private:
  std::string path_, part_;
  std::FILE* out_;
  bool good_ = true;
};

// A process per SM, a thread per warp. A track is placed by the line through its own start and exit; `warplens export`
// fits all tracks of an SM together.
class Chrome {
 public:
  Chrome(const std::string& path, const std::map<unsigned, std::string>& names) : out_(path), names_(names) {
    out_.text("{\"traceEvents\":[");
  }

  // The earliest start of all tracks is time 0: call it for each before writing any.
  void origin(const unsigned char* track) {
    const auto ns = read<std::uint64_t>(track, WL_TRACK_START_NS_AT);
    if (ns && ns < origin_) origin_ = ns;
  }

  void track(const unsigned char* track, unsigned capacity, bool ring) {
    if (read<std::uint32_t>(track, WL_TRACK_MAGIC_AT) != WL_TRACK_MAGIC) return;
    const unsigned written = read<std::uint32_t>(track, WL_TRACK_WRITTEN_AT);
    unsigned kept = written < capacity ? written : capacity;
    // Of a value that did not fit whole, woven marks leave the payload in the last slot; its clock is not of the time.
    if (!ring && kept < written && kept && stray(track, track + WL_HEADER_BYTES + (kept - 1) * WL_SLOT_BYTES)) --kept;
    const unsigned oldest = ring && written > capacity ? written & (capacity - 1) : 0;
    std::vector<const unsigned char*> slots(kept);
    for (unsigned i = 0; i < kept; ++i) slots[i] = track + WL_HEADER_BYTES + (oldest + i) % capacity * WL_SLOT_BYTES;
    name_track(track);
    const std::vector<bool> payload = payloads(slots);
    Line line(track, slots, payload);
    for (unsigned i = 0; i < kept; ++i)
      if (!payload[i]) event(track, line.at(read<std::uint32_t>(slots[i], 4)), slots[i], i ? slots[i - 1] : nullptr);
  }

  void close() {
    out_.text("]}\n");
    out_.close();
  }

 private:
  static unsigned kind(const unsigned char* slot) {
    return read<std::uint32_t>(slot, 0) & ((1u << WL_REGION_SHIFT) - 1);
  }

  static bool stray(const unsigned char* track, const unsigned char* slot) {
    const auto start = read<std::uint64_t>(track, WL_TRACK_START_CLOCK_AT);
    const auto exit = read<std::uint64_t>(track, WL_TRACK_EXIT_CLOCK_AT);
    return exit && static_cast<std::uint32_t>(read<std::uint32_t>(slot, 4) - start) > exit - start;
  }

  // Which slots are payloads: decided backwards from the newest, which is always a record.
  static std::vector<bool> payloads(const std::vector<const unsigned char*>& slots) {
    std::vector<bool> result(slots.size());
    for (std::size_t i = slots.size(); i-- > 0;)
      if (i && (kind(slots[i]) == WL_KIND_VALUE || kind(slots[i]) == WL_KIND_ANCHOR)) result[--i] = true;
    return result;
  }

  // Nanoseconds of a track's 32-bit clocks, unwrapped. What a ring lost before its first record may be many wraps,
  // so the walk starts from the exit and counts back over the records.
  class Line {
   public:
    Line(const unsigned char* track, const std::vector<const unsigned char*>& slots, const std::vector<bool>& payload) {
      const auto start = read<std::uint64_t>(track, WL_TRACK_START_CLOCK_AT);
      const auto exit = read<std::uint64_t>(track, WL_TRACK_EXIT_CLOCK_AT);
      const auto start_ns = read<std::uint64_t>(track, WL_TRACK_START_NS_AT);
      const auto exit_ns = read<std::uint64_t>(track, WL_TRACK_EXIT_NS_AT);
      start_ = start;
      slope_ = exit > start ? static_cast<double>(exit_ns - start_ns) / static_cast<double>(exit - start) : 1.0;
      clock_ = exit ? exit : start;
      if (!exit) return;
      for (std::size_t i = slots.size(); i-- > 0;)
        if (!payload[i] && kind(slots[i]) != WL_KIND_EMPTY)
          clock_ -= static_cast<std::uint32_t>(static_cast<std::uint32_t>(clock_) - read<std::uint32_t>(slots[i], 4));
    }
    // From the track's start; a double would round nanoseconds since 1970 to 256.
    double at(std::uint32_t low) {
      clock_ += static_cast<std::uint32_t>(low - static_cast<std::uint32_t>(clock_));
      return slope_ * static_cast<double>(static_cast<std::int64_t>(clock_ - start_));
    }

   private:
    std::uint64_t start_, clock_;
    double slope_;
  };

  static unsigned sm(const unsigned char* track) { return read<std::uint32_t>(track, WL_TRACK_SM_AT); }
  static unsigned long long thread(const unsigned char* track) {
    return read<std::uint32_t>(track, WL_TRACK_BLOCK_AT) * 1024ull + read<std::uint16_t>(track, WL_TRACK_WARP_AT);
  }

  void name_track(const unsigned char* track) {
    const std::string process = ",\"pid\":" + std::to_string(sm(track)) + ",\"ph\":\"M\",\"args\":{\"name\":\"";
    if (seen_.insert(sm(track)).second)
      write("{\"name\":\"process_name\"" + process + "SM " + std::to_string(sm(track)) + "\"}}");
    write("{\"name\":\"thread_name\",\"tid\":" + std::to_string(thread(track)) + process + "block " +
          std::to_string(read<std::uint32_t>(track, WL_TRACK_BLOCK_AT)) + " warp " +
          std::to_string(read<std::uint16_t>(track, WL_TRACK_WARP_AT)) + "\"}}");
  }

  void write(const std::string& event) {
    out_.text((first_ ? "" : ",\n") + event);
    first_ = false;
  }

  void event(const unsigned char* track, double ns, const unsigned char* slot, const unsigned char* before) {
    const std::uint32_t word = read<std::uint32_t>(slot, 0);
    const unsigned region = word >> WL_REGION_SHIFT & WL_MAX_REGION, tag = word >> WL_TAG_SHIFT;
    if (kind(slot) == WL_KIND_ANCHOR || kind(slot) == WL_KIND_EMPTY) return;
    const auto known = names_.find(region);
    char place[160];
    std::snprintf(place, sizeof place, ",\"pid\":%u,\"tid\":%llu,\"ts\":%.3f",
                  sm(track), thread(track), (static_cast<double>(read<std::uint64_t>(track, WL_TRACK_START_NS_AT) - origin_) + ns) / 1000.0);
    std::string text = "{\"name\":" + quoted(known == names_.end() ? "region " + std::to_string(region) : known->second) + place;
    switch (kind(slot)) {
      case WL_KIND_BEGIN: text += ",\"ph\":\"B\"}"; break;
      case WL_KIND_END: text += ",\"ph\":\"E\"}"; break;
      case WL_KIND_INSTANT: text += ",\"ph\":\"i\",\"s\":\"t\"}"; break;
      case WL_KIND_VALUE: text += ",\"ph\":\"C\",\"args\":{\"value\":" + number(before, tag) + "}}"; break;
      case WL_KIND_ASYNC_BEGIN: text += ",\"cat\":\"async\",\"ph\":\"b\",\"id\":" + std::to_string(tag) + "}"; break;
      default: text += ",\"cat\":\"async\",\"ph\":\"e\",\"id\":" + std::to_string(tag) + "}";
    }
    write(text);
  }

  static std::string number(const unsigned char* payload, unsigned type) {
    if (!payload) return "null";
    if (type == WL_VALUE_U64) return std::to_string(read<std::uint64_t>(payload, 0));
    if (type != WL_VALUE_F64) return std::to_string(read<std::int64_t>(payload, 0));
    char digits[40];
    const double value = read<double>(payload, 0);
    std::snprintf(digits, sizeof digits, "%.17g", value);
    return std::isfinite(value) ? digits : "null";
  }

  File out_;
  const std::map<unsigned, std::string>& names_;
  std::set<unsigned> seen_;
  std::uint64_t origin_ = ~0ull;
  bool first_ = true;
};

}  // namespace host
}  // namespace wl

#endif  // WARPLENS_CHROME_H
