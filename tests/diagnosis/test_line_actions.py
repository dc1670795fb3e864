"""What a line on “Where else?” leads to: a known error, a watch, and a search for its text."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
import re2
import time_machine
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from apps.core.models import Event
from apps.diagnosis.domain.groups.where_else import find_template_text, hash_line, search_for
from apps.diagnosis.domain.known_errors.proposal import pattern_of_template
from apps.diagnosis.engine.evidence.novelty import Templates
from apps.diagnosis.models import KnownError
from apps.search.domain.query.matcher import QueryMatcher
from apps.search.domain.query.parser import parse
from apps.search.models import LineWatch
from tests.diagnosis.conftest import read_all
from tests.factories.people import experiment, liaison_of, shifter

LINE = "flux capacitor <b>3</b> cannot align"
TEMPLATE = f"{hash_line(LINE):016x}"
WHERE_ELSE = reverse("diagnosis:where-else")

#: Parts of lines that vary, two of each kind.
VARIABLE = st.sampled_from(
    [
        ("17", "4242"),
        ("/pnfs/nova/a.root", "/cvmfs/x/y-1/lib.so"),
        ("0xdeadbeef", "0x1"),
        ("v09_73", "v8"),
        ("Sat Nov 28 16:14:57", "Mon Jan 3 01:02:03"),
        ("2026-11-28 16:14:57", "2025-01-01 00:00:00"),
        ("-3.5e7", "12"),
    ]
)
WORD = st.text(st.sampled_from('abcXYZ.()[]{}+?^$|\\"*<>&:=_%é/'), min_size=1, max_size=6)
BLANK = st.sampled_from([" ", "  ", "    ", "\t"])


@st.composite
def lines_of_a_template(draw: st.DrawFn) -> tuple[str, str]:
    """Return two lines that differ in what varies alone."""
    first, second = "abort", "abort"
    for _ in range(draw(st.integers(0, 6))):
        blank = draw(BLANK)
        parts = draw(st.one_of(VARIABLE, WORD.map(lambda word: (word, word))))
        first += blank + parts[0]
        second += blank + parts[1]
    return first, second


@given(lines_of_a_template())
def test_pattern_and_search_match_all_lines_of_the_template(pair: tuple[str, str]) -> None:
    templates = Templates()
    numbers = {templates.hash_of(line.encode()) for line in pair}
    if len(numbers) > 1:
        return  # a word made a number next to it another part
    (text,) = templates.texts.values()
    pattern = re2.compile(pattern_of_template(text.decode()))
    query = search_for(text.decode(), pair[0])
    assert parse(str(query)) == query
    for line in pair:
        assert pattern.search(line), (pattern.pattern, line)
        assert QueryMatcher(query).matches(line.lower()), (str(query), line)


def test_pattern_of_a_template_is_escaped() -> None:
    assert pattern_of_template("* * open(*) failed: [x].") == (
        r"open\(\S{1,300}\)[ \t]+failed:[ \t]+\[x\]\."
    )
    assert pattern_of_template("at * * of") == r"at[ \t]+\S.{0,300}[ \t]+of"
    assert pattern_of_template("* *") == ""


@pytest.mark.django_db
def test_line_leads_to_a_prefilled_known_error_that_can_be_saved(
    jobs,
    at,
    client,
    approver,
) -> None:
    client.force_login(approver)
    with time_machine.travel(at + timedelta(minutes=5), tick=False):
        page = client.get(WHERE_ELSE, {"template": TEMPLATE}).content.decode()
        address = reverse("diagnosis:known-error-new")
        link = f"{address}?template={TEMPLATE}&amp;line=flux%20capacitor%20%3Cb%3E17"
        assert link in page
        form = client.get(
            address, {"template": TEMPLATE, "line": "flux capacitor <b>17</b> cannot align"}
        ).context["form"]
    initial = form.initial
    assert initial["regex"] == r"flux[ \t]+capacitor[ \t]+<b>\S{1,300}</b>[ \t]+cannot[ \t]+align"
    assert initial["example"] == "flux capacitor <b>17</b> cannot align"
    values = {**initial, "title": "Flux", "category": "experiment-code"}
    values |= {"service": "art", "role": "cause", "advice": "debug"}
    context = client.post(address, {**values, "preview": "1"}).context
    preview = context["preview"]
    assert preview, context["form"].errors
    assert preview.failed.matched == 6
    assert preview.failed.searched == 8
    saved = client.post(address, {**values, "save": "1", "enabled": "on", "reason": "new"})
    assert saved.status_code == 302, saved.context["form"].errors
    assert KnownError.objects.get(pk=initial["id"]).regex == initial["regex"]


@pytest.mark.django_db
def test_known_error_of_a_line_without_kept_logs_has_the_template_as_example(
    jobs,
    client,
    approver,
) -> None:
    client.force_login(approver)
    address = reverse("diagnosis:known-error-new")
    initial = client.get(address, {"template": TEMPLATE, "line": ""}).context["form"].initial
    assert initial["example"] == "flux capacitor <b>*</b> cannot align"
    assert re2.search(initial["regex"], initial["example"])

    dune = liaison_of(experiment("DUNE"))
    client.force_login(dune)
    initial = client.get(address, {"template": TEMPLATE}).context["form"].initial
    assert "example" not in initial
    assert find_template_text(TEMPLATE, user=dune) == ""
    for junk in ("", "zz", "0x00000000000001", " " * 16, "١" * 16):
        assert find_template_text(junk, user=dune) == ""


@pytest.mark.django_db
def test_line_is_watched_and_not_with_a_click(jobs, make_job, at, client) -> None:
    user = shifter()
    client.force_login(user)
    watch = reverse("diagnosis:watch-line")
    with time_machine.travel(at + timedelta(minutes=5), tick=False):
        assert "Watch this line" in client.get(WHERE_ELSE, {"template": TEMPLATE}).content.decode()
        page = client.post(watch, {"template": TEMPLATE}, follow=True).content.decode()
    assert "You will be notified" in page
    assert "Stop watching" in page
    assert LineWatch.objects.get().user == user

    job = make_job(90, stage="reco", log=f"x\n{LINE}\n", ended_at=at + timedelta(minutes=9))
    read_all([job], at + timedelta(minutes=10))
    assert Event.objects.get(kind="line.seen").data == {"mentioned": [user.username]}

    page = client.post(watch, {"template": TEMPLATE, "do": "remove"}, follow=True)
    assert "You no longer watch this line." in page.content.decode()
    assert not LineWatch.objects.exists()


@pytest.mark.django_db
def test_nobody_watches_a_line_of_another_experiment(jobs, client) -> None:
    client.force_login(liaison_of(experiment("DUNE")))
    watch = reverse("diagnosis:watch-line")
    for template in (TEMPLATE, "0" * 16, "junk", ""):
        page = client.post(watch, {"template": template}, follow=True)
        assert "You will be notified" not in page.content.decode()
    assert client.get(watch).status_code == 303  # back to the page
    page = client.get(WHERE_ELSE, {"template": TEMPLATE}).content.decode()
    assert "Watch this line" not in page
    assert not LineWatch.objects.exists()


@pytest.mark.django_db
def test_search_of_a_line_has_its_constant_parts(jobs, at, client) -> None:
    client.force_login(shifter())
    with time_machine.travel(at + timedelta(minutes=5), tick=False):
        context = client.get(WHERE_ELSE, {"template": TEMPLATE}).context
    address = urlsplit(context["search_url"])
    assert parse_qs(address.query) == {"q": ['"flux capacitor <b>*</b> cannot align" in:log']}
    assert client.get(context["search_url"]).status_code == 200


@pytest.mark.django_db
def test_watches_in_the_api(jobs, client) -> None:
    user = shifter()
    client.force_login(user)
    url = "/api/v1/line-watches/"
    made = client.post(url, {"line": LINE}, content_type="application/json")
    assert made.status_code == 201
    assert made.json()["template"] == TEMPLATE
    assert made.json()["text"] == "flux capacitor <b>*</b> cannot align"
    again = client.post(url, {"template": TEMPLATE}, content_type="application/json")
    assert again.json()["id"] == made.json()["id"]
    assert [row["id"] for row in client.get(url).json()["results"]] == [made.json()["id"]]
    for body in ({}, {"line": "17"}, {"template": "xyz"}, {"line": "unknown words"}):
        assert client.post(url, body, content_type="application/json").status_code == 400

    detail = f"{url}{made.json()['id']}/"
    client.force_login(liaison_of(experiment("DUNE")))
    assert client.get(url).json()["results"] == []
    assert client.delete(detail).status_code == 404
    body = {"template": TEMPLATE}
    assert client.post(url, body, content_type="application/json").status_code == 400
    client.force_login(user)
    assert client.delete(detail).status_code == 204
    assert not LineWatch.objects.exists()
