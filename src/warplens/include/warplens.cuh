// warplens.cuh: marks for CUDA C++ kernels. C++17, sm_70 and later, nvcc and NVRTC; needs nothing but CUDA.
//
//   __global__ void gemm(..., wl::Buffer prof) {
//     wl::Kernel k(prof);                      // first line of the kernel; ends the track on every return
//     { WL_REGION("load"); ... }               // until the end of the scope; nests
//     WL_BEGIN("mma"); ... WL_END("mma");
//     WL_INSTANT("tile"); WL_VALUE("k", i);
//   }
//
// Lane 0 of each warp records for its warp. A region that lane 0 does not enter is not recorded; choose another leader
// with the second argument of wl::Kernel (wl::lane(n), wl::when(condition), wl::every_thread, ...).
//
// With C++14, define WARPLENS_CPP14 before the include and write wl::Kernel<> k(prof): C++14 cannot deduce the leader.
//
// -DWARPLENS=0 removes every mark. -DWARPLENS_RING=1 keeps a full track's latest records instead of its first.
//
// Marks work in the kernel and in every function inlined into it. A function that is not inlined (__noinline__,
// recursion, a function pointer) gets the track by reference: see wl::Link at the end of this file.
#ifndef WARPLENS_CUH
#define WARPLENS_CUH

#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 201402L
#error "warplens.cuh needs C++17: compile with -std=c++17"
#elif (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 201703L && !defined(WARPLENS_CPP14)
#error "warplens.cuh needs C++17: compile with -std=c++17, or define WARPLENS_CPP14 and write wl::Kernel<> k(prof)"
#endif

#include "warplens_layout.h"

#ifndef WARPLENS
#define WARPLENS 1
#endif
#ifndef WARPLENS_RING
#define WARPLENS_RING 0
#endif
#ifndef WARPLENS_WOVEN
#define WARPLENS_WOVEN 0  // marks as comments in PTX, for the weaver; warplens.cuda and `warplens nvcc` set it
#endif
#ifndef WARPLENS_BARRIERS
#define WARPLENS_BARRIERS 1
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WL_BOTH_ __host__ __device__
#else
#define WL_BOTH_
#endif

namespace wl {

// A kernel's last parameter: the device address of the launch's buffer, or 0 to record nothing.
struct Buffer {
  unsigned long long address;
};

// The id of a region: FNV-1a of its name, folded to 24 bits. The names are stored in the module's constants.
WL_BOTH_ constexpr unsigned region_id(const char* name) {
  unsigned value = 0x811c9dc5u;
  for (; *name; ++name) value = (value ^ static_cast<unsigned char>(*name)) * 0x01000193u;
  value = (value >> 24 ^ value) & WL_MAX_REGION;
  return value ? value : 1u;
}

namespace detail {
WL_BOTH_ constexpr unsigned word0(unsigned kind, unsigned region) { return kind | region << WL_REGION_SHIFT; }

// The number that WL_VALUE records for `v`; __half, __nv_bfloat16 and similar types are converted to float.
template <class Type, bool Class, bool Enum>
struct NumberOf {
  using type = Type;
};
template <class Type>
struct NumberOf<Type, true, false> {
  using type = float;
};
template <class Type>
struct NumberOf<Type, false, true> {
  using type = long long;
};
template <class Type>
WL_BOTH_ constexpr auto number(Type v) {
  return static_cast<typename NumberOf<Type, __is_class(Type), __is_enum(Type)>::type>(v);
}
template <class Type>
WL_BOTH_ unsigned long long number(Type* v) { return reinterpret_cast<unsigned long long>(v); }

// What tells barriers apart: the address of an mbarrier in shared memory, or a number of the program's own.
template <class Type>
WL_BOTH_ unsigned barrier_of(Type* barrier) {
  unsigned long long address = reinterpret_cast<unsigned long long>(barrier);
#if defined(__CUDA_ARCH__)
  asm("cvta.to.shared.u64 %0, %0;" : "+l"(address));
#endif
  return static_cast<unsigned>(address);
}
template <class Type>
WL_BOTH_ constexpr unsigned barrier_of(Type number) { return static_cast<unsigned>(number); }
}  // namespace detail

// Which lanes record. Every warp writes its track header in any case, so its lifetime is known.
struct PerWarp {};
struct PerBlock {};
struct OneWarp { unsigned index; };
struct OneLane { unsigned index; };
struct When { bool condition; };
struct EveryThread {};

constexpr PerWarp per_warp{};            // lane 0 of each warp (the default)
constexpr PerBlock per_block{};          // thread 0 of each block
constexpr EveryThread every_thread{};    // one track per thread: 32 times the memory and traffic
WL_BOTH_ constexpr OneWarp warp(unsigned index) { return OneWarp{index}; }
WL_BOTH_ constexpr OneLane lane(unsigned index) { return OneLane{index}; }

#if WARPLENS && (defined(__CUDACC__) || defined(WARPLENS_SHIM))
// The marks' names precede this in the module's constant memory, whether the compiler orders constants as written (locals
// come first) or by size (no name is as large).
static __constant__ __attribute__((used)) const unsigned long long names_end_[WL_MAX_NAME / 8] = {WL_NAME_MAGIC};
#endif

}  // namespace wl

