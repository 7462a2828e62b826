"""Checksums: no flipped bit of a trace file changes a row or a statistic without an error."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.synthetic_capture import make_capture
from warplens.commands import main
from warplens.decode import decode
from warplens.errors import CaptureError, WarplensError
from warplens.trace.checksums import KEY
from warplens.trace.model import empty_table

SMALL = [Span("a", 0, 10), Span("b", 2, 3), Span("v", 20, kind="value", value=2.0)]


def without_checksums(path: Path, target: Path) -> Path:
    """The file as an older warplens wrote it."""
    table = pq.read_table(path)
    kept = {key: value for key, value in table.schema.metadata.items() if key != KEY}
    pq.write_table(table.replace_schema_metadata(kept), target)
    return target


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def outcome(path: Path) -> object:
    """Everything that a trace says, or None where reading it raised a WarplensError."""
    try:
        loaded = wl.load(path)
        return loaded.spans.to_pylist(), loaded.stats().to_json(), loaded.meta
    except WarplensError:
        return None


def test_a_flipped_bit_at_any_byte_of_a_small_file_is_found(tmp_path: Path) -> None:
    path = make_trace(SMALL).save(tmp_path / "t.warplens")
    data, expected = path.read_bytes(), outcome(path)
    errors = 0
    for byte in range(0, len(data), 3):
        path.write_bytes(flipped(data, 8 * byte + byte % 8))
        found = outcome(path)
        assert found in (None, expected), f"byte {byte} changed the trace"
        errors += found is None
    assert errors > 0.99 * len(data) / 3, "only the first magic and the key of the checksums may change unseen"


def test_a_flipped_bit_anywhere_in_a_larger_file_is_found(tmp_path: Path) -> None:
    path = decode(make_capture(20_000, blocks=16, warps=4, sms=8)).save(tmp_path / "t.warplens")
    data, expected = path.read_bytes(), outcome(path)
    draw = random.Random(17)
    for _ in range(150):
        bit = draw.randrange(8 * len(data))
        path.write_bytes(flipped(data, bit))
        assert outcome(path) in (None, expected), f"bit {bit} changed the trace"


def test_the_pages_have_parquets_own_checksums_too(tmp_path: Path) -> None:
    path = decode(make_capture(4_000, blocks=8)).save(tmp_path / "t.warplens")
    data = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(0).column(11)
    data[chunk.data_page_offset + chunk.total_compressed_size - 9] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        pq.ParquetFile(path, page_checksum_verification=True).read()


def test_a_damaged_footer_is_one_error_that_says_so(tmp_path: Path) -> None:
    path = make_trace(SMALL).save(tmp_path / "t.warplens")
    data = path.read_bytes()
    path.write_bytes(flipped(data, 8 * (len(data) - 100)))
    with pytest.raises(CaptureError, match="checksum of its footer does not match"):
        wl.load(path)


def test_an_older_file_loads_and_says_that_it_is_unchecked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = make_trace(SMALL).save(tmp_path / "new.warplens")
    old = without_checksums(new, tmp_path / "old.warplens")
    assert wl.load(old).spans.equals(wl.load(new).spans)
    assert (wl.load(old).checked, wl.load(new).checked, make_trace(SMALL).checked) == (False, True, None)
    assert main(["info", str(old)]) == 0
    assert "no checksums" in capsys.readouterr().out
    assert main(["info", str(new)]) == 0
    assert "no checksums" not in capsys.readouterr().out


def test_a_trace_without_rows_has_checksums(tmp_path: Path) -> None:
    path = wl.Trace(empty_table()).save(tmp_path / "t.warplens")
    assert wl.load(path).checked
    assert len(wl.load(path).spans) == 0
