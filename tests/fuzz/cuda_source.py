"""Random CUDA C++ kernels with marks: structured control flow, divergence, calls, barriers, shuffles, atomics."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

HEADER = r"""
#define WL_MARK(text) asm volatile("// @warplens " text ::: "memory")
#define WL_SCOPE(name)                                   \
  struct Scope_##name {                                  \
    __device__ __forceinline__ Scope_##name() { WL_MARK("B " #name); }  \
    __device__ __forceinline__ ~Scope_##name() { WL_MARK("E " #name); } \
  }
struct Pair { int a; unsigned b; double c; };
__constant__ int table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ __forceinline__ void say(int v) { asm volatile("// @warplens V number s32 %0" ::"r"(v) : "memory"); }
__device__ __forceinline__ void say(unsigned v) { asm volatile("// @warplens V natural u32 %0" ::"r"(v) : "memory"); }
__device__ __forceinline__ void say(float v) { asm volatile("// @warplens V single f32 %0" ::"f"(v) : "memory"); }
__device__ __forceinline__ void say(double v) { asm volatile("// @warplens V double f64 %0" ::"d"(v) : "memory"); }
__device__ __forceinline__ void say(long long v) { asm volatile("// @warplens V long s64 %0" ::"l"(v) : "memory"); }
"""
PARAMETERS = "int* __restrict__ out, const int* __restrict__ in, int* sums, int n, unsigned long long scratch"


@dataclass
class CudaKernel:
    """One kernel: its name and the size of its blocks."""

    name: str
    block: tuple[int, int, int]


@dataclass
class SourceWriter:
    """Writes one source. `marked` is off for kernels that automatic marks are tried on."""

    draw: random.Random
    marked: bool = True
    names: set[str] = field(default_factory=set)
    functions: list[tuple[str, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    loops: int = 0
    serial: int = 0
    uniform: bool = True
    may_sync: bool = True
    in_function: bool = False
    budget: int = 0
    full: bool = True
    """Whether all warps of the kernel have 32 threads."""

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    # -- expressions

    def number(self) -> str:
        choice = self.draw.choice
        return choice(
            [
                "a", "b", "c", "a", "b", "c", "t", "n", str(self.draw.randrange(-9, 40)), "(int)u", "(int)f", "p.a",
                "local[a & 3]", "table[b & 7]", "(int)(q >> 7)", "(int)p.c",
            ]
        )  # fmt: skip

    def expression(self, depth: int = 2) -> str:
        if depth == 0 or self.draw.random() < 0.25:
            return self.number()
        x, y = self.expression(depth - 1), self.expression(depth - 1)
        return self.draw.choice(
            [
                f"({x} + {y})", f"({x} - {y})", f"({x} * {y})", f"({x} ^ {y})", f"({x} & {y})", f"({x} | {y})",
                f"({x} >> ({y} & 7))", f"({x} << ({y} & 7))", f"({x} > {y} ? {x} : {y})",
                f"min((int){x}, (int){y})", f"__popc({x})",
                f"({x} / (({y} & 15) + 1))",
                f"({x} % (({y} & 15) + 1))", f"abs((int){x})", f"__clz({x})", f"__mulhi({x}, {y})",
                f"__brev({x})", f"__funnelshift_l({x}, {y}, 5)", f"({x} == {y})", f"__byte_perm({x}, {y}, 0x3715)",
            ]
        )  # fmt: skip

    def condition(self) -> str:
        """Of this thread, or of the whole block."""
        if self.draw.random() < 0.4:
            return self.uniform_condition()
        return self.draw.choice(
            [
                "(t & 1)", "(t % 3 == 0)", "(threadIdx.x < 7)", "(threadIdx.x >= 16)", 
                f"({self.expression(1)} > {self.number()})",
                "(a & 2)", "((b ^ t) & 4)", "(lane == 5)", "(lane != 0)", "(lane == 0)",
                "(in[t] & 1)", "(f > 2.0f)", "(q & 8)",
            ]
        )  # fmt: skip

    def uniform_condition(self) -> str:
        return self.draw.choice(["(n & 1)", "(n > 3)", "(blockIdx.x == 0)", "(in[blockIdx.x] & 2)", "(n * 7 % 5 == 2)"])

    # -- statements

    def emit(self, text: str) -> None:
        self.lines.append(text)

    def assignment(self) -> None:
        self.emit(
            self.draw.choice(
                [
                    f"a = {self.expression()};", f"b = {self.expression()};", f"c += {self.expression()};",
                    f"u = u * 1664525u + {self.expression(1)};", 
                    f"q = q * 6364136223846793005ull + {self.expression(1)};",
                    f"f = f * 1.5f + (float)({self.expression(1)} & 255);", 
                    f"f = fmaf(f, 0.25f, (float)({self.number()} & 63));",
                    f"p.a ^= {self.expression(1)}; p.c = p.c * 0.5 + (double)({self.number()} & 31);",
                    f"local[({self.number()}) & 3] = {self.expression()};", 
                    f"local[b & 3] += local[{self.draw.randrange(4)}];",
                    f"a ^= in[({self.expression(1)}) & 63];", 
                    f"atomicAdd(&sums[({self.number()}) & 15], {self.number()});",
                    f"b = (int)((short)({self.number()}) * (short)({self.number()}));", 
                    "c = (int)sqrtf((float)(c & 1023));",
                    f"atomicMax(&sums[16 + (({self.number()}) & 7)], {self.number()});",
                    f"out[512 + t] = {self.expression(1)};", "a += __ldg(&in[t & 31]);",
                    f'asm("{{ .reg .pred p; setp.gt.s32 p, %1, {self.draw.randrange(9)}; @p add.s32 %0, %0, 3; }}"'
                    ' : "+r"(a) : "r"(b));',
                    "asm volatile(\"bfi.b32 %0, %1, %0, 3, 5;\" : \"+r\"(b) : \"r\"(c));",
                    "if (a > b) { int s = a; a = b; b = s; }", f"c = {self.condition()} ? a : b;",
                ]
            )
        )  # fmt: skip

    def mark(self) -> None:
        if not self.marked:
            self.assignment()
            return
        what = self.draw.randrange(6)
        if what == 0:
            self.emit(f'WL_MARK("I tick{self.draw.randrange(3)}");')
        elif what < 4:
            value = self.draw.choice(["a", "b", "u", "f", "p.c", "(long long)q", "n", "(double)f", "7"])
            self.emit(f"say({value});")
        elif what == 4:
            self.emit('WL_MARK("T");')
        else:
            name, tag = self.draw.choice(["copy", "fetch"]), self.draw.randrange(32)
            self.emit(f'WL_MARK("A {name} {tag}");')
            self.statements(1, 2)
            self.emit(f'WL_MARK("Z {name} {tag}");')

    def region(self, depth: int) -> None:
        if not self.marked:
            self.statements(depth, 2)
            return
        name = self.draw.choice(["load", "mma", "wait", "store", "inner", "outer"])
        self.names.add(name)
        self.emit(f"{{ Scope_{name} {self.fresh('r')};")
        self.statements(depth - 1, 3)
        self.emit("}")

    def branch(self, depth: int) -> None:
        saved = self.uniform
        if self.draw.random() < 0.4:
            self.emit(f"if {self.uniform_condition()} {{")
        else:
            self.emit(f"if {self.condition()} {{")
            self.uniform = False
        self.statements(depth - 1, 2)
        if self.draw.random() < 0.5:
            self.emit("} else {")
            self.statements(depth - 1, 2)
        self.emit("}")
        self.uniform = saved

    def switch(self, depth: int) -> None:
        saved, self.uniform = self.uniform, False
        loops, self.loops = self.loops, 0  # a break would leave the switch
        self.emit(f"switch (({self.expression(1)}) & 7) {{")
        for case in range(self.draw.choice([3, 5, 8])):
            self.emit(f"case {case}: {{")
            self.statements(depth - 1, 1)
            self.emit("}")
            if self.draw.random() < 0.8:
                self.emit("break;")
        if self.draw.random() < 0.5:
            self.emit("default: a ^= 77;")
        self.emit("}")
        self.uniform, self.loops = saved, loops

    def loop(self, depth: int) -> None:
        saved, i = self.uniform, self.fresh("i")
        same = self.draw.random() < 0.5
        bound = self.draw.choice(
            ["n % 4", "3", "(n & 1) + 2", "5"] if same else ["(t & 3)", "(a & 3)", "((lane >> 2) & 3)"]
        )
        self.uniform = saved and same
        self.loops += 1
        how = self.draw.randrange(4)
        if how == 0:
            self.emit(f"for (int {i} = 0, to_{i} = {bound}; {i} < to_{i}; {i}++) {{ a += {i};")
        elif how == 1:
            self.emit(f"int {i} = {bound}; while ({i}-- > 0) {{ b ^= {i};")
        elif how == 2:
            self.emit(f"int {i} = {bound}; do {{ c -= {i};")
        else:
            unroll = self.draw.choice(["#pragma unroll", "#pragma unroll 1", "#pragma unroll 2", ""])
            self.emit(f"{unroll}\nfor (int {i} = 0; {i} < {self.draw.choice([2, 3, 4])}; {i}++) {{ a += {i} * 3;")
            self.uniform = saved
        self.statements(depth - 1, 3)
        self.emit(f"}} while (--{i} > 0);" if how == 2 else "}")
        self.loops -= 1
        self.uniform = saved

    def jump(self) -> None:
        """Leave a loop or the kernel early."""
        if self.loops and self.draw.random() < 0.8:
            word = self.draw.choice(["break", "continue"])
            self.emit(f"if {self.condition()} {word};")
            self.uniform = False
        elif not self.in_function and self.draw.random() < 0.5:
            same = self.draw.random() < 0.4
            self.emit(f"if {self.uniform_condition() if same else self.condition()} {{ out[t] = a; return; }}")
            self.may_sync = False
        elif self.in_function:
            self.emit(f"if {self.condition()} return a + c;")
            self.uniform = False
        else:
            self.assignment()

    def together(self) -> None:
        """What all threads of a warp or block do together."""
        if not (self.uniform and self.may_sync) or self.in_function:
            self.assignment()
            return
        what = self.draw.randrange(5)
        if what == 0:
            self.emit("__syncthreads();")
        elif what == 1:
            self.emit("__syncthreads(); shared[tid] = a; __syncthreads(); b += shared[(tid * 7 + 3) % threads];")
        elif what == 2:
            self.emit(f"c ^= __shfl_xor_sync(~0u, a, {self.draw.choice([1, 4, 16])});" if self.full else "c += 1;")
        elif what == 3:
            self.emit("u += __ballot_sync(~0u, a & 1);" if self.full else "u += 1;")
        else:
            self.emit("a += __syncthreads_count(b & 1);")

    def call(self) -> None:
        if not self.functions or self.in_function:
            self.assignment()
            return
        name, _ = self.draw.choice(self.functions)
        self.emit(
            self.draw.choice(
                [f"a += {name}(b, c, t, n, lane, in, sums);", f"c = {name}(a, {self.number()}, t, n, lane, in, sums);"]
            )
        )

    def function_literal(self, depth: int) -> None:
        name = self.fresh("f")
        self.emit(f"auto {name} = [&](int z) {{ a += z; b ^= a;")
        saved, self.loops, inside, self.in_function = (self.loops, self.uniform), 0, self.in_function, True
        self.statements(depth - 1, 2)
        self.emit("return b; };")
        (self.loops, self.uniform), self.in_function = saved, inside
        self.emit(f"c += {name}({self.number()}); a ^= {name}({self.number()});")

    def statements(self, depth: int, most: int) -> None:
        for _ in range(self.draw.randint(1, most)):
            self.budget -= 1
            if depth <= 0 or self.budget <= 0:
                self.assignment()
                continue
            what = self.draw.random()
            if what < 0.22:
                self.assignment()
            elif what < 0.32:
                self.mark()
            elif what < 0.52:
                self.region(depth)
            elif what < 0.64:
                self.branch(depth)
            elif what < 0.68:
                self.switch(depth)
            elif what < 0.80:
                self.loop(depth)
            elif what < 0.87:
                self.jump()
            elif what < 0.94:
                self.together()
            elif what < 0.97:
                self.call()
            else:
                self.function_literal(depth)

    # -- the whole

    def function(self) -> str:
        name = self.fresh("help")
        kept, self.lines = self.lines, []
        self.in_function, self.budget = True, 10
        kind = self.draw.choice(["__noinline__", "__noinline__", "__forceinline__"])
        self.emit(
            f"static __device__ {kind} int {name}(int a, int b, int t, int n, int lane, const int* in, int* sums) {{"
        )
        self.emit("int c = a ^ b, local[4] = {a, b, t, n}; unsigned u = b; float f = a & 15; unsigned long long q = 1;")
        self.emit("Pair p{a, 1u, 0.5}; int* out = sums + 64;")
        self.statements(3, 4)
        self.emit("return a + b * 3 + c + local[0] + (int)u + (int)f + (int)q + p.a + (int)p.c; }")
        text, self.lines = "\n".join(self.lines), kept
        self.in_function = False
        self.functions.append((name, kind))
        return text

    def kernel(self, name: str, block: tuple[int, int, int]) -> str:
        self.lines, self.loops, self.budget = [], 0, self.draw.choice([6, 14, 30])
        self.uniform = self.may_sync = True
        threads = block[0] * block[1] * block[2]
        self.full = threads % 32 == 0
        bounds = self.draw.choice(["", f"__launch_bounds__({threads})", f"__launch_bounds__({threads}, 2)"])
        self.emit(f'extern "C" __global__ void {bounds} {name}({PARAMETERS}) {{')
        self.emit("__shared__ int shared[128]; (void)shared; (void)scratch;")
        self.emit("const int threads = blockDim.x * blockDim.y * blockDim.z; (void)threads;")
        self.emit("const int tid = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);")
        self.emit("const int t = tid + blockIdx.x * threads, lane = tid & 31;")
        self.emit("int a = in[t & 63], b = t * 3, c = n; unsigned u = t; float f = (float)(t & 7);")
        self.emit("unsigned long long q = t * 77ull; Pair p{b, 2u, 1.25}; int local[4] = {a, b, c, t};")
        self.statements(4, 6)
        self.emit(
            "out[t] = a + b * 5 + c * 7 + (int)u + (int)f + (int)q + (int)(q >> 32) + p.a + (int)p.c + local[1]"
            " + local[t & 3]; }"
        )
        return "\n".join(self.lines)


BLOCKS = ((32, 1, 1), (64, 1, 1), (64, 1, 1), (16, 4, 1), (40, 1, 1), (8, 3, 2), (1, 1, 1))


def random_source(draw: random.Random, kernels: int, *, marked: bool = True) -> tuple[str, list[CudaKernel]]:
    """A source with a few device functions and kernels."""
    writer = SourceWriter(draw, marked)
    bodies = [writer.function() for _ in range(draw.choice([0, 1, 1, 2]))]
    made = [CudaKernel(f"k{number}", draw.choice(BLOCKS)) for number in range(kernels)]
    for one in made:
        bodies.append(writer.kernel(one.name, one.block))
    scopes = "\n".join(f"WL_SCOPE({name});" for name in sorted(writer.names))
    return "\n".join([HEADER, scopes, *bodies]) + "\n", made
