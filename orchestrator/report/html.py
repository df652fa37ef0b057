"""Blocks as one HTML file that needs nothing else: pictures inside, no script, no network."""

from __future__ import annotations

import base64
import html as escaping
import re

from orchestrator.report.blocks import (
    Block,
    Bullets,
    Document,
    Heading,
    Link,
    Picture,
    Table,
    Text,
)

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #ffffff; --line: #d0d7de;
        --soft: #f6f8fa; --quiet: #59636e; --mark: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --soft: #161b22; --quiet: #9198a1;
          --mark: #56b4e9; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 940px; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.25; margin: 1.8em 0 .5em; } h1 { margin-top: 0; }
h2 { border-bottom: 1px solid var(--line); padding-bottom: .25em; }
.answer { font-size: 1.1rem; border-left: 4px solid var(--mark); background: var(--soft);
          padding: .6rem .9rem; }
.table { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
         font-variant-numeric: tabular-nums; vertical-align: top; }
th { background: var(--soft); } td + td { white-space: nowrap; }
td:last-child { white-space: normal; }
.note, figcaption { color: var(--quiet); font-size: .85rem; }
figure { margin: 1.2rem 0; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
code { background: var(--soft); padding: .1em .3em; border-radius: 4px; } a { color: var(--mark); }
"""


def html(document: Document) -> str:
    """The whole document; its first heading becomes the window's title."""
    title = next((b.text for b in document if isinstance(b, Heading)), "report")
    body = "\n".join(_block(block) for block in document)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaping.escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _block(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Text(text, strong):
            return f"<p{' class=answer' if strong else ''}>{_inline(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case Table():
            return _table(block)
        case Picture(_, caption, png):
            data = base64.b64encode(png).decode("ascii")
            words = _inline(caption)
            return (
                f'<figure><img alt="{escaping.escape(caption)}" src="data:image/png;base64,{data}">'
                f"<figcaption>{words}</figcaption></figure>"
            )
        case Link(text, page):
            return f'<p><a href="{escaping.escape(page)}.html">{_inline(text)}</a></p>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escaping.escape(c)}</th>" for c in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_inline(c)}</td>" for c in row) + "</tr>" for row in table.rows
    )
    note = f"<p class=note>{_inline(table.note)}</p>" if table.note else ""
    return (
        f"<div class=table><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        f"{note}"
    )


def _inline(text: str) -> str:
    """Escaped text with `code` and **bold**."""
    safe = escaping.escape(text)
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    return re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", safe)
