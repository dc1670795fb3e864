"""Pages of known errors: list, one, form with preview, proposals;
what a pattern is proposed from a line.
"""

import time

import pytest
import zstandard
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.core.models import Event
from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.domain.known_errors.changes import submit_change
from apps.diagnosis.domain.known_errors.proposal import id_of, pattern_of
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.engine.evidence import scan_budget
from apps.diagnosis.engine.evidence.catalogue import regex_fault
from apps.diagnosis.models import (
    FailureGroup,
    KnownError,
    KnownErrorChange,
    KnownErrorOmission,
    LogExcerpt,
    LogHarvest,
)
from apps.statusboard.models import Service
from tests.diagnosis.engine import slow_expressions
from tests.diagnosis.known_errors.test_known_errors import NEW
from tests.pages import text_of

LINE = (
    "2026-11-22 09:12:43 geometry server gone after 30 s at wn-0306.example.org (/pnfs/nova/x.root)"
)
FORM = {**NEW, "id": "GEO-GONE", "reason": "seen today", "base": 0, "enabled": "on"}


@pytest.fixture(autouse=True)
def geometry(db):
    """The service that the form names."""
    return Service.objects.create(slug="geometry", name="Geometry server")


@pytest.fixture
def harvested(make_job, at):
    """Two failed jobs whose logs say that the geometry server was gone,
    and a successful one that says so too.
    """
    for number in (1, 2):
        made = make_job(number, log=f"line\n<b>ERROR {LINE}</b>\nERROR: geometry lost\n")
        queue_harvests(job_pks=[made.pk], at=at)
        harvest_log(harvest=LogHarvest.objects.get(job=made), at=at)
    good = make_job(3, state="completed", exit_code=0)
    harvest = LogHarvest.objects.create(job=good, due_at=at)
    data = b"geometry server gone after 1 s, retried\n"
    compressed = zstandard.ZstdCompressor().compress(data)
    given = {
        "stream": "stdout",
        "path": "x",
        "size_bytes": 40,
        "compressed": compressed,
        "first_offset": 0,
    }
    LogExcerpt.objects.create(harvest=harvest, **given)
    recount_dirty_hours()


def page(client, user, name, *args, **query):
    client.force_login(user)
    return client.get(reverse(f"diagnosis:{name}", args=args), query).content.decode()


def test_pattern_is_proposed_by_masking_what_varies():
    assert (
        pattern_of(LINE) == r"geometry server gone after [\d.]{1,40} s at \S{1,200} \(\S{1,300}\)"
    )
    assert id_of(LINE, "geometry") == "GEOMETRY-SERVER-GONE"
    assert pattern_of("12 : 34") == ""


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("abc XYZ.:/-_0123456789()[]{}*+?\\|^$'\"=,<>@~\t"), max_size=120))
def test_proposed_pattern_matches_its_line_and_is_linear(line):
    if pattern := pattern_of(line):
        assert regex_fault(pattern, line) == ""


def test_list_has_filters_counts_and_proposals(client, harvested, shifter, at):
    client.force_login(shifter)
    client.post(reverse("diagnosis:known-error-new"), {**FORM, "save": 1})
    html = page(client, shifter, "known-errors", q="xrootd", role="cause")
    assert "Operation expired (XRootD)" in html
    assert "Disk quota exceeded" not in html
    assert "GEO-GONE" in html.partition('id="proposals"')[2]
    assert "No matching known errors" in page(client, shifter, "known-errors", q="no such thing")
    assert "Invalid filter" in page(client, shifter, "known-errors", role="culprit")


def test_form_is_filled_from_a_line_and_from_a_group(client, harvested, shifter):
    html = page(
        client, shifter, "known-error-new", line=LINE, service="geometry", verdict="service"
    )
    assert 'value="GEOMETRY-SERVER-GONE"' in html
    assert r"geometry server gone after [\d.]{1,40} s" in html
    assert '<option value="retry" selected>' in html
    group = page(client, shifter, "group", FailureGroup.objects.get().pk)
    assert "Make a known error from this" in group
    assert "known-errors/new/?line=" in group
    job = LogHarvest.objects.order_by("pk").first().job
    log = page(client, shifter, "log", job.pk, at="5")
    assert "Make a known error from this line" in log
    assert "known-errors/new/?line=%3Cb%3EERROR" in log


def test_preview_shows_hits_in_failed_and_successful_jobs_and_saves_nothing(
    client, harvested, approver
):
    client.force_login(approver)
    html = client.post(
        reverse("diagnosis:known-error-new"), {**FORM, "preview": 1}
    ).content.decode()
    assert "<b>2 of 2</b> failed jobs match" in html
    assert "<b>1 of 1</b> successful jobs match" in html
    assert "Lines of successful jobs are no failures" in html
    assert "The pattern matches the example line." in html
    assert "&lt;b&gt;ERROR 2026-11-22" in html
    assert not KnownError.objects.filter(pk="GEO-GONE").exists()


