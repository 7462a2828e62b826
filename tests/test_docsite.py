"""The documentation site: generated pages are up to date, every page is listed, and broken links are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docsite import check_site, reference_pages
from docsite.docstring_markdown import markdown_of
from tests.support.paths import ROOT


@pytest.mark.parametrize(("name", "text"), reference_pages.pages().items(), ids=lambda value: value.split("\n")[0])
def test_reference_pages_are_up_to_date(name: str, text: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == text, "run `make reference`"


def test_reference_has_every_verb_option_and_public_name() -> None:
    pages = reference_pages.pages()
    assert "## sensitivity" in pages["cli.md"]
    assert "| `--fail-on" in pages["cli.md"]
    for heading in ("### wl.profile", "### wl.Trace", "#### wl.Trace.export", "### Finding"):
        assert f"\n{heading}\n" in pages["python.md"]
    assert "| `records_per_warp` | number of records" in pages["python.md"]
    assert "\n## region\n" in pages["triton.md"]


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"(\S+\.md)$", (ROOT / "docsite" / "mkdocs.yml").read_text(), re.MULTILINE)
    docs = ROOT / "docs"
    pages = [str(page.relative_to(docs)) for page in docs.rglob("*.md") if page.parent.name != "results"]
    assert sorted(listed) == sorted([*pages, "changelog.md"])


def test_docstrings_become_code_and_tables() -> None:
    text = "Do it.\n\n    run(1)\n\n    run(2)\n\nWhere\na, b  what\n      for | it\nc     why"
    assert markdown_of(text) == (
        "Do it.\n\n<!-- fragment -->\n```python\nrun(1)\n\nrun(2)\n```\n\n**Where**\n\n"
        "| name | meaning |\n| --- | --- |\n| `a, b` | what for \\| it |\n| `c` | why |"
    )


def test_links_that_lead_nowhere_and_addresses_of_the_network_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="top"></h1><a href="b.html#here">b</a><a href="https://example.com">c</a>')
    (tmp_path / "b.html").write_text('<a name="here"></a><a href="#there"></a><a href="/c.html"></a>')
    (tmp_path / "c.html").write_text('<script src="https://cdn.example/x.js"></script><img src="none.png">')
    (tmp_path / "d.css").write_text("@font-face { src: url(https://fonts.example/x) }")
    assert sorted(check_site.problems(tmp_path)) == [
        "b.html: #there has no such anchor",
        "c.html: loads https://cdn.example/x.js",
        "c.html: none.png does not exist",
        "d.css: loads from the network",
    ]
