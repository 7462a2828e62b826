// Writes captured tracks as Chrome JSON, for C++ programs without Python; used by warplens_host.h and sm_profiler.h.
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

inline bool is_utf8(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i++]);
    if (c >= 0x80 && (c < 0xc2 || c > 0xf4)) return false;
    for (int more = (c >= 0xc2) + (c >= 0xe0) + (c >= 0xf0); more; --more)
      if (i == text.size() || (static_cast<unsigned char>(text[i++]) & 0xc0) != 0x80) return false;
  }
  return true;
}

// A JSON string in UTF-8. Text that is not valid UTF-8 is read as Latin-1.
inline std::string quoted(const std::string& text) {
  const bool utf8 = is_utf8(text);
  std::string out = "\"";
  for (unsigned char c : text) {
    char escape[8];
    if (c == '"' || c == '\\') out += '\\';
    if (c < 0x20) {
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else if (utf8 || c < 0x80) {
      out += static_cast<char>(c);
    } else {
      out += static_cast<char>(0xc0 | c >> 6);
      out += static_cast<char>(0x80 | (c & 0x3f));
    }
  }
  return out + "\"";
}

template <class Type>
Type read(const unsigned char* base, std::size_t at) {
  Type value;
  std::memcpy(&value, base + at, sizeof value);
  return value;
}

// A file that gets its final name only when it is complete.
class File {
 public:
  explicit File(const std::string& path) : path_(path), part_(path + ".part"), out_(std::fopen(part_.c_str(), "wb")) {
    if (!out_) throw std::runtime_error("warplens: " + path + ": cannot be opened for writing");
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

// One process per SM, one thread per track. A track is placed by the line through its own start and exit; `warplens
// export` fits all tracks of an SM together. A thread in this format is a stack of spans, so a region that ends before
// one that began inside it is written as an asynchronous event. A region that never ended ends with the track.
class Chrome {
 public:
  Chrome(const std::string& path, const std::map<unsigned, std::string>& names) : out_(path), names_(names) {
    out_.text("{\"traceEvents\":[");
  }

  // Makes the earliest start of all tracks time 0. Call it for each track before writing the first one.
  void origin(const unsigned char* track) {
    const auto ns = read<std::uint64_t>(track, WL_TRACK_START_NS_AT);
    if (ns && ns < origin_) origin_ = ns;
  }

  void track(const unsigned char* track, unsigned capacity, bool ring) {
    if (read<std::uint32_t>(track, WL_TRACK_MAGIC_AT) != WL_TRACK_MAGIC) return;
    const unsigned written = read<std::uint32_t>(track, WL_TRACK_WRITTEN_AT);
    unsigned kept = written < capacity ? written : capacity;
    // If a value did not fit, woven marks may leave its payload in the last slot; it is recognised by its clock.
    if (!ring && kept < written && kept && stray(track, track + WL_HEADER_BYTES + (kept - 1) * WL_SLOT_BYTES)) --kept;
    const unsigned oldest = ring && written > capacity ? written & (capacity - 1) : 0;
    std::vector<const unsigned char*> slots(kept);
    for (unsigned i = 0; i < kept; ++i) slots[i] = track + WL_HEADER_BYTES + (oldest + i) % capacity * WL_SLOT_BYTES;
    name_track(track);
    const std::vector<bool> payload = payloads(slots);
    Line line(track, slots, payload);
    const Pairs pairs(slots, payload);
    ++tracks_;
    for (std::size_t i = 0; i < kept; ++i) {
      if (payload[i]) continue;
      const double ns = line.at(read<std::uint32_t>(slots[i], 4));
      if (kind(slots[i]) == WL_KIND_BEGIN)
        span(track, ns, slots[i], pairs.aside[i], i, true);
      else if (kind(slots[i]) != WL_KIND_END)
        event(track, ns, slots[i], i ? slots[i - 1] : nullptr);
      else if (pairs.other[i] < kept)
        span(track, ns, slots[i], pairs.aside[i], pairs.other[i], false);
    }
    for (std::size_t i = kept; i-- > 0;)
      if (!payload[i] && kind(slots[i]) == WL_KIND_BEGIN && pairs.other[i] == kept)
        span(track, line.end(), slots[i], pairs.aside[i], i, false);
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

  // Finds the payload slots, walking back from the newest slot, which is always a record.
  static std::vector<bool> payloads(const std::vector<const unsigned char*>& slots) {
    std::vector<bool> result(slots.size());
    for (std::size_t i = slots.size(); i-- > 0;)
      if (i && (kind(slots[i]) == WL_KIND_VALUE || kind(slots[i]) == WL_KIND_ANCHOR)) result[--i] = true;
    return result;
  }

  static unsigned region(const unsigned char* slot) {
    return read<std::uint32_t>(slot, 0) >> WL_REGION_SHIFT & WL_MAX_REGION;
  }

  // Pairs begins and ends as the decoder does: an end closes the innermost open region of its name.
  struct Pairs {
    std::vector<std::size_t> other;  // the slot of the other edge; the number of slots if there is none
    std::vector<bool> aside;         // edges of a span that does not nest with its neighbours

    Pairs(const std::vector<const unsigned char*>& slots, const std::vector<bool>& payload)
        : other(slots.size(), slots.size()), aside(slots.size()) {
      std::map<unsigned, std::vector<std::size_t>> open;
      const auto is = [&](std::size_t i, unsigned what) { return !payload[i] && kind(slots[i]) == what; };
      for (std::size_t i = 0; i < slots.size(); ++i) {
        if (!is(i, WL_KIND_BEGIN) && !is(i, WL_KIND_END)) continue;
        std::vector<std::size_t>& begun = open[region(slots[i])];
        if (is(i, WL_KIND_BEGIN)) {
          begun.push_back(i);
        } else if (!begun.empty()) {
          other[i] = begun.back();
          other[begun.back()] = i;
          begun.pop_back();
        }
      }
      std::vector<std::size_t> stack;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        if (is(i, WL_KIND_BEGIN)) stack.push_back(i);
        if (!is(i, WL_KIND_END) || other[i] == slots.size()) continue;
        for (; other[stack.back()] == slots.size(); stack.pop_back()) aside[stack.back()] = true;
        std::size_t at = stack.size() - 1;
        while (stack[at] != other[i]) --at;
        aside[i] = aside[other[i]] = at + 1 < stack.size();
        stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  };

  // Converts a track's 32-bit clocks to nanoseconds. The clock may have wrapped many times before the first surviving
  // record of a ring, so it is unwrapped back from the exit.
  class Line {
   public:
    Line(const unsigned char* track, const std::vector<const unsigned char*>& slots, const std::vector<bool>& payload) {
      const auto start = read<std::uint64_t>(track, WL_TRACK_START_CLOCK_AT);
      const auto exit = read<std::uint64_t>(track, WL_TRACK_EXIT_CLOCK_AT);
      const auto start_ns = read<std::uint64_t>(track, WL_TRACK_START_NS_AT);
      const auto exit_ns = read<std::uint64_t>(track, WL_TRACK_EXIT_NS_AT);
      start_ = start;
      exit_ = exit;
      slope_ = exit > start ? static_cast<double>(exit_ns - start_ns) / static_cast<double>(exit - start) : 1.0;
      clock_ = exit ? exit : start;
      if (!exit) return;
      for (std::size_t i = slots.size(); i-- > 0;)
        if (!payload[i] && kind(slots[i]) != WL_KIND_EMPTY)
          clock_ -= static_cast<std::uint32_t>(static_cast<std::uint32_t>(clock_) - read<std::uint32_t>(slots[i], 4));
    }
    // Relative to the track's start, because a double would round nanoseconds since 1970 to multiples of 256.
    double at(std::uint32_t low) {
      clock_ += static_cast<std::uint32_t>(low - static_cast<std::uint32_t>(clock_));
      return ns(clock_);
    }
    // The exit, or the latest record of a track without an exit.
    double end() const { return ns(exit_ > clock_ ? exit_ : clock_); }

   private:
    double ns(std::uint64_t clock) const {
      return slope_ * static_cast<double>(static_cast<std::int64_t>(clock - start_));
    }

    std::uint64_t start_, exit_, clock_;
    double slope_;
  };

  static unsigned sm(const unsigned char* track) { return read<std::uint32_t>(track, WL_TRACK_SM_AT); }
  static unsigned lane(const unsigned char* track) { return read<std::uint16_t>(track, WL_TRACK_LANE_AT); }
  static unsigned warp(const unsigned char* track) { return read<std::uint16_t>(track, WL_TRACK_WARP_AT); }
  static unsigned block(const unsigned char* track) { return read<std::uint32_t>(track, WL_TRACK_BLOCK_AT); }
  static unsigned long long thread(const unsigned char* track) {
    return (block(track) * static_cast<unsigned long long>(WL_MAX_WARPS) + warp(track)) * 32 + lane(track);
  }
  static std::string title(const unsigned char* track) {
    return "block " + std::to_string(block(track)) + " warp " + std::to_string(warp(track)) +
           (lane(track) ? " lane " + std::to_string(lane(track)) : "");
  }

  void name_track(const unsigned char* track) {
    const std::string process = ",\"pid\":" + std::to_string(sm(track)) + ",\"ph\":\"M\",\"args\":{\"name\":\"";
    if (seen_.insert(sm(track)).second)
      write("{\"name\":\"process_name\"" + process + "SM " + std::to_string(sm(track)) + "\"}}");
    write("{\"name\":\"thread_name\",\"tid\":" + std::to_string(thread(track)) + process + title(track) + "\"}}");
  }

  void write(const std::string& event) {
    out_.text((first_ ? "" : ",\n") + event);
    first_ = false;
  }

  std::string name(const unsigned char* slot) const {
    const auto known = names_.find(region(slot));
    return quoted(known == names_.end() ? "region " + std::to_string(region(slot)) : known->second);
  }

  // The part of an event that all kinds share.
  std::string head(const std::string& name, const unsigned char* track, double ns) const {
    char place[160];
    const double start = static_cast<double>(read<std::uint64_t>(track, WL_TRACK_START_NS_AT) - origin_);
    std::snprintf(place, sizeof place, ",\"pid\":%u,\"tid\":%llu,\"ts\":%.3f", sm(track), thread(track),
                  (start + ns) / 1000.0);
    return "{\"name\":" + name + place;
  }

  // One edge of an asynchronous event. Ids are shared by a whole process (an SM), so each includes its track number.
  void beside(const std::string& head, const char* category, bool begins, const std::string& id) {
    write(head + ",\"cat\":\"" + category + "\",\"ph\":\"" + (begins ? "b" : "e") + "\",\"id\":\"" +
          std::to_string(tracks_) + "." + id + "\"}");
  }

  // One edge of the region that began in slot `begin`.
  void span(const unsigned char* track, double ns, const unsigned char* slot, bool aside, std::size_t begin,
            bool begins) {
    const std::string text = head(name(slot), track, ns);
    if (aside) return beside(text, "region", begins, "r" + std::to_string(begin));
    write(text + (begins ? ",\"ph\":\"B\"}" : ",\"ph\":\"E\"}"));
  }

  void event(const unsigned char* track, double ns, const unsigned char* slot, const unsigned char* before) {
    const unsigned what = kind(slot), tag = read<std::uint32_t>(slot, 0) >> WL_TAG_SHIFT;
    if (what == WL_KIND_INSTANT) write(head(name(slot), track, ns) + ",\"ph\":\"i\",\"s\":\"t\"}");
    if (what == WL_KIND_VALUE && before) value(track, ns, slot, before, tag);
    if (what == WL_KIND_ASYNC_BEGIN || what == WL_KIND_ASYNC_END)
      beside(head(name(slot), track, ns), "async", what == WL_KIND_ASYNC_BEGIN, std::to_string(tag));
  }

  // A counter belongs to a process, so it is named after the track. JSON cannot express NaN or infinity.
  void value(const unsigned char* track, double ns, const unsigned char* slot, const unsigned char* payload,
             unsigned type) {
    const double real = type == WL_VALUE_F64 ? read<double>(payload, 0) : 0;
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.17g", real);
    const std::string number = type == WL_VALUE_F64   ? digits
                               : type == WL_VALUE_U64 ? std::to_string(read<std::uint64_t>(payload, 0))
                                                      : std::to_string(read<std::int64_t>(payload, 0));
    if (std::isfinite(real))
      write(head(quoted(title(track)), track, ns) + ",\"ph\":\"C\",\"args\":{" + name(slot) + ":" + number + "}}");
    else
      write(head(name(slot), track, ns) + ",\"ph\":\"i\",\"s\":\"t\",\"args\":{\"value\":\"" + number + "\"}}");
  }

  File out_;
  const std::map<unsigned, std::string>& names_;
  std::set<unsigned> seen_;
  std::uint64_t origin_ = ~0ull, tracks_ = 0;
  bool first_ = true;
};

}  // namespace host
}  // namespace wl

#endif  // WARPLENS_CHROME_H
