"""PTX and TTGIR of any size, for measurements of how the parser, the rules and the weaver grow."""

from __future__ import annotations

_HEAD = '.version 8.4\n.target sm_90\n.address_size 64\n.file 1 "big.cu"\n'
_REGISTERS = "\t.reg .pred %p<4>;\n\t.reg .f32 %f<8>;\n\t.reg .b32 %r<64>;\n\t.reg .b64 %rd<8>;\n"


def straight(pairs: int) -> str:
    """One block with `pairs` regions of ten instructions each."""
    return _kernel("".join(_region(number) for number in range(pairs)))


def many_blocks(pairs: int) -> str:
    """A diamond of branches around each region."""
    return _kernel("".join(_guarded(number, _region(number)) for number in range(pairs)))


def early_returns(pairs: int) -> str:
    """A branch to the kernel's end before each region, which some lanes of a warp take."""
    jumps = (f"\tsetp.eq.u32 %p1, %r1, {n};\n\t@%p1 bra $END;\n{_region(n)}" for n in range(pairs))
    return _kernel("".join(jumps) + "$END:\n")


def loops(pairs: int) -> str:
    """Loops three deep, each around one region."""
    return _kernel("".join(_nest(number) for number in range(-(-pairs // 3))))


def functions(pairs: int) -> str:
    """A chain of functions with one region each, and one kernel that calls the first."""
    parts = []
    for number in reversed(range(pairs)):
        callee = f"\t{{\n\tcall.uni f{number + 1}, ();\n\t}}\n" if number < pairs - 1 else ""
        parts.append(f".func f{number}()\n{{\n{_REGISTERS}{_region(number)}{callee}\tret;\n}}\n")
    return _HEAD + "".join(parts) + _entry("k", "\t{\n\tcall.uni f0, ();\n\t}\n")


def kernels(pairs: int) -> str:
    """Kernels with one region each."""
    return _HEAD + "".join(_entry(f"k{number}", _region(number)) for number in range(pairs))


def values(pairs: int) -> str:
    """One block in which each region also records a value and an async span."""
    extra = "\t// @warplens V v u32 %r2\n\t// @warplens A a %r2\n\t// @warplens Z a 3\n"
    return _kernel("".join(_region(number) + extra for number in range(pairs)))


def barriers(pairs: int) -> str:
    """One block with a barrier in front of each region."""
    return _kernel("".join(f"\tbar.sync 0;\n{_region(number)}" for number in range(pairs)))


def one_register(writes: int) -> str:
    """One register that many instructions write from itself and from others like it."""
    body = "".join(
        f"\tand.b32 %r5, %r6, {n};\n\tor.b32 %r6, %r5, %r7;\n\txor.b32 %r7, %r5, %r6;\n" for n in range(writes)
    )
    return _kernel(_region(0) + body)


def recomputed(values: int) -> str:
    """Values that are computed before a loop and on the path around it, and that only the code after it needs."""
    parts = []
    for n in range(values):
        parts.append(
            f"\tsetp.gt.u32 %p1, %r1, {n};\n\t@%p1 bra $AROUND{n};\n\tand.b32 %q{n}, %r0, 7;\n$LOOP{n}:\n{_region(n)}"
            f"\tadd.u32 %r1, %r1, 1;\n\tsetp.lt.u32 %p2, %r1, 64;\n\t@%p2 bra $LOOP{n};\n\tbra $AFTER{n};\n"
            f"$AROUND{n}:\n\tand.b32 %q{n}, %r0, 7;\n$AFTER{n}:\n\tadd.u32 %r3, %r3, %q{n};\n"
        )
    return _kernel(f"\t.reg .b32 %q<{values}>;\n\tmov.u32 %r0, %tid.x;\n" + "".join(parts))


def unmarked(units: int) -> str:
    """Loads, arithmetic, stores, loops and branches without a mark, with a source line each, for the rules."""
    parts = []
    for n in range(units):
        parts.append(
            f"\t.loc 1 {2 * n + 1} 1\n\tld.global.f32 %f1, [%rd1+{n}];\n\tld.global.f32 %f2, [%rd1+{n + 4}];\n"
            f"\tadd.f32 %f3, %f1, %f2;\n\tsetp.gt.f32 %p1, %f3, 0f00000000;\n\t@%p1 bra $S{n};\n"
            f"$L{n}:\n\tld.global.f32 %f4, [%rd2];\n\tadd.f32 %f3, %f3, %f4;\n\tadd.u32 %r1, %r1, 1;\n"
            f"\tsetp.lt.u32 %p2, %r1, 9;\n\t@%p2 bra $L{n};\n$S{n}:\n\t.loc 1 {2 * n + 2} 1\n"
            f"\tst.global.f32 [%rd1+{n}], %f3;\n\tbar.sync 0;\n"
        )
    return _kernel("".join(parts))


def unmarked_straight(units: int) -> str:
    """One block of loads whose values nothing in the block needs, between stores."""
    lines = (
        f"\t.loc 1 {n + 1} 1\n\tld.global.f32 %f1, [%rd1+{n}];\n\tst.global.f32 [%rd2], %f5;\n" for n in range(units)
    )
    return _kernel("".join(lines))


def ttgir(units: int) -> str:
    """TTGIR with loads, arithmetic, loops and branches, one source line each."""
    lines = ["module {", "  tt.func public @k(%a: !tt.ptr<f32>) {"]
    for n in range(units):
        at = f'loc("big.py":{n + 1}:1)'
        lines += [
            f"    %x{n} = tt.load %a : tensor<128xf32> {at}",
            f"    %y{n} = tt.load %a : tensor<128xf32> {at}",
            f"    %z{n} = arith.addf %q, %q : tensor<128xf32> {at}",
            "    scf.if %c { ",
            f"      tt.store %a, %z{n} : tensor<128xf32> {at}",
            f"    }} {at}",
            f"    scf.for %i{n} = %c0 to %c9 step %c1 : i32 {{",
            f"      tt.store %a, %y{n} : tensor<128xf32> {at}",
            f"    }} {at}",
        ]
    return "\n".join([*lines, "    tt.return", "  }", "}"])


def _region(number: int) -> str:
    work = "".join(f"\tadd.u32 %r{k % 8 + 8}, %r{(k + 1) % 8 + 8}, {number};\n" for k in range(10))
    return f"\t// @warplens B r{number % 50}\n{work}\t// @warplens E r{number % 50}\n"


def _guarded(number: int, inside: str) -> str:
    return f"\tsetp.eq.u32 %p1, %r1, {number};\n\t@%p1 bra $S{number};\n{inside}$S{number}:\n"


def _nest(number: int) -> str:
    text = ""
    for depth in range(3):
        label, counter = f"$L{number}_{depth}", f"%r{20 + depth}"
        text = (
            f"\tmov.u32 {counter}, 0;\n{label}:\n{_region(3 * number + depth)}{text}"
            f"\tadd.u32 {counter}, {counter}, 1;\n\tsetp.lt.u32 %p2, {counter}, 9;\n\t@%p2 bra {label};\n"
        )
    return text


def _kernel(body: str) -> str:
    return _HEAD + _entry("k", "\tmov.u32 %r1, %tid.x;\n" + body)


def _entry(name: str, body: str) -> str:
    return f".visible .entry {name}(\n\t.param .u64 {name}_0\n)\n.reqntid 128, 1, 1\n{{\n{_REGISTERS}{body}\tret;\n}}\n"
