// The mark macros, defined on top of the functions of wl::detail that record them.
#ifndef WARPLENS_MARKS_H
#define WARPLENS_MARKS_H

namespace wl {
namespace detail {

// One object per mark in the module's constants. The host finds it in the cubin by its magic, or send_names copies it.
template <unsigned NameSize, unsigned FileSize>
struct Name {
  static_assert(NameSize > 1, "a region needs a name");
  static_assert(WL_NAME_BYTES + NameSize + FileSize < WL_MAX_NAME - 8, "a region's name and its file's path are too long");
  unsigned long long magic;
  unsigned id, line;
  unsigned short name_size, file_size;
  char name[NameSize];
  char file[FileSize];
};

// The letters of a mark's name and file as types. All instances of a template then share one object; a variable in the
// function would exist once per instance, and constant memory is small.
template <char... Letters>
struct Text {};
template <unsigned... Values>
struct Numbers {};
template <class Low, class High>
struct Joined;
template <unsigned... Low, unsigned... High>
struct Joined<Numbers<Low...>, Numbers<High...>> {
  using type = Numbers<Low..., (sizeof...(Low) + High)...>;
};
template <unsigned Size>
struct Count : Joined<typename Count<Size / 2>::type, typename Count<Size - Size / 2>::type> {};
template <>
struct Count<1> {
  using type = Numbers<0>;
};
template <class Symbol, unsigned... At>
__device__ Text<Symbol::name()[At]...> name_of(Numbers<At...>);
template <class Symbol, unsigned... At>
__device__ Text<Symbol::file()[At]...> file_of(Numbers<At...>);

template <unsigned Id, unsigned Line, class NameText, class FileText>
struct Named;
template <unsigned Id, unsigned Line, char... Letters, char... Path>
struct Named<Id, Line, Text<Letters...>, Text<Path...>> {
  static __device__ __forceinline__ void keep() {
    static __constant__ __attribute__((used)) const Name<sizeof...(Letters), sizeof...(Path)> object = {
        WL_NAME_MAGIC, Id, Line, sizeof...(Letters), sizeof...(Path), {Letters...}, {Path...}};
  }
};

template <unsigned Id>
struct Region {
  __device__ __forceinline__ Region() { record<word0(WL_KIND_BEGIN, Id)>(); }
  __device__ __forceinline__ ~Region() { record<word0(WL_KIND_END, Id)>(); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
};

// A region that waits for a phase of a barrier.
template <unsigned Id>
struct Wait : Region<Id> {
  __device__ __forceinline__ Wait(unsigned which, unsigned parity) {
    barrier<word0(WL_KIND_VALUE, Id), WL_BARRIER_WAIT>(which, parity);
  }
};

}  // namespace detail
}  // namespace wl

#define WL_NAME_(text, symbol)                                                              \
  struct symbol {                                                                           \
    static __host__ __device__ constexpr const char* name() { return "" text; }             \
    static __host__ __device__ constexpr const char* file() { return __FILE__; }            \
  };                                                                                        \
  ::wl::detail::Named<::wl::region_id(text), __LINE__,                                      \
                      decltype(::wl::detail::name_of<symbol>(WL_NUMBERS_(sizeof("" text)))), \
                      decltype(::wl::detail::file_of<symbol>(WL_NUMBERS_(sizeof(__FILE__))))>::keep()
#define WL_NUMBERS_(count) typename ::wl::detail::Count<count>::type()
#define WL_MARK_(kind, text, ...)                                        \
  do {                                                                   \
    WL_NAME_(text, wl_name_);                                            \
    constexpr unsigned wl_word_ = ::wl::detail::word0(kind, ::wl::region_id(text)); \
    __VA_ARGS__;                                                         \
  } while (0)

#define WL_REGION_(text, n)                \
  WL_NAME_(text, WL_CAT_(wl_name_, n));    \
  const ::wl::detail::Region<::wl::region_id(text)> WL_CAT_(wl_region_, n)
#ifdef __COUNTER__
#define WL_REGION(name) WL_REGION_(name, __COUNTER__)
#else
#define WL_REGION(name) WL_REGION_(name, WL_REGION_LINE_)
#endif
#define WL_BEGIN(name) WL_MARK_(WL_KIND_BEGIN, name, ::wl::detail::record<wl_word_>())
#define WL_END(name) WL_MARK_(WL_KIND_END, name, ::wl::detail::record<wl_word_>())
#define WL_INSTANT(name) WL_MARK_(WL_KIND_INSTANT, name, ::wl::detail::record<wl_word_>())
#define WL_VALUE(name, ...) WL_MARK_(WL_KIND_VALUE, name, ::wl::detail::value<wl_word_>(__VA_ARGS__))
// Records a loop's index as a value. Every 64th also anchors the clock, which tracks of many milliseconds need.
#define WL_ITERATION(name, ...) WL_MARK_(WL_KIND_VALUE, name, ::wl::detail::iteration<wl_word_>(__VA_ARGS__))
// Asynchronous work, such as a copy in flight. Begin and end are paired by name and tag (0 to 31).
#define WL_ASYNC_BEGIN(name, ...) \
  WL_MARK_(WL_KIND_ASYNC_BEGIN, name, ::wl::detail::async<wl_word_>(static_cast<unsigned>(__VA_ARGS__)))
#define WL_ASYNC_END(name, ...) \
  WL_MARK_(WL_KIND_ASYNC_END, name, ::wl::detail::async<wl_word_>(static_cast<unsigned>(__VA_ARGS__)))
// From here to the end of the scope, the warp waits for the phase of `parity` of an mbarrier (its address in shared
// memory), or of any other barrier (a number of your own). WL_ARRIVE and WL_COPY stand right before an arrival and before
// the issue of a copy that completes on the barrier. Decoding ties each wait to what released it.
#define WL_WAIT_(text, n, which, parity)   \
  WL_NAME_(text, WL_CAT_(wl_name_, n));    \
  const ::wl::detail::Wait<::wl::region_id(text)> WL_CAT_(wl_wait_, n)(::wl::detail::barrier_of(which), \
                                                                       static_cast<unsigned>(parity))
#ifdef __COUNTER__
#define WL_WAIT(name, barrier, parity) WL_WAIT_(name, __COUNTER__, barrier, parity)
#else
#define WL_WAIT(name, barrier, parity) WL_WAIT_(name, WL_WAIT_LINE_, barrier, parity)
#endif
#define WL_BARRIER_(operation, name, which) \
  WL_MARK_(WL_KIND_VALUE, name, ::wl::detail::barrier<wl_word_, operation>(::wl::detail::barrier_of(which), 0))
#define WL_ARRIVE(name, ...) WL_BARRIER_(WL_BARRIER_ARRIVE, name, (__VA_ARGS__))
#define WL_COPY(name, ...) WL_BARRIER_(WL_BARRIER_COPY, name, (__VA_ARGS__))
// A region that any warp of the block may end: begin and end are paired by name and `key`, a number of 32 bits.
#define WL_EVENT_START(name, ...) WL_BARRIER_(WL_BARRIER_EVENT_START, name, (__VA_ARGS__))
#define WL_EVENT_END(name, ...) WL_BARRIER_(WL_BARRIER_EVENT_END, name, (__VA_ARGS__))
// Ties this warp's clock to the global timer here.
#define WL_ANCHOR() ::wl::detail::anchor()

// Use this between a mark and a preceding block barrier that is written in asm or hidden inside a library. Without it,
// the mark reads the clock before the barrier takes effect. All lanes of the warp must have passed the barrier.
#define WL_SETTLE() ::wl::detail::settle()

// The barriers of CUDA itself are handled automatically, unless -DWARPLENS_BARRIERS=0 is given.
#if WARPLENS_BARRIERS
namespace wl {
namespace detail {
__device__ __forceinline__ int settled(int result) {
  settle();
  return result;
}
}  // namespace detail
}  // namespace wl
#define __syncthreads() (::__syncthreads(), ::wl::detail::settle())
#define __syncthreads_count(...) ::wl::detail::settled(::__syncthreads_count(__VA_ARGS__))
#define __syncthreads_and(...) ::wl::detail::settled(::__syncthreads_and(__VA_ARGS__))
#define __syncthreads_or(...) ::wl::detail::settled(::__syncthreads_or(__VA_ARGS__))
#endif

#endif  // WARPLENS_MARKS_H
