"""The documentation under /help/: every page as HTML, its links within the portal,
nothing of it as raw HTML.
"""

import re
from importlib.util import find_spec

from apps.core.web.documentation import html_of, page, sections, titles
from apps.portal.web.context import HELP


def test_every_page_is_there_and_every_link_leads_somewhere(client, admin):
    pages = {name: page(name) for name in titles()}
    anchors = {name: set(re.findall(r'id="([^"]+)"', page.html)) for name, page in pages.items()}
    links = {
        (name, link)
        for name, page in pages.items()
        for link in re.findall(r'href="/help/([^"]+)"', page.html)
    }
    assert len(links) > 50
    missing = [
        (name, link)
        for name, link in links
        for target, _, anchor in [link.partition("/#")]
        if anchor and anchor not in anchors[target.strip("/")]
    ]
    assert missing == []
    assert [
        name for name, page in pages.items() if re.search(r"<th[^>]*>\s*</th>", page.html)
    ] == []
    client.force_login(admin)
    shown = client.get("/help/priority/").text
    assert "<h1>Priority and the queue</h1>" in shown
    assert "<td>class</td>" in shown


def test_raw_html_is_escaped_and_links_elsewhere_are_words():
    text = "<script>x</script> [a](adr/1.md) [b](requests.md#c) ![d](x.svg) [e](javascript:x)"
    html = html_of(text, {"requests"})
    assert html == (
        '<p>&lt;script&gt;x&lt;/script&gt; a <a href="/help/requests/#c">b</a> d '
        "[e](javascript:x)</p>\n"
    )


def test_drills_name_tests_and_commands_that_exist(settings):
    text = (settings.BASE_DIR / "docs/failure-drills.md").read_text()
    tests = re.findall(r"`(tests/[^`]+)`", text)
    commands = re.findall(r"`python -m ([a-z_.]+)", text)
    assert len(tests) > 20
    assert len(commands) > 5
    for path in tests:
        assert (settings.BASE_DIR / path).is_file(), path
    for module in commands:
        assert find_spec(module), module


def test_contents_list_every_page_once_and_pages_their_sections(client, liaison):
    client.force_login(liaison)
    contents = client.get("/help/").text
    for name, title in titles().items():
        assert contents.count(f'<a href="/help/{name}/">{title}</a>') == 1
    assert "More" not in [label for label, _ in sections()]
    shown = client.get("/help/diagnosis/").text
    assert '<a href="#failure-groups">Failure groups</a>' in shown


#: Sections for users, and what only concerns those who change the portal's code.
FOR_USERS = ("Start here", "Requests", "Jobs and failures", "Use it from programs")
OF_DEVELOPERS = re.compile(r"\btests/|\btest_\w+\.py|\bapps/|write_docs|\ba test (fails|compares)")


def test_documents_for_users_do_not_speak_of_the_code():
    names = []
    for label, pages in sections():
        if label in FOR_USERS:
            names += [name for name, _ in pages]
    assert "glossary" in names
    excerpts = {}
    for name in names:
        text = page(name).html
        if match := OF_DEVELOPERS.search(text):
            excerpts[name] = text[match.start() - 60 : match.end() + 60]
    assert excerpts == {}


def test_each_page_leads_to_its_own_document(client, shifter):
    client.force_login(shifter)
    for path, document, heading in [
        ("/", "first-steps", "First steps"),
        ("/statistics/", "jobs", "Jobs: from accounting to lists and totals"),
        ("/reports/weekly/", "progress", "Holds and progress"),
        ("/requests/queue/", "priority", "Priority and the queue"),
    ]:
        link = re.search(r'<a href="(/help/[^"]+)">Help with this page</a>', client.get(path).text)
        assert link, path
        address, _, anchor = link[1].partition("#")
        assert address == f"/help/{document}/"
        shown = client.get(address).text
        assert f"<h1>{heading}" in shown
        assert not anchor or f'id="{anchor}"' in shown


def test_every_help_link_is_a_section_that_exists():
    for _, place in HELP:
        document, _, section = place.partition("#")
        assert not section or f'id="{section}"' in page(document).html, place
