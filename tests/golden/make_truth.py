"""Make tests/golden/truth from a run of the truth set: `python tests/golden/make_truth.py FOLDER`.

FOLDER is what `python -m benchmarks.truth --out FOLDER` wrote on a GPU. The traces with hand-written marks are stored
as they are, or compressed again where that is smaller, with the times and causes of truth.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

from warplens.trace import checksums

TARGET = Path(__file__).with_name("truth")
KEPT = ("language", "cause", "change", "times", "kernel_us", "gain", "errors")


def copy_trace(source: Path, target: Path) -> None:
    """Copy a trace with the encoding that takes less room."""
    target.write_bytes(source.read_bytes())
    again = target.with_suffix(".again")
    table = pq.read_table(source)
    known = {**table.schema.metadata, checksums.KEY: checksums.placeholder(table.num_columns)}
    with again.open("w+b") as out:
        pq.write_table(
            table.replace_schema_metadata(known),
            out,
            compression="zstd",
            compression_level=19,
            row_group_size=1 << 20,
            use_dictionary=False,
            write_page_checksum=True,
        )
        checksums.fill(out, checksums.sums_of(out))
    if again.stat().st_size < target.stat().st_size:
        again.replace(target)
    else:
        again.unlink()


def main(folder: Path) -> None:
    TARGET.mkdir(exist_ok=True)
    for source in sorted(folder.glob("*.warplens")):
        if ".auto." not in source.name:
            copy_trace(source, TARGET / source.name)
    document = json.loads((folder / "truth.json").read_text())
    for name, found in document["pairs"].items():
        document["pairs"][name] = {key: found[key] for key in KEPT if key in found}
    (TARGET / "truth.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{sum(path.stat().st_size for path in TARGET.iterdir()):,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