def test_preview_needs_the_pattern_alone(client, harvested, approver):
    client.force_login(approver)
    address = reverse("diagnosis:known-error-new")
    html = client.post(address, {"regex": "geometry server gone", "preview": 1}).content.decode()
    assert "<b>2 of 2</b> failed jobs match" in html
    assert "is required: " not in html
    without = client.post(address, {"title": "Geometry", "preview": 1})
    assert without.status_code == 400
    assert without.content.decode().count("is required: ") == 1
    wrong = client.post(address, {"regex": "(?!x)geometry", "preview": 1})
    assert "RE2 has no lookaround" in wrong.content.decode()


def test_slow_pattern_cuts_its_preview_short_and_a_large_one_is_refused(
    client, make_job, at, approver
):
    compressed = zstandard.ZstdCompressor().compress(slow_expressions.LOG.encode())
    values = {
        "stream": "stdout",
        "path": "x",
        "size_bytes": 968_000,
        "compressed": compressed,
        "first_offset": 0,
    }
    for number in range(1, 41):
        harvest = LogHarvest.objects.create(job=make_job(number), due_at=at)
        LogExcerpt.objects.create(harvest=harvest, **values)
    client.force_login(approver)
    form = {**FORM, "preview": 1, "example": "ab" * 54 + "x"}
    began = time.monotonic()
    html = client.post(
        reverse("diagnosis:known-error-new"), {**form, "regex": f"{slow_expressions.REGEX}x"}
    ).content.decode()
    assert "stopped after 3 seconds" in html
    assert time.monotonic() - began < 15
    answer = client.post(
        reverse("diagnosis:known-error-new"), {**form, "regex": f"{slow_expressions.REGEX * 6}x"}
    )
    assert answer.status_code == 400
    assert "The pattern is too costly: it compiles to 16,1" in answer.content.decode()


def test_wrong_pattern_is_refused_in_the_form(client, approver, db):
    client.force_login(approver)
    answer = client.post(
        reverse("diagnosis:known-error-new"), {**FORM, "regex": "(?!x)geometry", "save": 1}
    )
    assert answer.status_code == 400
    assert "RE2 has no lookaround" in answer.content.decode()


def test_form_reports_all_problems_at_once(client, approver, db):
    client.force_login(approver)
    values = {**FORM, "title": "", "regex": "(?!x)geometry", "reason": " ", "save": 1}
    errors = client.post(reverse("diagnosis:known-error-new"), values).context["form"].errors
    assert errors.keys() == {"title", "regex", "reason"}
    assert all(len(messages) == 1 for messages in errors.values())


def test_service_is_one_of_the_board_or_of_other_known_errors_or_none(client, approver):
    client.force_login(approver)
    address = reverse("diagnosis:known-error-new")
    groups = dict(client.get(address).context["form"].fields["service"].choices)
    assert groups["On the status board"] == [("geometry", "Geometry server (geometry)")]
    assert ("xrootd", "xrootd") in groups["Not on the status board"]
    for values, message in [
        ({"service": "anything"}, "“anything” is not a choice for"),
        ({"service": "program"}, "Choose what failed, or another category."),
    ]:
        errors = client.post(address, {**FORM, **values, "save": 1}).context["form"].errors
        assert [message in text for text in errors["service"]] == [True]
    own = {**FORM, "service": "program", "category": "experiment-code", "save": 1}
    assert client.post(address, own).status_code == 302
    assert KnownError.objects.get(pk="GEO-GONE").service == "program"


