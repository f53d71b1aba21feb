"""A strict reader of the pages under test: what a browser would forgive is an error here."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "path", "link", "input"})  # path: SVG in HTML, written as <path/>
_KNOWN = """
html head meta title style body main header h1 h2 h3 p span ul li dl dt dd div small section figure figcaption svg path
details summary table caption thead tbody tr th td footer code script
a b link label input nav ol time
"""
KNOWN = frozenset(_KNOWN.split())
_POINT = re.compile(r"([MLHV])([\d.-]+)(?: ([\d.-]+))?")


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    parent: "Element | None"
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str, kind: str = "") -> list["Element"]:
        found = [
            each for each in self.children if each.tag == tag and (not kind or kind in each.attributes.get("class", "").split())
        ]
        return found + [deeper for each in self.children for deeper in each.all(tag, kind)]

    @property
    def words(self) -> str:
        return self.text + "".join(child.words for child in self.children)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.at = Element("", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert tag in KNOWN, f"<{tag}> is none of ours"
        assert len(names) == len(set(names)), f"<{tag}> says something twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs}, self.at)
        self.at.children.append(element)
        if tag not in VOID or (tag == "path" and not (self.get_starttag_text() or "").endswith("/>")):
            self.at = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at.children.append(Element(tag, {name: value or "" for name, value in attrs}, self.at))

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> where <{self.at.tag}> is open"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.text += data


def read(html: str) -> Element:
    """The page's <html>. Raises AssertionError for what is not well-formed."""
    assert html.startswith("<!DOCTYPE html>\n")
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.at is reader.root, f"<{reader.at.tag}> is never closed"
    [found] = reader.root.children
    return found


def curve(plot: Element, name: str) -> list[tuple[float, float]]:
    """The values of a curve, put back through the axes of its plot, as page.js does."""
    x0, x1, _ = plot.attributes["data-x"].split()
    y0, y1, *kind = plot.attributes["data-y"].split()
    _, _, width, height = map(float, plot.all("svg")[0].attributes["viewbox"].split())
    [line] = [each for each in plot.all("path", "line") if each.attributes["data-name"] == name]
    points, x, y = [], 0.0, 0.0
    for word, first, second in _POINT.findall(line.attributes["d"]):
        x, y = (float(first), y) if word == "H" else (x, float(first)) if word == "V" else (float(first), float(second))
        share = 1 - y / height
        low, high = float(y0), float(y1)
        value = low * (high / low) ** share if "log" in kind else low + (high - low) * share
        points.append((float(x0) + (float(x1) - float(x0)) * x / width, value))
    return points
