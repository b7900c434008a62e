"""Pages link to files of the repository that are not part of the site: there they are named instead."""

import re
from typing import Any

OUTSIDE = re.compile(r"(?<!!)\[([^]]+)]\(\.\./([^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """[text](../path) -> text (`path`), or the path alone where the text is its name."""
    return OUTSIDE.sub(lambda found: _named(*found.groups()), markdown)


def _named(text: str, path: str) -> str:
    return f"`{path}`" if text == path.rpartition("/")[2] else f"{text} (`{path}`)"
