"""Check a built site: every link and anchor leads somewhere, and nothing is loaded from the network.

Run: python docsite/check_site.py build/site
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_NOT_LOADED = {"canonical", "prev", "next", "alternate"}
_CSS_ADDRESS = re.compile(r"(?:url\(|@import )[\"']?(https?:)?//")


class PageLinks(HTMLParser):
    """The anchors of a page, where its links lead, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _LOADED and given.get("rel") not in _NOT_LOADED and given.get(_LOADED[tag]):
            self.loaded.append(given[_LOADED[tag]])


def problems(site: Path) -> list[str]:
    """Every link that leads nowhere, and every address that a browser would load from the network."""
    pages = {path: PageLinks(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found: list[str] = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {one}" for one in page.loaded if re.match(r"(https?:)?//", one)]
        for link in page.links + page.loaded:
            if re.match(r"\w+:|//", link):
                continue
            target, anchor = urldefrag(link)
            base = site if target.startswith("/") else path.parent
            file = (base / unquote(target).lstrip("/")).resolve() if target else path
            if not file.is_file():
                found.append(f"{name}: {link} does not exist")
            elif anchor and file in pages and unquote(anchor) not in pages[file].anchors:
                found.append(f"{name}: {link} has no such anchor")
    styles = [path for path in site.rglob("*.css") if _CSS_ADDRESS.search(path.read_text(encoding="utf-8"))]
    return found + [f"{path.relative_to(site)}: loads from the network" for path in styles]


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    found = problems(site)
    print("\n".join(found) if found else f"{len(list(site.rglob('*.html')))} pages, every link leads somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
