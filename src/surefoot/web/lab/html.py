"""A page's blocks as HTML inside viser's panel: the design of every other page, kept from touching viser's own."""

from collections.abc import Sequence

from surefoot.report import Block
from surefoot.web.page import shown
from surefoot.web.plot import text
from surefoot.web.style import CSS

INSIDE = CSS.replace(":root", "&").replace("body{", "&{")
STYLE = (
    f"<style>.surefoot{{{INSIDE}}}.surefoot{{font-size:13px;line-height:1.45;padding:.3rem .8rem;max-width:none}}"
    ".surefoot h2{font-size:1rem;margin:.8rem 0 .2rem}.surefoot .plot>svg{height:11rem}"
    ".surefoot table{font-size:.88em}.surefoot th,.surefoot td{padding:.25rem .45rem}.surefoot th{white-space:normal}"
    ".surefoot .said{display:flex;gap:.5rem;align-items:baseline;margin:.3rem 0}"
    ".surefoot .said code{flex:1;background:var(--box);border:1px solid var(--line);border-radius:.3rem;padding:.25rem .5rem;"
    "overflow-wrap:anywhere;user-select:all}.surefoot .said button{font:inherit;cursor:pointer;color:var(--ink);"
    "background:var(--box);border:1px solid var(--line);border-radius:.3rem;padding:.15rem .6rem}"
    # viser's panel on a phone is 20 em wide: here it is as wide as the phone
    "@media (max-width:36em){.mantine-Paper-root:has(.surefoot),.mantine-Paper-root:has(.surefoot) div[style*='width: 20em']"
    "{width:100%!important}}</style>"
)
COPY = "navigator.clipboard.writeText(this.dataset.words);this.textContent='copied'"
LINK = "navigator.clipboard.writeText(location.origin+this.dataset.words);this.textContent='copied'"


def inside(content: str) -> str:
    return f'<div class="surefoot">{content}</div>'


def head(title: str, about: str) -> str:
    return STYLE + inside(f"<h2>{text(title)}</h2><p>{text(about)}</p>")


def body(blocks: Sequence[Block]) -> str:
    return inside("".join(shown(tuple(blocks))))


def foot(command: str, link: str) -> str:
    """The command line that does the same, and the page's address, each with a button that copies it."""
    rows = ((command, command, COPY, "copy as command"), (link.rpartition("/")[2], link, LINK, "copy link"))
    return inside(
        "".join(
            f'<div class="said"><code>{text(shown_)}</code><button type="button" data-words="{text(words)}" '
            f'onclick="{script}">{label}</button></div>'
            for shown_, words, script, label in rows
        )
    )
