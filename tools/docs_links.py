"""A hook of mkdocs: links from docs/ to other files of the repository.

Such a file is not a page of the site, so its link becomes the file's name in code. A link to a missing file is a warning, which
fails a strict build.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(((?:\.\./)+[^)\s#]+)(?:#[^)]*)?\)")
log = logging.getLogger("mkdocs.hooks.docs_links")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Returns the text of a page with links out of docs/ replaced."""
    source = str(page.file.src_uri)

    def replaced(link: re.Match[str]) -> str:
        target = outside(source, link[2])
        if target is None:
            return link[0]
        if not (ROOT / target).exists():
            log.warning("%s links to %s, which does not exist", source, target)
        label = link[1].strip("`")
        return f"`{target}`" if label == target or label == posixpath.basename(target) else f"{link[1]} (`{target}`)"

    return LINK.sub(replaced, markdown)


def outside(source: str, target: str) -> str | None:
    """Returns the path in the repository of a link's target outside docs/, else None."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), target))
    return None if path.startswith("docs/") else path
