"""A folder with a `torch` that has as much of torch.distributed as a process needs to join a job."""

from __future__ import annotations

from pathlib import Path

_C10D = """
_joined = []

def init_process_group(backend=None, *, rank=0, world_size=1):
    _joined[:] = [rank, world_size]

def destroy_process_group(group=None):
    _joined.clear()

def is_initialized():
    return bool(_joined)

def get_rank(group=None):
    return _joined[0]

def get_world_size(group=None):
    return _joined[1]
"""


def put_torch(folder: Path) -> Path:
    """Write the package into a folder, which is to be on PYTHONPATH."""
    package = folder / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "distributed_c10d.py").write_text(_C10D)
    (package / "__init__.py").write_text(
        "from torch.distributed import device_mesh\n"
        "from torch.distributed.distributed_c10d import *\n"
        "def is_available():\n    return True\n"
    )
    (package / "device_mesh.py").write_text("from torch.distributed.distributed_c10d import init_process_group\n")
    return folder