def test_editor_saves_and_the_page_shows_pattern_jobs_and_history(
    client, make_job, at, approver, shifter
):
    client.force_login(approver)
    answer = client.post(reverse("diagnosis:known-error-new"), {**FORM, "save": 1})
    assert answer.url == "/failures/known-errors/GEO-GONE/"
    made = make_job(log=f"{LINE}\n")
    queue_harvests(job_pks=[made.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(), at=at)
    edited = {**FORM, "title": "Geometry lost", "base": 1, "save": 1}
    client.post(reverse("diagnosis:known-error-edit", args=["GEO-GONE"]), edited)
    html = page(client, shifter, "known-error", "GEO-GONE")
    assert "<ins>Geometry lost</ins>" in html
    assert NEW["example"] in html
    assert "version 2" in html
    assert "Propose a change" in html
    stale = client.post(
        reverse("diagnosis:known-error-edit", args=["GEO-GONE"]), {**edited, "title": "Other"}
    )
    assert "changed by another user" in stale.content.decode()


def test_known_error_says_how_it_is_retired(client, approver, shifter, db):
    dns = KnownError.objects.get(pk="DNS")
    how = '<a href="/failures/known-errors/DNS/edit/#id_enabled">{} “Enabled”</a>'
    for user, verb in ((approver, "untick"), (shifter, "propose to untick")):
        client.force_login(user)
        assert how.format(verb) in text_of(client.get(dns.get_absolute_url()))
    form = client.get(reverse("diagnosis:known-error-edit", args=["DNS"])).text
    assert 'id="id_enabled"' in form
    assert "Untick to retire it" in form

    KnownError.objects.filter(pk="DNS").update(pack="NOVA 1")
    of_pack = text_of(client.get(dns.get_absolute_url()))
    assert "leave it out of the next version of its <a" in of_pack
    assert "#id_enabled" not in of_pack

    KnownError.objects.filter(pk="DNS").update(enabled=False)
    disabled = text_of(client.get(dns.get_absolute_url()))
    assert "Disabled: its pattern matches nothing." in disabled
    assert "To retire" not in disabled


def test_proposal_is_shown_with_its_preview_and_approved(client, harvested, shifter, approver):
    client.force_login(shifter)
    address = client.post(reverse("diagnosis:known-error-new"), {**FORM, "save": 1}).url
    html = client.get(address).content.decode()
    assert "<b>2 of 2</b> failed jobs match" in html
    assert "Approve</button>" not in html
    change = KnownErrorChange.objects.get(state="proposed")
    decide = reverse("diagnosis:decide-known-error", args=[change.pk])
    assert client.post(decide, {"do": "approve"}).status_code == 403
    client.force_login(approver)
    assert "Approve</button>" in client.get(address).content.decode()
    rejected = client.post(decide, {"do": "reject"}, follow=True).content.decode()
    assert ">Enter a reason. The author of the proposal will read it." in rejected
    assert KnownErrorChange.objects.get(pk=change.pk).state == "proposed"
    client.post(decide, {"do": "approve"})
    assert KnownError.objects.get(pk="GEO-GONE").version == 1


def test_form_offers_only_experiments_with_a_role(client, nova, dune, liaison):
    client.force_login(liaison)
    page = client.get("/failures/known-errors/new/").content.decode()
    assert str(nova) in page
    assert str(dune) not in page


def test_form_offers_all_experiments_to_those_who_work_for_all(client, nova, dune, approver):
    client.force_login(approver)
    page = client.get("/failures/known-errors/new/").content.decode()
    assert str(nova) in page
    assert str(dune) in page


@pytest.fixture
def omitted(make_job, at, approver, monkeypatch):
    """A job out of whose log a known error was left that is too slow for it."""
    monkeypatch.setattr(scan_budget, "SECONDS", 0.5)
    values = {**NEW, "regex": f"{slow_expressions.REGEX}#", "example": "ab" * 54 + "#"}
    submit_change(known_error="GEO-GONE", values=values, by=approver, at=at, reason="Seen.")

    def harvest(number):
        job = make_job(number, log=slow_expressions.LOG)
        queue_harvests(job_pks=[job.pk], at=at)
        harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
        return job

    return harvest


def test_known_error_says_that_it_is_too_slow_until_its_pattern_changes(
    client, omitted, approver, shifter, liaison, other_liaison, at
):
    omitted(1)
    job = omitted(2)
    html = " ".join(page(client, shifter, "known-error", "GEO-GONE").split())
    assert "Left out of 2 log analyses" in html
    assert f'href="{job.get_absolute_url()}"' in html
    others = page(client, other_liaison, "known-error", "GEO-GONE")
    assert "Left out of 2 log analyses" in others
    assert job.get_absolute_url() not in others
    assert "left out of 2 log analyses: too slow" in page(
        client, liaison, "known-errors", q="GEO-GONE"
    )
    assert "Too slow for some logs" in page(client, approver, "known-errors")
    assert "Too slow for some logs" not in page(client, liaison, "known-errors", q="GEO-GONE")
    assert Event.objects.filter(kind="known_error.omitted").count() == 1, "not for each log"

    change = {"by": approver, "at": at, "reason": "Simpler."}
    submit_change(known_error="GEO-GONE", values={"owner": "alice"}, **change)
    assert KnownErrorOmission.objects.get().analyses == 2
    values = {"regex": "geometry gone", "example": "geometry gone"}
    submit_change(known_error="GEO-GONE", values=values, **change)
    assert not KnownErrorOmission.objects.exists()
    assert "Left out of" not in page(client, shifter, "known-error", "GEO-GONE")
