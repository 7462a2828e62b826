"""Capture files: what is written is what is read, and anything else is one clear error."""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import warplens as wl
from warplens.decode import decode
from warplens.errors import CaptureError, WarplensError
from warplens.record.capture import MAGIC, Capture, Device, Launch, read_capture, write_capture
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter


def sample(values: bool = True) -> Capture:
    tracks = []
    for warp in range(3):
        writer = TrackWriter(24, block=1, warp=warp, sm=5)
        writer.start(1000, 5000)
        for i in range(4):
            writer.record(Kind.BEGIN, 1, 1100 + 100 * i)
            if values:
                writer.value(2, 1120 + 100 * i, float(i))
            writer.record(Kind.END, 1, 1150 + 100 * i)
        writer.exit(2000, 5500)
        tracks.append(writer.to_bytes())
    launch = Launch(
        "gemm", (2, 1, 1), (96, 1, 1), {1: "load", 2: "k"}, 24, np.concatenate(tracks), cost={"finalize_ns": 1.5}
    )
    return Capture([launch, launch], Device("H200", 0, 132, "9.0", 1980.0), rank=3, cost={"x": 2.0})


def test_round_trip(tmp_path: Path) -> None:
    path = write_capture(sample(), tmp_path / "c.wlcap")
    back = read_capture(path)
    assert (back.device, back.rank, back.cost) == (sample().device, 3, {"x": 2.0})
    for launch, original in zip(back.launches, sample().launches, strict=True):
        assert launch.raw.tobytes() == original.raw.tobytes()
        assert (launch.kernel, launch.grid, launch.regions, launch.cost) == (
            "gemm",
            (2, 1, 1),
            {1: "load", 2: "k"},
            {"finalize_ns": 1.5},
        )
    assert len(wl.load(path)) == 2 * 3 * 8
    assert os.listdir(tmp_path) == ["c.wlcap"], "no temporary file may be left"


def test_a_launch_on_another_gpu_keeps_it(tmp_path: Path) -> None:
    here, other = sample().launches[0], replace(sample().launches[0], device=Device("H100", 1, 114, "9.0", 1755.0))
    back = read_capture(write_capture(replace(sample(), launches=[here, other]), tmp_path / "c.wlcap"))
    assert [launch.device for launch in back.launches] == [None, other.device]
    trace = decode(back)
    assert [info.device for info in trace.meta.launches] == [0, 1]
    assert {index: device["name"] for index, device in trace.meta.devices.items()} == {"0": "H200", "1": "H100"}
    assert trace.spans["device"].to_pylist() == [0] * 24 + [1] * 24


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_capture(sample(), tmp_path / "c.wlcap")
    before = path.read_bytes()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("warplens.files.os.replace", crash)
    with pytest.raises(KeyboardInterrupt):
        write_capture(sample(values=False), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["c.wlcap"]


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = write_capture(sample(), tmp_path / "c.wlcap")
    with pytest.raises(WarplensError, match="already exists; pass --force"):
        write_capture(sample(), path, force=False)


def _document(path: Path) -> tuple[dict, bytes]:
    data = path.read_bytes()
    _, _, length, _, _ = struct.unpack_from("<8s4I", data)
    return json.loads(data[24 : 24 + length]), data[-(-(24 + length) // 64) * 64 :]


def _rewrite(path: Path, document: object, body: bytes, version: int = 1) -> None:
    text = json.dumps(document).encode()
    head = struct.pack("<8s4I", MAGIC, version, len(text), zlib.crc32(text), 0) + text
    path.write_bytes(head + b"\0" * (-len(head) % 64) + body)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "not a warplens capture"),
        (lambda data: b"PK\x03\x04" + data[4:], "not a warplens capture"),
        (lambda data: data[:20], "header"),
        (lambda data: data[:200], "checksum or length"),
        (lambda data: data[:-700], "truncated"),
        (lambda data: data[:8] + struct.pack("<I", 99) + data[12:], "newer than 1, the latest supported; upgrade"),
        (lambda data: data[:-600] + b"\x55" + data[-599:], "checksum does not match"),
    ],
)
def test_damaged_files_name_the_file_and_the_field(tmp_path: Path, change, message: str) -> None:
    path = write_capture(sample(), tmp_path / "c.wlcap")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CaptureError, match=message) as caught:
        read_capture(path)
    assert str(path) in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capacity", -1), ("capacity", 10**9), ("stride", 7), ("grid", [0, 1, 1]), ("grid", [1, 1]), ("grid", "abc"),
        ("block", [4096, 1, 1]), ("full", "sideways"), ("clock", "sundial"), ("regions", {"x": "load"}),
        ("regions", {"99999999999": "load"}), ("offset", -5), ("size", 10**12), ("regions", None),
        ("cost", {"wait_ns": 9e200}), ("cost", {"wait_ns": float("nan")}),
    ],
)  # fmt: skip
def test_impossible_fields_are_one_clear_error(tmp_path: Path, field: str, value: object) -> None:
    path = write_capture(sample(), tmp_path / "c.wlcap")
    document, body = _document(path)
    document["launches"][0][field] = value
    _rewrite(path, document, body)
    with pytest.raises(CaptureError):
        read_capture(path)


@pytest.mark.slow  # a few seconds of such cases, of a wider kind, are in tests/fuzz
def test_ten_thousand_corruptions_never_crash_nor_invent_spans(tmp_path: Path) -> None:
    """Half hit the file (the checksums must notice), half hit the records with the checksums made good again."""
    rng = np.random.default_rng(7)
    path = write_capture(sample(), tmp_path / "c.wlcap")
    data = np.frombuffer(path.read_bytes(), np.uint8)
    damaged = tmp_path / "d.wlcap"
    whole = sample()
    noticed = survived = 0
    for case in range(10_000):
        if case % 2:
            bad = data.copy()
            at = rng.integers(0, len(bad), rng.integers(1, 9))
            bad[at] ^= rng.integers(1, 256, len(at)).astype(np.uint8)
            damaged.write_bytes(bad[: rng.integers(0, len(bad))].tobytes() if case % 4 == 1 else bad.tobytes())
            try:
                capture = read_capture(damaged)
            except CaptureError:
                noticed += 1
                continue
        else:
            raw = whole.launches[0].raw.copy()
            at = rng.integers(0, len(raw), rng.integers(1, 64))
            raw[at] = rng.integers(0, 256, len(at)).astype(np.uint8)
            launch = whole.launches[0]
            capture = Capture(
                [
                    Launch(
                        "k",
                        launch.grid,
                        launch.block,
                        launch.regions,
                        launch.capacity,
                        raw,
                        ("stop", "ring")[case // 2 % 2],
                    )
                ]
            )
        trace = decode(capture, native=case % 3 != 0)
        assert len(trace) <= sum(launch.tracks * launch.capacity for launch in capture.launches)
        assert (trace.numpy("dur_cycles") >= 0).all()
        survived += 1
    assert noticed > 4000
    assert survived > 5000
