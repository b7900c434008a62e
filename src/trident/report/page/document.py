"""Plain data -> one HTML file. It asks for nothing from anywhere, and its policy lets no script run but its own:
whatever the names in a record are, they are text."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
import zlib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from trident.report.records import plain
from trident.run_directory import write_text
from trident.sealed import read_bytes

WEB = files("trident.report.page").joinpath("web")
SCRIPTS = (
    "uplot/uPlot.iife.js", "elements.js", "charts.js", "tables.js", "summary.js", "compare.js", "scene.js", "player.js",
    "details.js", "live.js", "app.js",
)  # fmt: skip
"""In the order in which they need each other."""
STYLES = ("uplot/uPlot.min.css", "page.css")
PACKED = 200_000
"""Characters from which data are stored compressed."""
MOST_BYTES = 2**27
"""Of a page's data, unpacked."""


def write_page(path: Path, content: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, document(content))
    return path


def read_page(path: Path) -> Any:
    """The data of a page that was written before, as if a stranger had made it: ValueError where there are none."""
    found = re.search(r'<script type="application/(json|gzip)" id="data">([^<]*)</script>', read_bytes(path).decode())
    if found is None:
        raise ValueError("it holds no data")
    if found[1] == "json":
        return json.loads(found[2])
    unpack = zlib.decompressobj(wbits=31)
    try:
        text = unpack.decompress(base64.b64decode(found[2], validate=True), MOST_BYTES)
    except zlib.error as error:
        raise ValueError("its data are damaged") from error
    if not unpack.eof:
        raise ValueError("its data are longer than those of any page")
    return json.loads(text)


def document(content: dict[str, Any], live: dict[str, Any] | None = None) -> str:
    """The whole page; `live` tells it where newer data are to be had."""
    scripts = [_source(name) for name in SCRIPTS]
    styles = [_source(name) for name in STYLES]
    data = dict(_blocks(content, live))
    return "\n".join([
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts, styles, live is not None)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{html.escape(title_of(content))}</title>",
        '<link rel="icon" href="data:,">',
        *(f"<style>{text}</style>" for text in styles),
        "</head>",
        "<body>",
        '<noscript>This report draws itself with the scripts inside this file: please allow them.</noscript>',
        '<main id="page" aria-busy="true">Reading the report ...</main>',
        *(f'<script type="{kind}" id="{name}">{text}</script>' for name, (kind, text) in data.items()),
        *(f"<script>{text}</script>" for text in scripts),
        "</body>",
        "</html>",
        "",
    ])  # fmt: skip


def title_of(content: dict[str, Any]) -> str:
    runs = content["runs"]
    if len(runs) == 1:
        return runs[0].get("title", runs[0]["name"])
    return f"{len(runs)} runs"


def _source(name: str) -> str:
    text = WEB.joinpath(*name.split("/")).read_text(encoding="utf-8")
    if "</script" in text or "</style" in text or "<!--" in text:
        raise ValueError(f"{name} would end its own element")
    return text


def _policy(scripts: list[str], styles: list[str], live: bool) -> str:
    """Nothing from elsewhere, and no script or style but those whose fingerprints stand here. A live page may ask
    the server that it came from."""
    of = lambda texts: " ".join(f"'sha256-{_fingerprint(text)}'" for text in texts)  # noqa: E731
    ask = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {of(scripts)}; style-src {of(styles)}; img-src data: blob:; "
        f"connect-src {ask}; base-uri 'none'; form-action 'none'"
    )


def _fingerprint(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _blocks(content: dict[str, Any], live: dict[str, Any] | None) -> Iterator[tuple[str, tuple[str, str]]]:
    """Data as text that no browser takes for a script: JSON without "<", and compressed where it is long."""
    yield "data", packed(content)
    if live is not None:
        yield "live", ("application/json", as_json(live))


def packed(content: Any) -> tuple[str, str]:
    """(type, text) of a data block."""
    text = as_json(content)
    if len(text) < PACKED:
        return "application/json", text
    return "application/gzip", base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def as_json(content: Any) -> str:
    text = json.dumps(plain(content), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
