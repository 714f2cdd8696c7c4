"""A page of evidence that needs nothing but itself: tables, plots and pictures in one HTML file."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surefoot import files

STYLE = """
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:58rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;margin:.5rem 0}
td,th{padding:.25rem .8rem;text-align:left;border-bottom:1px solid #8884}th{font-weight:600}img{max-width:100%}
.good{color:#187a3c}.bad{color:#b3261e}figure{margin:1rem 0}figcaption{opacity:.75;font-size:.9rem}
"""


def text(words: Any) -> str:
    """Anything as harmless text: names from files are shown, never obeyed."""
    return html.escape(str(words))


def paragraph(words: str, kind: str = "") -> str:
    return f'<p class="{kind}">{text(words)}</p>'


def heading(words: str) -> str:
    return f"<h2>{text(words)}</h2>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    top = "".join(f"<th>{text(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{text(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def image(data: bytes, kind: str, caption: str) -> str:
    coded = base64.b64encode(data).decode()
    picture = f'<img alt="{text(caption)}" src="data:image/{kind};base64,{coded}">'
    return f"<figure>{picture}<figcaption>{text(caption)}</figcaption></figure>"


def plot(draw: Any, caption: str, size: tuple[float, float] = (8, 3)) -> str:
    """A matplotlib figure drawn by draw(axes), as inline SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    draw(figure.subplots())
    out = io.BytesIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return image(out.getvalue(), "svg+xml", caption)


def write(path: Path, title: str, parts: Sequence[str], facts: Mapping[str, Any]) -> Path:
    """The page, with the facts it was made from at its foot."""
    import json

    data = text(json.dumps(facts, indent=1, default=float))
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{text(title)}</title><style>{STYLE}</style><h1>{text(title)}</h1>{''.join(parts)}"
        f"<details><summary>facts</summary><pre>{data}</pre></details></html>"
    )
    files.write(Path(path), page.encode())
    return Path(path)
