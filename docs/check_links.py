"""Checks that every link inside a built site leads to a file and, if it names one, to an anchor in it.

    python docs/check_links.py docs/_build/html

It needs no network: links to other sites are left to `make docs-links`. The exit status is 1 if a link leads nowhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

MADE_BY_SPHINX = {"genindex.html", "search.html", "py-modindex.html"}
"""Pages without text of ours; the index has a link for each name, which the pages of these names have too."""


class _Page(HTMLParser):
    """The anchors of a page, and the links in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {name for name in (given.get("id"), given.get("name")) if name}
        self.links += [link for link in (given.get("href"), given.get("src")) if link]
        if tag == "meta" and given.get("http-equiv") == "refresh":
            self.links.append((given.get("content") or "").partition("url=")[2])


def broken_links(site: Path) -> list[str]:
    """Returns a line "page: link" for each link inside `site`, a folder of HTML files, that leads nowhere.

    Raises:
      FileNotFoundError: the folder holds no HTML file.
    """
    pages = sorted(path for path in site.rglob("*.html") if path.name not in MADE_BY_SPHINX)
    if not pages:
        raise FileNotFoundError(f"no HTML file in {site}: build the site first (make docs)")
    read = cache(_Page)
    links = ((page, link) for page in pages for link in read(page).links)
    return [f"{page.relative_to(site)}: {link}" for page, link in links if _is_broken(page, link, read)]


def _is_broken(page: Path, link: str, read: Callable[[Path], _Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.exists():
        return True
    anchor = unquote(parts.fragment)
    return bool(anchor) and target.suffix == ".html" and anchor not in read(target).anchors


def main(arguments: list[str]) -> int:
    """Prints the broken links of the site in the folder `arguments[0]`; returns 1 if there are any."""
    site = Path(arguments[0]).resolve()
    broken = broken_links(site)
    for line in dict.fromkeys(broken):
        print(f"leads nowhere: {line}", file=sys.stderr)
    print(f"{len(list(site.rglob('*.html')))} pages in {site.name}, {len(broken)} links that lead nowhere")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
