"""Templates keep the order of the apps: one uses only what its own app or a lower one owns."""

import re
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest
from django.conf import settings
from django.urls import URLResolver, get_resolver

from dev.plain import VAGUE_NAMES

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
MODULES = [
    path for path in sorted((ROOT / "apps").glob("*/**/*.py")) if "migrations" not in path.parts
]
#: Templates outside of a folder are the frame of all pages, those of `admin` that of the back
#: office. They are the portal's, and any page extends them.
FRAME = "portal"
_TAG = re.compile(r"{%\s*(extends|include|load|url)\s+(.+?)\s*%}")
#: Names of URLs that are not written in the template come from the portal's frame, or are the
#: admin's own.
FROM_THE_FRAME = {"link", "place"}
_WORD = re.compile(r"[a-zA-Z][\w-]*")
#: Classes that templates and charts make of a prefix and a state or number, and those of htmx.
_MADE = re.compile(r"(?:f|s|is|as|level|htmx)-[a-z\d]+|p\d+")


def apps_in_order() -> list[str]:
    """The apps, highest first, as the import contract has them."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    return contracts["importlinter:contract:apps"]["layers"].split()


ORDER = apps_in_order()


def may_use(app: str, other: str) -> bool:
    return ORDER.index(other) >= ORDER.index(app)


def owner(path: str) -> str:
    """The app of a template, given as `production/_move.html`."""
    return FRAME if is_frame(path) else path.partition("/")[0]


def is_frame(path: str) -> bool:
    return "/" not in path or path.startswith("admin/")


def app_of(module: str) -> str | None:
    """The app of a module; None for one of a library."""
    return module.split(".")[1] if module.startswith("apps.") else None


def views(resolver: URLResolver, namespace: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield the name of each URL, with the app whose view answers it."""
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            yield from views(
                entry, f"{namespace}{entry.namespace}:" if entry.namespace else namespace
            )
        else:
            view = getattr(entry.callback, "cls", None) or getattr(
                entry.callback, "view_class", entry.callback
            )
            yield f"{namespace}{entry.name}", app_of(view.__module__)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT / "templates"))


def used_by(path: Path, urls: dict[str, str | None]) -> Iterator[tuple[str, str | None]]:
    """Yield what a template uses, each with the app that owns it; None for a library's."""
    libraries = settings.TEMPLATES[0]["OPTIONS"]["libraries"]
    for tag, arguments in _TAG.findall(path.read_text()):
        first = arguments.split()[0]
        written = first[1:-1] if first[0] in "\"'" else None
        if tag == "load":
            yield from (
                (library, app_of(libraries.get(library, ""))) for library in arguments.split()
            )
        elif tag == "url":
            if written is not None:
                yield written, urls[written] if not written.startswith("admin:") else None
            else:
                assert first in FROM_THE_FRAME or "|admin_urlname:" in first, (
                    f"{name(path)}: {first} says no name"
                )
        elif written is None:
            pytest.fail(f"{name(path)}: {tag} {arguments}: name the template")
        elif (ROOT / "templates" / written).exists():
            yield written, None if tag == "extends" and is_frame(written) else owner(written)


def test_templates_use_only_their_own_and_lower_apps():
    urls = dict(views(get_resolver()))
    assert [
        f"{name(path)} uses {used}"
        for path in TEMPLATES
        for used, other in used_by(path, urls)
        if other and not may_use(owner(name(path)), other)
    ] == []


def test_modules_render_only_templates_of_their_own_and_lower_apps():
    assert [
        f"{path.relative_to(ROOT)} renders one of {other}"
        for path in MODULES
        for other in re.findall(r'"([a-z]+)/[a-z_/]+\.html"', path.read_text())
        if other in ORDER and not may_use(path.relative_to(ROOT).parts[1], other)
    ] == []


def test_variables_of_templates_say_what_they_hold() -> None:
    vague = []
    for path in TEMPLATES:
        for tag in re.findall(r"{%\s*(?:for|with|include)\b.*?%}", path.read_text(), re.DOTALL):
            targets = re.findall(r"(\w+)=", tag)
            if loop := re.match(r"{%\s*for\s+(.+?)\s+in\b", tag):
                targets = loop[1].replace(",", " ").split()
            vague += [f"{path.name}: {tag}" for name in targets if name in VAGUE_NAMES]
    assert vague == []


def test_comments_end_on_their_line() -> None:
    """Django shows a comment of two lines to the user."""
    shown = []
    for path in TEMPLATES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.count("{#") != line.count("#}"):
                shown.append(f"{path.relative_to(ROOT)}:{number}")
    assert shown == []


def test_every_folder_of_templates_is_an_app():
    assert {owner(name(path)) for path in TEMPLATES} <= set(ORDER)


@pytest.mark.parametrize(
    "path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates"))
)
def test_no_form_sends_its_csrf_token_in_the_address(path: Path) -> None:
    text = path.read_text("utf-8")
    for form in re.findall(r"<form\b[^>]*>.*?</form>", text, re.DOTALL):
        is_post = re.match(r'<form\b[^>]*\bmethod="post"', form)
        assert is_post or "csrf_token" not in form
        assert 'formmethod="get"' not in form


def test_classes_of_several_components_are_styled_within_each() -> None:
    sheets = sorted((ROOT / "static/opsportal/css").glob("*.css"))
    bare = re.compile(r"(?:^|[},])\s*(\.(?:ok|ko|e|w))(?=::|\s*[{,])", re.MULTILINE)
    assert [
        (path.name, found) for path in sheets for found in bare.findall(path.read_text("utf-8"))
    ] == []


def test_style_sheets_name_only_classes_that_pages_have() -> None:
    scripts = sorted((ROOT / "static/opsportal").rglob("*.js"))
    words = {
        word
        for path in (*TEMPLATES, *MODULES, *scripts)
        for word in _WORD.findall(path.read_text("utf-8"))
    }
    unknown = set()
    for path in (ROOT / "static/opsportal/css").glob("*.css"):
        if path.name != "admin.css":  # the back office's pages are Django's
            selectors = re.findall(
                r"([^{}]+)\{", re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
            )
            unknown |= {
                name for each in selectors for name in re.findall(r"\.([a-zA-Z][\w-]*)", each)
            } - words
    assert {name for name in unknown if not _MADE.fullmatch(name)} == set()


def test_style_sheets_and_scripts_have_no_long_lines() -> None:
    static = ROOT / "static/opsportal"
    long_lines = [
        f"{path.relative_to(static)}:{number}"
        for path in sorted((*static.rglob("*.css"), *static.rglob("*.js")))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert long_lines == []
