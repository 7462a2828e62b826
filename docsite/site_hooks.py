"""MkDocs hooks: pages that are not in docs/, the list of measurements, and links to files of the repository."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
ADDED = {"changelog.md": ROOT / "CHANGELOG.md", "site.css": ROOT / "docsite" / "site.css"}
RESULTS = "results/*"
_LINK = re.compile(r"(?<!\!)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """List the pages of measurements by name, so that a new one needs no line in the navigation."""
    for part in config["nav"]:
        for name, pages in part.items():
            if RESULTS in pages:
                found = sorted((ROOT / "docs" / "results").glob("*.md"))
                part[name] = [str(page.relative_to(ROOT / "docs")) for page in found]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that are not in docs/."""
    for name, source in ADDED.items():
        files.append(File.generated(config, name, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to files outside docs/ into the file's path: the site has no copy of the source."""
    folder = Path(page.file.abs_src_path).parent

    def plain(link: re.Match[str]) -> str:
        target = (folder / link["target"]).resolve()
        inside = target.is_relative_to(ROOT / "docs") and target.suffix
        if "://" in link["target"] or (inside and folder != ROOT):
            return link[0]
        if inside:  # from a page at the top of the repository
            return f"[{link['text']}]({os.path.relpath(target, ROOT / 'docs')}{link['anchor'] or ''})"
        path = os.path.relpath(target, ROOT)
        return link["text"] if link["text"] in (path, f"`{path}`") else f"{link['text']} (`{path}`)"

    return _LINK.sub(plain, markdown)
