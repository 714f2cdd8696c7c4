"""A Report as one HTML file that needs nothing else: no script, nothing fetched, all text escaped."""

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import metadata
from itertools import groupby
from pathlib import Path

import surefoot
from surefoot import files
from surefoot.report import Block, Checks, Details, Note, Picture, Plot, Report, Table, Text
from surefoot.verdict import Check
from surefoot.web.plot import figure, text
from surefoot.web.style import CSS

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def write(report: Report, path: Path) -> Path:
    """The report's page, written whole or not at all."""
    files.write(Path(path), page(report).encode())
    return Path(path)


def page(report: Report) -> str:
    facts = text(json.dumps(report.facts, indent=1, default=float))
    following = f'<p class="next">next: {text(report.next)}</p>' if report.next else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{text(report.title)}</title><style>{CSS}</style>'
        f"{_header(report)}{''.join(shown(report.blocks))}{following}"
        f"<details><summary>facts, as --json gives them</summary><pre>{facts}</pre></details></html>\n"
    )


def _header(report: Report) -> str:
    badge = ""
    if report.badge is not None:
        tone = {True: " good", False: " bad", None: ""}[report.badge.good]
        badge = f'<div class="badge{tone}">{text(report.badge.words)}</div>'
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "versions": _versions()} | dict(report.sources)
    rows = "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in about.items())
    return f"<header><div><h1>{text(report.title)}</h1>{badge}<dl>{rows}</dl></div>{_image(report.picture)}</header>"


def _versions() -> str:
    """Of what computes the numbers; nothing is imported for it."""
    return ", ".join([f"surefoot {surefoot.__version__}", *(f"{k} {metadata.version(k)}" for k in ("mujoco", "numpy"))])


def shown(blocks: Sequence[Block]) -> Iterator[str]:
    """Blocks in order; pictures that follow each other side by side."""
    for pictures, some in groupby(blocks, lambda b: isinstance(b, Picture)):
        if pictures:
            films = "".join(
                f"<figure>{_image(b)}<figcaption>{text(b.alt)}</figcaption></figure>"
                for b in some
                if isinstance(b, Picture)
            )
            yield f'<div class="films">{films}</div>'
        else:
            yield from map(_block, some)


def _block(block: Block) -> str:
    match block:
        case Text():
            return f'<p class="{block.tone}">{text(block.words)}</p>'
        case Note():
            kind = "warning" if block.warning else "note"
            return f'<p class="note {kind}"><strong>{kind}</strong> {text(block.words)}</p>'
        case Table():
            return _titled(block.title) + _table(block)
        case Checks():
            return _titled(block.title) + _checks(block.checks)
        case Plot():
            return _titled(block.title) + figure(block, _table)
        case Picture():
            return _image(block)
        case Details():
            return f"<details><summary>{text(block.title)}</summary>{''.join(shown(block.blocks))}</details>"
    raise TypeError(f"no such block: {block!r}")


def _titled(title: str) -> str:
    return f"<h2>{text(title)}</h2>" if title else ""


def _table(table: Table) -> str:
    kinds = [' class="num"' if c.form else "" for c in table.columns]
    head = "".join(f"<th{kind}>{text(c.head)}</th>" for c, kind in zip(table.columns, kinds))
    body = ""
    for i, row in enumerate(table.cells()):
        strong = ' class="strong"' if i in table.strong else ""
        body += f"<tr{strong}>" + "".join(f"<td{kind}>{text(cell)}</td>" for cell, kind in zip(row, kinds)) + "</tr>"
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _checks(checks: Sequence[Check]) -> str:
    """Each check in a row, and its evidence under it."""
    numbers = "".join(f'<th class="num">{name}</th>' for name in ("value", "limit", "interval"))
    rows = f"<tr><th></th><th>check</th>{numbers}</tr>"
    for c in checks:
        mark = (
            '<td class="mark good">&#10003; <span>pass</span></td>'
            if c.holds
            else '<td class="mark bad">&#10007; <span>FAIL</span></td>'
        )
        cells = "".join(f'<td class="num">{text(x)}</td>' for x in c.row()[2:5])
        rows += f'<tr class="asked{"" if c.holds else " strong"}">{mark}<td>{text(c.name)}</td>{cells}</tr>'
        rows += f'<tr class="evidence"><td></td><td colspan="4">{text(c.evidence)}</td></tr>'
    return f'<div class="scroll"><table>{rows}</table></div>'


def _image(picture: Picture | None) -> str:
    if picture is None:
        return ""
    coded = base64.b64encode(picture.data).decode()
    return f'<img alt="{text(picture.alt)}" src="data:image/{picture.kind};base64,{coded}">'
