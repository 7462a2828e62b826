// A kernel that copies 8-byte words, as PTX that the driver compiles when it is needed; Python reads it from here too.
// Drivers copy one variable at a time out of a module's data and refuse what lies between two of them; a kernel may
// read all of it.
#ifndef WARPLENS_READER_H
#define WARPLENS_READER_H
#define WL_READER_BLOCK 128u
static const char wl_reader_ptx_[] = R"(
.version 6.4
.target sm_70
.address_size 64
.visible .entry warplens_copy(.param .u64 from, .param .u64 to, .param .u64 words)
{
  .reg .pred past;
  .reg .u32 block, size, thread;
  .reg .u64 at, out, count, index, word;
  ld.param.u64 at, [from];
  ld.param.u64 out, [to];
  ld.param.u64 count, [words];
  mov.u32 block, %ctaid.x;
  mov.u32 size, %ntid.x;
  mov.u32 thread, %tid.x;
  cvt.u64.u32 index, thread;
  mad.wide.u32 index, block, size, index;
  setp.ge.u64 past, index, count;
  @past ret;
  shl.b64 index, index, 3;
  add.u64 at, at, index;
  add.u64 out, out, index;
  ld.global.u64 word, [at];
  st.global.u64 [out], word;
  ret;
}
)";
#endif  // WARPLENS_READER_H
