"""Which recorded kernel each sample is of: CUPTI names a sample's cubin by a number, and its function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from warplens.driver.libcupti import Cupti
from warplens.driver.pc_sampler import cubin_crc, source_line
from warplens.driver.sample_buffer import PcSamples
from warplens.launch.assembled_code import kept_cubin
from warplens.sass.cubin_file import read_cubin_file
from warplens.sass.machine_code import MachineCode
from warplens.sass.pc_samples import PcSampling, SampledCode

Codes = Mapping[str, tuple[str, MachineCode]]
"""By digest, a kernel's name and its machine code."""


class _Known(NamedTuple):
    """A machine code that samples may be of."""

    kernel: str
    digest: str
    symbol: str
    cubin: bytes
    plain: bool

    @property
    def code(self) -> bytes:
        return read_cubin_file(self.cubin).code(self.symbol)


def _loaded_cubin(code: MachineCode) -> bytes | None:
    return code.cubin or kept_cubin(code.ptx)


def _known_codes(lib: Cupti, codes: Codes) -> dict[tuple[int, str], list[_Known]]:
    """By the two names that samples have for it, the machine code; several where one of the names is not unique."""
    found: dict[tuple[int, str], list[_Known]] = {}
    for digest, (kernel, code) in codes.items():
        for cubin, plain in ((_loaded_cubin(code), False), (code.plain, True)):
            if cubin is not None:
                one = _Known(kernel, digest, code.symbol, cubin, plain)
                same = found.setdefault((cubin_crc(lib, cubin), code.symbol), [])
                if all(one.code != other.code for other in same):
                    same.append(one)
    return found


def matched_samples(lib: Cupti, samples: Sequence[PcSamples], codes: Codes, period: int) -> PcSampling:
    """Samples of recorded kernels by instruction, of the same kernels without marks by line, and the rest counted."""
    known = _known_codes(lib, codes)
    found: dict[tuple[int, str], dict[int, Counter[str]]] = {}
    for part in samples:
        for (crc, function, offset), counts in part.counts.items():
            found.setdefault((crc, function), {}).setdefault(offset, Counter()).update(counts)
    made: list[SampledCode] = []
    unknown = [kernel for kernel, code in codes.values() if _loaded_cubin(code) is None]
    problems = {f"{kernel}: its machine code was not kept, so it has no samples": None for kernel in unknown}
    other = 0
    for key, places in found.items():
        match known.get(key, []):
            case [one]:
                made += _by_line(lib, one, places) if one.plain else [_by_address(one, places)]
            case []:
                other += _sum(places)
            case [one, *_]:
                other += _sum(places)
                problems[f"{one.kernel}: CUPTI cannot tell two of its variants apart, so they have no samples"] = None
    return PcSampling(
        tuple(made),
        taken=sum(part.total for part in samples),
        dropped=sum(part.dropped for part in samples),
        other=other,
        overflows=sum(part.overflows for part in samples),
        period=period,
        problems=tuple(problems),
    )


def _by_address(one: _Known, places: Mapping[int, Counter[str]]) -> SampledCode:
    return SampledCode.of(one.kernel, one.digest, places, _sum(places))


def _by_line(lib: Cupti, one: _Known, places: Mapping[int, Counter[str]]) -> Iterator[SampledCode]:
    """The samples of a kernel without marks, one part for each of its source files."""
    files: dict[str, dict[int, Counter[str]]] = {}
    for offset, counts in places.items():
        file, line = source_line(lib, one.cubin, one.symbol, offset)
        files.setdefault(file, {}).setdefault(line, Counter()).update(counts)
    for file, lines in files.items():
        yield SampledCode.of(one.kernel, one.digest, lines, _sum(places), plain=True, file=file)


def _sum(places: Mapping[int, Counter[str]]) -> int:
    return sum(sum(counts.values()) for counts in places.values())
