"""Readable text from documentation pages, with the standard library's parser.

Paragraphs become one line each, code blocks keep their line breaks and indentation, lists and tables become one line
per item or row. Navigation, side bars, tables of contents and permalink signs are dropped: they repeat on every page.
"""

from dataclasses import dataclass
from html.parser import HTMLParser

_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"),
)
_DROPPED_TAGS = frozenset(
    (
        *("head", "script", "style", "nav", "form", "svg", "button"),
        *("noscript", "template", "footer", "select", "textarea"),
    )
)
_DROPPED_CLASSES = frozenset(
    (
        *("headerlink", "viewcode-back", "viewcode-link", "related", "sphinxsidebar", "navheader", "navfooter"),
        *("toctree-wrapper", "toc", "contents", "nav", "footer", "mobile-nav", "indextable", "linenos", "copybutton"),
        *("modindex-jumpbox", "genindex-jumpbox", "breadcrumbs", "id_link"),
    )
)
_DROPPED_IDS = frozenset(("hd", "ft", "sidebar", "global-nav", "searchbox"))
_DROPPED_ROLES = frozenset(("navigation", "search", "banner", "contentinfo"))
_BLOCKS = frozenset(
    (
        *(
            "address",
            "article",
            "aside",
            "blockquote",
            "body",
            "caption",
            "dd",
            "details",
            "div",
            "dl",
            "dt",
            "fieldset",
        ),
        *("figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "li", "main", "ol", "p", "pre", "section"),
        *("summary", "table", "tbody", "tfoot", "thead", "tr", "ul"),
    )
)


@dataclass(frozen=True)
class PageText:
    """Text of one page; `link_share` is the share (0 to 1) of its visible characters that stand inside links."""

    text: str
    link_share: float


class _Extractor(HTMLParser):
    def __init__(self, code_only: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.code_only = code_only
        self.blocks: list[tuple[str, str]] = []
        self.buffer: list[str] = []
        self.open_tags: list[tuple[str, bool]] = []
        self.dropping = 0
        self.depth = {"pre": 0, "a": 0, "td": 0, "th": 0, "dt": 0}
        self.item_pending = False
        self.characters = 0
        self.link_characters = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            if tag == "br" and not self.dropping:
                self._line_break()
            return
        dropped = _is_dropped(tag, attrs)
        # A cell that holds whole paragraphs (signature, description, example) reads better as paragraphs than as a row.
        name = "div" if tag == "td" and "func_table_entry" in _classes(attrs) else tag
        self.open_tags.append((name, dropped))
        self.dropping += dropped
        if self.dropping:
            return
        if name in ("td", "th"):
            self.buffer.append(" | " if "".join(self.buffer).strip() else "")
        elif name in _BLOCKS:
            self._boundary()
        if name == "li":
            self.item_pending = True
        if name in self.depth:
            self.depth[name] += 1

    def handle_endtag(self, tag: str) -> None:
        matching = [i for i, (name, _) in enumerate(self.open_tags) if name == tag or (tag == "td" and name == "div")]
        if not matching:
            return
        # Whatever was left open inside (an unclosed <p> or <li>) ends here too.
        while len(self.open_tags) > matching[-1]:
            self._close(*self.open_tags.pop())

    def handle_data(self, data: str) -> None:
        if self.dropping:
            return
        self.buffer.append(data)
        visible = len("".join(data.split()))
        self.characters += visible
        if self.depth["a"]:
            self.link_characters += visible

    def _close(self, name: str, dropped: bool) -> None:
        if self.dropping:
            self.dropping -= dropped
            return
        if name in _BLOCKS:
            self._boundary()
        if name in self.depth:
            self.depth[name] -= 1

    def _line_break(self) -> None:
        if self.depth["pre"]:
            self.buffer.append("\n")
        elif self._in_cell():
            self.buffer.append(" ")
        else:
            self._flush("line")

    def _in_cell(self) -> bool:
        return bool(self.depth["td"] or self.depth["th"]) and self.open_tags[-1][0] != "tr"

    def _boundary(self) -> None:
        if self._in_cell():
            self.buffer.append(" ")
            return
        if self.depth["pre"]:
            # Blocks inside code (a wrapper per function) are no boundary; only the end of the code itself is.
            if self.open_tags[-1][0] == "pre" or not any(name == "pre" for name, _ in self.open_tags):
                self._flush("pre")
            return
        self._flush("term" if self.depth["dt"] else "text")

    def _flush(self, kind: str) -> None:
        raw = "".join(self.buffer)
        self.buffer.clear()
        if kind == "pre":
            text = "\n".join(line.rstrip() for line in raw.replace("\xa0", " ").split("\n")).strip("\n")
        else:
            text = " ".join(raw.split())
        if not text or (self.code_only and kind != "pre"):
            return
        if self.item_pending and kind != "pre":
            text, kind = f"- {text}", "item"
        elif " | " in text and kind == "text":
            kind = "row"
        self.item_pending = False
        self.blocks.append((kind, text))


def _classes(attrs: list[tuple[str, str | None]]) -> set[str]:
    return set((dict(attrs).get("class") or "").split())


def _is_dropped(tag: str, attrs: list[tuple[str, str | None]]) -> bool:
    named = dict(attrs)
    return (
        tag in _DROPPED_TAGS
        or bool(_classes(attrs) & _DROPPED_CLASSES)
        or named.get("id") in _DROPPED_IDS
        or named.get("role") in _DROPPED_ROLES
    )


def page_text(page: str, code_only: bool = False) -> PageText:
    """Text of an HTML page.

    Args:
        page: the page's source.
        code_only: keep the preformatted blocks alone, as for pages that show one source file.

    Returns:
        the text (it ends in one newline unless it is empty) and the share of it inside links.
    """
    parser = _Extractor(code_only)
    parser.feed(page)
    parser.close()
    while parser.open_tags:
        parser._close(*parser.open_tags.pop())
    parser._flush("text")
    pieces: list[str] = []
    previous = ""
    for kind, text in parser.blocks:
        tight = previous in ("term", "line") or (previous == kind and kind in ("item", "row"))
        pieces.append(("" if not pieces else "\n" if tight else "\n\n") + text)
        previous = kind
    joined = "".join(pieces)
    share = parser.link_characters / parser.characters if parser.characters else 0.0
    return PageText(joined + "\n" if joined else "", share)
