"""The option that merges the variants of a kernel."""

from __future__ import annotations

import click

merge_variants_option = click.option(
    "--merge-variants",
    is_flag=True,
    help="Show one row per kernel, also where it ran with several grids, launch options or constants.",
)