#define WL_CAT2_(a, b) a##b
#define WL_CAT_(a, b) WL_CAT2_(a, b)
#ifndef __COUNTER__  // NVRTC has none: WL_REGION and WL_WAIT make their symbols of the line, and errors name these
#define WL_REGION_LINE_ WL_CAT_(give_each_WL_REGION_a_line_of_its_own_, __LINE__)
#define WL_WAIT_LINE_ WL_CAT_(give_each_WL_WAIT_a_line_of_its_own_, __LINE__)
#endif

#if WARPLENS && WARPLENS_WOVEN && defined(__CUDA_ARCH__)
#include "warplens_woven.h"
#elif WARPLENS && (defined(__CUDA_ARCH__) || defined(WARPLENS_SHIM))
#include "warplens_device.h"
#else

// Marks are disabled, or this is the host compilation: they expand to nothing.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WL_DEVICE_ __device__ __forceinline__
#else
#define WL_DEVICE_ inline
#endif
namespace wl {
WL_DEVICE_ When when(bool condition) { return When{condition}; }
template <class Leader = PerWarp>
struct Kernel {
  WL_DEVICE_ explicit Kernel(Buffer, Leader = Leader()) {}
};
struct Link {};
struct Callee {
  WL_DEVICE_ explicit Callee(Link&) {}
};
namespace detail {
template <unsigned Size>
struct Spoken {
  static_assert(Size > 1, "a region needs a name");
};
template <class Type>
WL_BOTH_ constexpr bool unused(const Type&) { return false; }
}  // namespace detail
}  // namespace wl
#undef WL_DEVICE_
// The arguments of a mark are not evaluated but count as used, so that variables only read by marks cause no warning.
#define WL_NOTHING_(name) ((void)sizeof(::wl::detail::Spoken<sizeof("" name)>))
#define WL_UNUSED_(name, ...) (WL_NOTHING_(name), (void)(false && ::wl::detail::unused(__VA_ARGS__)))
#ifdef __COUNTER__
#define WL_SYMBOL_(symbol)
#else  // two on one line are refused here too, before a profile compiles the marks
#define WL_SYMBOL_(symbol) struct WL_CAT_(wl_name_, symbol) {};
#endif
#define WL_REGION(name) WL_SYMBOL_(WL_REGION_LINE_) static_assert(sizeof("" name) > 1, "a region needs a name")
#define WL_BEGIN(name) WL_NOTHING_(name)
#define WL_END(name) WL_NOTHING_(name)
#define WL_INSTANT(name) WL_NOTHING_(name)
#define WL_VALUE(name, ...) WL_UNUSED_(name, __VA_ARGS__)
#define WL_ITERATION(name, ...) WL_UNUSED_(name, __VA_ARGS__)
#define WL_ASYNC_BEGIN(name, ...) WL_UNUSED_(name, __VA_ARGS__)
#define WL_ASYNC_END(name, ...) WL_UNUSED_(name, __VA_ARGS__)
#define WL_WAIT(name, barrier, parity) WL_SYMBOL_(WL_WAIT_LINE_) \
  static_assert(sizeof("" name) > 1, "a region needs a name"); (void)(false && ::wl::detail::unused(barrier) && ::wl::detail::unused(parity))
#define WL_ARRIVE(name, ...) WL_UNUSED_(name, __VA_ARGS__)
#define WL_COPY(name, ...) WL_UNUSED_(name, __VA_ARGS__)
#define WL_EVENT_START(name, ...) WL_UNUSED_(name, __VA_ARGS__)
#define WL_EVENT_END(name, ...) WL_UNUSED_(name, __VA_ARGS__)
#define WL_ANCHOR() ((void)0)
#define WL_SETTLE() ((void)0)
#endif

#endif  // WARPLENS_CUH
