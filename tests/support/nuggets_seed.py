"""The profiler's own complete example, with only its import changed.

What that text takes for granted is here too: the base class, the work, and the imports of torch and the DSL.
"""

# ruff: noqa: I001, B007
import cutlass
from cutlass import Int32, cute
from cutlass.cute.runtime import from_dlpack

from warplens.compat.nuggets import (
    TagTable, allocate_profile_buffer, decode_events, events_to_perfetto,
    profile_region, lane0_warp0_start, lane0_warp0_stop,
)  # fmt: skip


class CuteOp:
    pass


def do_work():
    cute.arch.sync_warp()


# Tags
TAG_OUTER = 0
TAG_INNER = 1


class MyProfiledKernel(CuteOp):
    @cute.kernel
    def kernel(self, output, prof_buf, max_events):
        bidx, _, _ = cute.arch.block_idx()

        # Profile outer loop
        eid = lane0_warp0_start(prof_buf, max_events)

        for i in cutlass.range(4):
            # Profile inner work with context manager
            with profile_region(prof_buf, max_events, Int32(TAG_INNER), bidx):
                do_work()

        lane0_warp0_stop(prof_buf, eid, Int32(TAG_OUTER), bidx, max_events)

    @cute.jit()
    def __call__(self, output, prof_buf, max_events):
        self.kernel(output, prof_buf, max_events).launch(grid=(4, 1, 1), block=(128, 1, 1))

    def interface(self, output, prof_buf, max_events):
        self.__call__(from_dlpack(output), from_dlpack(prof_buf), Int32(max_events))


def main(torch, output, path):
    tag_table = TagTable(["outer", "inner"])
    prof = allocate_profile_buffer(256, device="cuda")
    kernel = MyProfiledKernel()
    kernel.interface(output, prof.tensor, 256)
    torch.cuda.synchronize()

    events, _ = decode_events(prof, tag_table)
    events_to_perfetto(events, path)
    return events
