"""One self-contained HTML file that works offline and sends no request.

Styles, script, pictures and data are inside; a content security policy forbids everything else.
Equal pages have equal bytes.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from djepa.artefacts.store import locate
from djepa.errors import DjepaError
from djepa.files import naming, write_atomically
from djepa.report.tables import Table, numeric

KINDS = {".png": "image/png", ".svg": "image/svg+xml", ".gif": "image/gif"}
DATA = {".csv": "text/csv", ".json": "application/json", ".gz": "application/gzip"}
MOST = 1 << 20  # bytes of a figure's data that are still included in the page


@dataclass(frozen=True)
class Figure:
    """A picture, and the numbers it was drawn from."""

    title: str
    caption: str
    file: Path  # png, svg or gif
    data: Path | None = None


@dataclass(frozen=True)
class Section:
    """Paragraphs of plain text with the markup of `inline`; then tables and figures."""

    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Headline:
    """One number at the top."""

    label: str
    value: str
    interval: str = ""
    note: str = ""


@dataclass(frozen=True)
class Page:
    """The whole page. `inspector` is what `inspect` returns, or several of those."""

    title: str
    subtitle: str
    headlines: tuple[Headline, ...] = ()
    sections: tuple[Section, ...] = ()
    inspector: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    footer: str = ""
    maker: str = "djepa"  # the command, which may overwrite its own pages


def write_page(path: Path | str, page: Page) -> Path:
    """Write the page as one file and return its path."""
    target = locate(path)
    text = _document(page)
    with naming(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text.encode())
    return target


def inline(text: str) -> str:
    """Plain text as HTML; the only markup is **bold**, `code` and [a page](x/report.html). Links
    lead only to pages beside this one.
    """
    safe = html.escape(text)
    parts = re.split(r"`([^`]+)`", safe)  # odd ones are code, in which ** stays
    for i, part in enumerate(parts):
        marked = _LINK.sub(r'<a href="\2">\1</a>', _BOLD.sub(r"<strong>\1</strong>", part))
        parts[i] = f"<code>{part}</code>" if i % 2 else marked
    return "".join(parts)


_BOLD = re.compile(r"\*\*(.+?)\*\*")
_LINK = re.compile(r"\[([^\]]+)\]\(((?:[\w-]+/)*[\w-]+\.html)\)")


def _document(page: Page) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    names = [section.title for section in page.sections]
    anchors = {f"s{i}": name for i, name in enumerate(names, 1)}
    blocks = [_section(f"s{i}", section) for i, section in enumerate(page.sections, 1)]
    data = ""
    if page.inspector:
        anchors["inspector"] = "Decision inspector"
        blocks.append(_INSPECTOR)
        data = (
            f'<script type="application/json" id="inspector-data">{_json(page.inspector)}</script>'
        )
    policy = (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return _SHELL.format(
        policy=html.escape(policy, quote=False),
        maker=html.escape(page.maker),
        title=html.escape(page.title),
        style=style,
        nav=_nav(anchors),
        head=f"<h1>{inline(page.title)}</h1>\n<p class='lead'>{inline(page.subtitle)}</p>",
        cards=_cards(page.headlines),
        blocks="\n".join(blocks),
        footer=f"<footer>{inline(page.footer)}</footer>" if page.footer else "",
        data=data,
        script=script,
    )


def _nav(anchors: Mapping[str, str]) -> str:
    links = "".join(
        f'<li><a href="#{key}">{inline(name)}</a></li>' for key, name in anchors.items()
    )
    return f'<nav aria-label="Contents"><p>Contents</p><ol>{links}</ol></nav>' if links else ""


def _cards(headlines: Sequence[Headline]) -> str:
    cards = []
    for one in headlines:
        rest = f'<span class="interval">{inline(one.interval)}</span>' if one.interval else ""
        note = f"<p>{inline(one.note)}</p>" if one.note else ""
        cards.append(
            f'<li class="card"><h2>{inline(one.label)}</h2>'
            f'<div class="value">{inline(one.value)}</div>{rest}{note}</li>'
        )
    return f'<ul class="cards" aria-label="Headlines">{"".join(cards)}</ul>' if cards else ""


def _section(key: str, section: Section) -> str:
    parts = [f"<h2>{inline(section.title)}</h2>"]
    parts += [f"<p>{inline(text)}</p>" for text in section.text]
    parts += [_table(table) for table in section.tables]
    parts += [_figure(figure) for figure in section.figures]
    return f'<section id="{key}">\n' + "\n".join(parts) + "\n</section>"


def _table(table: Table) -> str:
    kinds = [' class="n"' if right else "" for right in numeric(table)]
    head = "".join(
        f'<th scope="col"{kind}>{inline(name)}</th>'
        for name, kind in zip(table.columns, kinds, strict=True)
    )
    body = []
    for first, group in groupby(table.rows, key=lambda row: row[0]):
        rows = list(group)  # with equal first cells, which are shown once
        kind = f'scope="rowgroup" rowspan="{len(rows)}"' if len(rows) > 1 else 'scope="row"'
        head_cell = f"<th {kind}>{inline(first)}</th>"
        for i, (_, *others) in enumerate(rows):
            cells = zip(others, kinds[1:], strict=True)
            rest = "".join(f"<td{number}>{inline(cell)}</td>" for cell, number in cells)
            body.append(f"<tr>{'' if i else head_cell}{rest}</tr>")
    return (
        f'<figure class="table"><figcaption><b>{inline(table.title)}</b> {inline(table.note)}'
        f'</figcaption><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{html.escape(table.title)}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div></figure>"
    )


def _figure(figure: Figure) -> str:
    kind = KINDS.get(figure.file.suffix.lower())
    if kind is None:
        raise DjepaError(f"{figure.file} is no png, svg or gif; a page shows only those.")
    return (
        f'<figure class="plot"><img src="{_uri(figure.file, kind)}" '
        f'alt="{html.escape(figure.title)}"><figcaption><b>{inline(figure.title)}</b> '
        f"{inline(figure.caption)}{_download(figure.data)}</figcaption></figure>"
    )


def _download(file: Path | None) -> str:
    """A link that saves the data of a figure; for large files only the name."""
    if file is None:
        return ""
    name = html.escape(file.name)
    if len(_bytes(file)) > MOST:
        return f' <span class="data">Data: {name}</span>'
    uri = _uri(file, DATA.get(file.suffix.lower(), "application/octet-stream"))
    return f' <a class="data" download="{name}" href="{uri}">Data: {name}</a>'


def _uri(file: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(_bytes(file)).decode()}"


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DjepaError(f"Cannot read {file} for the page: {error.strerror}.") from None


def _json(inspector: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> str:
    """JSON that cannot close its HTML element."""
    pools = [inspector] if isinstance(inspector, Mapping) else list(inspector)
    text = json.dumps(pools, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _asset(name: str) -> str:
    return (files("djepa.report") / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_INSPECTOR = """<section id="inspector" aria-label="Decision inspector">
<h2>Decision inspector</h2>
<noscript><p>This part needs JavaScript; everything above does not.</p></noscript>
<div id="inspector-root"></div>
</section>"""

_SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="{maker}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the text</a>
<div class="layout">
{nav}
<main id="main">
<header>
<button id="theme" type="button" hidden aria-pressed="false">Dark</button>
{head}
</header>
{cards}
{blocks}
{footer}
</main>
</div>
{data}
<script>{script}</script>
</body>
</html>
"""
