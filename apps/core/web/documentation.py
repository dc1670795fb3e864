"""Pages of the documentation that ships with the portal."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

if TYPE_CHECKING:
    from markdown_it.token import Token

_OTHER_PAGE = re.compile(r"([\w-]+)\.md(#.*)?")
_ELSEWHERE = ("http://", "https://", "mailto:", "#")
#: The pages by reader. A page that none lists comes last.
_SECTIONS = {
    "Start here": "first-steps glossary",
    "Requests": (
        "requests workflows checks approvals priority progress files datasets combine-and-split "
        "data-quality"
    ),
    "Jobs and failures": (
        "jobs phases search diagnosis where-else hosts recovery submission archive notifications "
        "monitoring"
    ),
    "Run the portal": (
        "demo production scale-out failure-drills administration settings security "
        "single-sign-on slurm torque htcondor elasticsearch kafka catalogues"
    ),
    "Use it from programs": "api events experiment-packs",
    "Develop it": "architecture development measurements adding-a-scheduler",
}
_HEADING = re.compile(r'<h2 id="([^"]+)">(.*)</h2>')


@dataclass(frozen=True)
class Document:
    """A page as HTML; `headings` are anchor and text of its sections."""

    title: str
    html: SafeString
    headings: tuple[tuple[str, SafeString], ...] = ()


@cache
def titles() -> Mapping[str, str]:
    """Return the titles of the pages in `docs/` by name."""
    files = sorted((settings.BASE_DIR / "docs").glob("*.md"))
    return {
        file.stem: file.open(encoding="utf-8").readline().lstrip("# ").rstrip() for file in files
    }


@cache
def page(name: str) -> Document:
    """Return one of these pages as HTML; its first heading is the title."""
    text = (settings.BASE_DIR / "docs" / f"{name}.md").read_text(encoding="utf-8")
    html = html_of(text.partition("\n")[2], titles().keys())
    headings = []
    for line in html.splitlines():
        heading = _HEADING.fullmatch(line)
        if heading:
            # Safe: it is part of the HTML above.
            headings.append((heading[1], mark_safe(heading[2])))  # noqa: S308
    return Document(titles()[name], html, tuple(headings))


@cache
def sections() -> Sequence[tuple[str, Sequence[tuple[str, str]]]]:
    """Return the label of each section, with name and title of its pages."""
    left = dict(titles())
    listed = []
    for label, names in _SECTIONS.items():
        listed.append((label, [(name, left.pop(name)) for name in names.split() if name in left]))
    if left:
        listed.append(("More", list(left.items())))
    return listed


def html_of(text: str, names: Collection[str]) -> SafeString:
    """Return Markdown as HTML.

    Raw HTML is escaped. Links to pages other than `names` lose their target.
    """
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(text)
    for opening, inline in zip(tokens, [*tokens[1:], None], strict=True):
        if opening.type == "heading_open" and inline is not None:
            opening.attrSet("id", _anchor(inline.content))
        if opening.children:
            opening.children = _with_addresses(opening.children, names)
    # Safe: the renderer escapes text and raw HTML, and rejects URLs such as javascript:.
    html = markdown.renderer.render(tokens, markdown.options, {})
    number = count(1)
    region = '<div class="scroll" tabindex="0" role="region" aria-label="Table {}"><table>'
    html = re.sub("<table>", lambda _: region.format(next(number)), html).replace(
        "</table>", "</table></div>"
    )
    # Long lines scroll within their block, which is reachable by keyboard.
    examples = count(1)
    example = '<pre tabindex="0" role="region" aria-label="Example {}">'
    html = re.sub("<pre>", lambda _: example.format(next(examples)), html)
    return mark_safe(html)  # noqa: S308


def _with_addresses(tokens: "Sequence[Token]", names: Collection[str]) -> "list[Token]":
    """Return inline content with links to the portal's pages, and images replaced by their text."""
    from markdown_it.token import Token

    kept = []
    drops = 0
    for token in tokens:
        if token.type == "link_open":
            address = _address(str(token.attrs["href"]), names)
            drops += not address
            token.attrs["href"] = address
            if not address:
                continue
        elif token.type == "link_close" and drops:
            drops -= 1
            continue
        kept.append(Token("text", "", 0, content=token.content) if token.type == "image" else token)
    return kept


def _address(address: str, names: Collection[str]) -> str:
    if address.startswith(_ELSEWHERE):
        return address
    page = _OTHER_PAGE.fullmatch(address)
    if page is None or page[1] not in names:
        return ""
    return reverse("core:help", args=[page[1]]) + (page[2] or "")


def _anchor(heading: str) -> str:
    """Return the anchor of a heading as GitHub generates it.

    For example, `The approver's desk` becomes `the-approvers-desk`.
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@require_safe
def contents(request: HttpRequest) -> HttpResponse:
    """List all pages by section."""
    return render(request, "core/help_contents.html", {"contents": sections()})


@require_safe
def help_page(request: HttpRequest, document: str) -> HttpResponse:
    """Show one page of `docs/`. Only names of existing pages are opened."""
    if document not in titles():
        raise Http404
    context = {"document": document, "contents": sections(), "page": page(document)}
    return render(request, "core/help.html", context)
