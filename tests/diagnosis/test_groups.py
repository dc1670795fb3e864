"""Failure groups: fingerprints, triage, what is common, broken hosts, and who sees what."""

import re
from datetime import timedelta
from math import comb

import hypothesis
import pytest
from django.urls import reverse
from django.utils import timezone
from hypothesis import strategies as st

from apps.core.domain.event_kinds import what_was_done
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.core.models import Event
from apps.core.web.templatetags.formatting import when
from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.domain.groups import triage as groups
from apps.diagnosis.domain.groups.blame import group_failures_of_bad_releases
from apps.diagnosis.domain.groups.broken_hosts import chance_of, densest_run
from apps.diagnosis.domain.groups.fingerprints import mask, message_of, title_of
from apps.diagnosis.domain.groups.group_list import GroupRow
from apps.diagnosis.domain.groups.profile import profile_of
from apps.diagnosis.domain.groups.sweep import sweep_groups
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.engine.base import EngineVerdict, Hit, Pattern
from apps.diagnosis.enums import (
    CLOSED,
    GROUP_MOVES,
    Category,
    Confidence,
    FollowUp,
    GroupKind,
    GroupStatus,
    JobAdvice,
    Role,
    VerdictKind,
)
from apps.diagnosis.models import Evidence, FailureGroup, KnownError, LogHarvest, Verdict
from apps.jobs.domain.statistics.intervals import compare_rates
from tests.factories import clusters, jobs
from tests.pages import text_of

AUTH, KEY = "[FATAL] Auth failed\n", "Error in event {0}: cannot read /data/run{0}/file\n"


@pytest.fixture
def fail(make_job):
    """Make and analyse a failed job, that ended now unless said otherwise."""

    def make(log=AUTH, *, sweep=True, **fields):
        now = timezone.now()
        job = make_job(make_job.next_number(), log=log, **{"ended_at": now, **fields})
        queue_harvests(job_pks=[job.pk], at=now)
        harvest_log(harvest=LogHarvest.objects.get(job=job), at=now)
        if sweep:
            sweep_groups(recount_dirty_hours(), at=now)
        return job

    return make


def test_mask_keeps_what_tells_errors_apart():
    line = "2026-11-22T09:41:07Z r17: exit code 137 after 12 s in /data/run7/file, id 0x7ffe12"
    assert mask(line) == "<time> r<n>: exit code 137 after <n> s in <path>, id <hex>"


def test_jobs_with_the_same_error_are_one_group_over_experiments(fail, dune):
    fail(KEY.format(17))
    fail(KEY.format(4), experiment=dune)
    fail(AUTH)
    assert sorted(group.verdicts.count() for group in FailureGroup.objects.all()) == [1, 2]
    assert Event.objects.filter(kind="group.new").count() == 2
    line = Verdict.objects.order_by("pk")[0].group.line
    assert line == "Error in event <n>: cannot read <path>"


@pytest.mark.parametrize(
    ("state", "title"),
    [
        ("out_of_memory", "Killed for using more memory than requested"),
        ("timeout", "Killed at the time limit"),
        ("deadline", "Killed at the deadline"),
        ("node_fail", "The node failed while the job ran"),
    ],
)
def test_a_group_is_named_after_what_happened_not_after_what_to_do(fail, state, title):
    fail("nothing of note\n", state=state)
    assert FailureGroup.objects.get().title == title


def test_a_group_is_named_after_its_known_error_and_follows_its_title(fail):
    fail()
    group = FailureGroup.objects.get()
    assert group.title == "Authentication failed (XRootD)"
    FailureGroup.objects.update(title="xrootd: service failure (XRD-AUTH)")
    fail()
    group.refresh_from_db()
    assert (group.title, group.verdicts.count()) == ("Authentication failed (XRootD)", 2)


def test_jobs_and_groups_give_the_advice_of_their_known_error(client, fail, shifter):
    job = fail()
    group = FailureGroup.objects.get()
    assert KnownError.objects.get(pk=group.cause).advice == JobAdvice.HOLD
    assert Verdict.objects.get().advice == JobAdvice.HOLD
    client.force_login(shifter)
    step = "hold until it is fixed, then retry"
    assert f"Service problem: {step}" in text_of(client.get(job.get_absolute_url()))
    assert client.get(group.get_absolute_url()).context["row"].step == step


def test_frame_tells_groups_of_one_known_error_apart():
    pattern = Pattern(
        id="ROOT-SEGV",
        category=Category.EXPERIMENT_CODE,
        service="root",
        regex="",
        advice=JobAdvice.DEBUG,
        role=Role.CAUSE,
        where="",
        example="",
        title="Crash with ROOT's stack trace",
    )
    titles = []
    for frame in ("nova::Fit::run", "nova::Track::fill"):
        hit = Hit(pattern, 1, 0, "*** Break ***", fields={"frame": frame})
        decided = EngineVerdict(
            VerdictKind.CODE,
            JobAdvice.DEBUG,
            Category.EXPERIMENT_CODE,
            Confidence.HIGH,
            "root: error in the experiment's code (ROOT-SEGV).",
            (),
            cause=hit,
        )
        titles.append(title_of(decided, message_of(decided, "*** Break ***")))
    assert titles == [
        "Crash with ROOT's stack trace: nova::Fit::run",
        "Crash with ROOT's stack trace: nova::Track::fill",
    ]


def test_history_of_a_group_names_its_status_as_pages_do(fail, shifter):
    fail()
    group = FailureGroup.objects.get()
    groups.set_status(group=group, status=GroupStatus.KNOWN, by=shifter, at=timezone.now())
    assert what_was_done(Event.objects.get(kind="group.moved")) == (
        "changed the status: not triaged → known"
    )


def test_closed_group_is_back_when_a_later_job_fails(fail, shifter):
    fail()
    group, now = FailureGroup.objects.get(), timezone.now()
    groups.set_status(group=group, status=GroupStatus.RESOLVED, by=shifter, at=now)
    fail(started_at=now - timedelta(hours=1))
    group.refresh_from_db()
    assert group.status == "resolved"
    fail(started_at=now + timedelta(seconds=1), ended_at=now + timedelta(minutes=1))
    group.refresh_from_db()
    assert (group.status, group.verdicts.count()) == ("regressed", 3)
    assert Event.objects.get(kind="group.regressed").old == "resolved"


def test_each_status_can_be_left_and_only_closed_ones_regress():
    assert set(GROUP_MOVES) == set(GroupStatus)
    assert all(GROUP_MOVES.values())
    regress = {status for status, moves in GROUP_MOVES.items() if GroupStatus.REGRESSED in moves}
    assert regress == CLOSED | {GroupStatus.MUTED}, (
        "the end of a mute restores the status before it"
    )


def test_triage_is_for_those_who_work_on_all_its_experiments(
    fail, shifter, liaison, other_liaison, dune
):
    fail()
    group, now = FailureGroup.objects.get(), timezone.now()
    groups.assign_group(group=group, owner=liaison.username, by=liaison, at=now)
    with pytest.raises(InvalidFields):
        groups.assign_group(group=group, owner=other_liaison.username, by=shifter, at=now)
    resolved = FailureGroup(pk=group.pk, status=GroupStatus.RESOLVED)
    with pytest.raises(InvalidTransition):
        groups.set_status(
            group=resolved,
            status=GroupStatus.MUTED,
            by=shifter,
            at=now,
            muted_until=now + timedelta(days=1),
        )
    with pytest.raises(InvalidFields):
        groups.set_status(group=group, status=GroupStatus.MUTED, by=shifter, at=now)
    with pytest.raises(InvalidFields):
        groups.set_status(
            group=group, status=GroupStatus.MUTED, by=shifter, at=now, muted_until=now
        )
    fail(experiment=dune)
    with pytest.raises(NotAllowed):
        groups.add_note(group=group, text="Ours.", by=liaison, at=now)
    groups.add_note(group=group, text="Both.", by=shifter, at=now)


def test_people_see_the_counts_of_their_experiments_only(
    client, fail, liaison, other_liaison, shifter, dune
):
    for _ in range(3):
        fail(sweep=False)
    fail(experiment=dune)
    group = FailureGroup.objects.get()
    counts = {liaison: 3, other_liaison: 1, shifter: 4}
    for user, jobs_seen in counts.items():
        client.force_login(user)
        [found] = client.get("/api/v1/failure-groups/?status=new").json()["results"]
        assert (found["id"], found["jobs"]) == (group.pk, jobs_seen)
        page = client.get(group.get_absolute_url()).content.decode()
        assert f'?group={group.pk}">{jobs_seen}</a>' in page
    client.force_login(liaison)
    assert "DUNE" not in client.get(group.get_absolute_url()).content.decode().partition("<main")[2]
    address, muted = f"/api/v1/failure-groups/{group.pk}/status/", {"status": "muted"}
    assert client.post(address, muted, content_type="application/json").status_code == 403


def test_no_one_reads_a_line_of_a_job_that_they_may_not_see(client, fail, liaison, shifter, dune):
    """A known error has many lines, of which a group keeps that of its first job."""
    fail("[FATAL] Auth failed for /dune/users\n", sweep=False, experiment=dune)
    fail("[FATAL] Auth failed for /nova/users\n")
    group = FailureGroup.objects.get()
    assert group.cause
    assert "Auth failed" in group.line
    pages = (reverse("diagnosis:failures"), "/api/v1/failure-groups/?status=new")
    for user, is_shown in ((shifter, True), (liaison, False)):
        client.force_login(user)
        for address in pages:
            assert ("Auth failed for" in client.get(address).text) == is_shown, address
        page = client.get(group.get_absolute_url()).text
        assert "dune/users" not in page
        assert "Auth failed for /nova/users" in page

    FailureGroup.objects.update(cause="", title="Unexplained")
    client.force_login(liaison)
    for address in pages:
        assert "Auth failed for" in client.get(address).text, "all of its jobs have this line"


def test_no_search_tells_that_a_hidden_line_has_a_text(client, fail, liaison, shifter, dune):
    """The text of a line could be guessed letter by letter."""
    fail("[FATAL] Auth failed for /dune/users\n", sweep=False, experiment=dune)
    fail("[FATAL] Auth failed for /nova/users\n")
    group = FailureGroup.objects.get()
    for user, finds in ((liaison, False), (shifter, True)):
        client.force_login(user)
        for url in (reverse("diagnosis:failures"), reverse("portal:find")):
            page = client.get(url, {"q": "Auth failed for"}, follow=True).text
            assert (group.get_absolute_url() in page) is finds, (user, url)


def test_liaisons_select_only_groups_that_they_may_change(
    client, fail, liaison, shifter, nova, dune
):
    fail("nothing\n", sweep=False)
    [own] = FailureGroup.objects.values_list("pk", flat=True)
    fail(sweep=False)
    fail(experiment=dune)
    keys = list(FailureGroup.objects.values_list("pk", flat=True))
    assert len(keys) == 2
    for user, selectable in ((shifter, set(keys)), (liaison, {own})):
        assert groups.find_triageable(user, keys) == selectable
        for key in keys:
            group = FailureGroup.objects.get(pk=key)
            assert groups.may_triage(user, group) == (key in selectable)
        client.force_login(user)
        page = client.get(reverse("diagnosis:failures"))
        boxes = re.findall(r'name="group" value="(\d+)"', page.content.decode())
        assert set(map(int, boxes)) == selectable
        says_why = "without jobs of other experiments" in page.content.decode()
        assert says_why == (len(selectable) < len(keys))
        offered = {
            str(choice) for _, choice in page.context["filter"].form["experiment"].field.choices
        }
        assert ("DUNE" in offered) == (user == shifter)
        assert nova.name in offered


def test_list_has_sections_views_and_bulk_actions(client, fail, shifter):
    fail()
    fail("nothing\n")
    client.force_login(shifter)
    url = reverse("diagnosis:failures")
    html = client.get(url, {"view": "unexplained"}).content.decode()
    assert ("Unexplained: no known error matched" in html, "Auth failed" in html) == (True, False)
    keys = list(FailureGroup.objects.values_list("pk", flat=True))
    client.post(
        reverse("diagnosis:act-on-groups"),
        {"group": keys, "do": "assign", "next": f"{url}?view=mine"},
    )
    assert set(FailureGroup.objects.values_list("status", "owner")) == {
        ("assigned", shifter.username)
    }
    html = client.get(url, {"view": "mine"}).content.decode()
    assert ("In progress" in html, "Needs action" in html) == (True, False)
    assert (
        client.post(reverse("diagnosis:act-on-groups"), {"group": "x", "next": "//evil"}).url == url
    )


def test_group_of_jobs_that_their_users_cancelled_needs_no_action(client, fail, shifter):
    fail()
    client.force_login(shifter)
    url = reverse("diagnosis:failures")
    assert "Needs action" in client.get(url).content.decode()
    FailureGroup.objects.update(verdict=VerdictKind.USER)
    html = client.get(url).content.decode()
    assert ("Needs action" in html, 'form-section">Done' in html) == (False, True)
    FailureGroup.objects.update(status=GroupStatus.ASSIGNED)
    assert "In progress" in client.get(url).content.decode(), "someone looks at it"


def test_open_jobs_of_a_group_are_for_a_person_or_without_remedy():
    figures = {"pk": 1, "kind": GroupKind.ERROR, "status": GroupStatus.NEW, "owner": ""}
    figures |= {"first_seen_at": timezone.now(), "jobs": 10, "succeeded": 1, "core_seconds": 0}
    figures["not_succeeded"] = {FollowUp.IMPOSSIBLE: 2, FollowUp.BY_RULE: 3}
    for verdict, expected in (
        (VerdictKind.SERVICE, (6, 4, 2)),
        (VerdictKind.CODE, (6, 6, 0)),
        (VerdictKind.USER, (6, 0, 0)),
    ):
        row = GroupRow(verdict=verdict, **figures)
        assert (row.open, row.for_a_person, row.without_remedy) == expected


def test_page_takes_notes_and_status_and_names_wrong_input(client, fail, shifter):
    fail()
    group = FailureGroup.objects.get()
    client.force_login(shifter)
    act = reverse("diagnosis:act-on-group", args=[group.pk])
    assert client.post(act, {"do": "note", "text": " "}).status_code == 400
    client.post(act, {"do": "note", "text": "<b>Pool</b> restarted"})
    assert client.post(act, {"do": "muted"}).status_code == 400
    assert client.get(act).url == group.get_absolute_url(), (
        "a reload after an error leads to the page"
    )
    client.post(act, {"do": "muted", "days": "2"})
    html = client.get(group.get_absolute_url()).content.decode()
    assert "&lt;b&gt;Pool&lt;/b&gt; restarted" in html
    assert "muted until" in html
    assert (
        "Auth failed"
        not in client.get(reverse("diagnosis:failures")).content.decode().partition("<main")[2]
    )
    assert ">Unmute</button>" in html
    assert "Group unmuted." in client.post(act, {"do": "unmute"}, follow=True).content.decode()
    group.refresh_from_db()
    assert (group.status, group.muted_until) == ("new", None)
    assert "is not muted" in client.post(act, {"do": "unmute"}).content.decode()


@pytest.fixture(
    params=[status for status, moves in GROUP_MOVES.items() if GroupStatus.MUTED in moves]
)
def muted(request, fail, approver, shifter):
    """Return a group that was muted for a day, two hours ago, and the status in which it was."""
    fail()
    group, now = FailureGroup.objects.get(), timezone.now()
    FailureGroup.objects.update(status=request.param, owner=approver.username)
    group.refresh_from_db()
    changes = {"at": now - timedelta(hours=2), "muted_until": now + timedelta(days=1)}
    groups.set_status(group=group, status=GroupStatus.MUTED, by=shifter, **changes)
    return group, request.param


def test_unmute_restores_the_status_before_the_mute(muted, client, shifter, approver):
    group, before = muted
    client.force_login(shifter)
    fields = fields_of(client.get(group.get_absolute_url()))
    client.post(
        reverse("diagnosis:act-on-group", args=[group.pk]), fields | {"do": "unmute", "text": ""}
    )
    group.refresh_from_db()
    assert (group.status, group.owner, group.muted_until) == (before, approver.username, None)


def test_unmute_of_the_api_does_the_same(muted, client, shifter, approver):
    group, before = muted
    client.force_login(shifter)
    url = reverse("api:failure-group-unmute", args=[group.pk])
    assert client.post(url).json()["status"] == before
    group.refresh_from_db()
    assert (group.status, group.owner, group.muted_until) == (before, approver.username, None)
    assert client.post(url).status_code == 409, "it is not muted"


def test_expired_mute_restores_the_status_before_it(muted, fail, approver):
    group, before = muted
    FailureGroup.objects.update(muted_until=timezone.now() - timedelta(minutes=1))
    fail(started_at=timezone.now() - timedelta(hours=3))
    group.refresh_from_db()
    assert (group.status, group.owner, group.muted_until) == (before, approver.username, None)


def test_expired_mute_ends_without_a_new_failure(muted):
    group, before = muted
    sweep_groups(recount_dirty_hours(), at=group.muted_until - timedelta(seconds=1))
    group.refresh_from_db()
    assert group.status == "muted"
    sweep_groups(recount_dirty_hours(), at=group.muted_until)
    group.refresh_from_db()
    assert group.status == before


def test_assigning_a_muted_group_ends_its_mute(fail, client, shifter, approver):
    fail()
    group, now = FailureGroup.objects.get(), timezone.now()
    until = now + timedelta(days=1)
    groups.set_status(group=group, status=GroupStatus.MUTED, by=shifter, at=now, muted_until=until)
    client.force_login(shifter)
    act = reverse("diagnosis:act-on-group", args=[group.pk])
    client.post(
        act, {"do": "unmute", "owner": approver.username, "initial-owner": shifter.username}
    )
    group.refresh_from_db()
    assert (group.status, group.owner, group.muted_until) == ("assigned", approver.username, None)


@pytest.mark.parametrize(
    "button", [{"do": "assign"}, {"do": "known"}, {"do": "resolved"}, {"do": "muted", "days": 7}]
)
def test_every_button_of_the_triage_adds_the_note_typed_beside_it(button, client, fail, shifter):
    fail()
    group = FailureGroup.objects.get()
    client.force_login(shifter)
    client.post(
        reverse("diagnosis:act-on-group", args=[group.pk]), {**button, "text": "Pool restarted"}
    )
    group.refresh_from_db()
    assert group.status != GroupStatus.NEW
    assert [note.text for note in group.notes.all()] == ["Pool restarted"]


def fields_of(page):
    """Return the inputs of the triage form, as a browser posts them."""
    names = r'name="((?:initial-)?(?:owner|days)|seen_at)"'
    return dict(re.findall(rf'<input type="\w+" {names} value="([^"]*)"', page.text))


@pytest.mark.parametrize(
    ("button", "status", "days"),
    [
        ("assign", "muted", 3),
        ("note", "muted", 3),
        ("muted", "muted", 3),
        ("note", "assigned", None),
        ("known", "known", None),
        ("resolved", "resolved", None),
    ],
)
def test_every_button_of_the_triage_takes_owner_and_days(
    button, status, days, client, fail, shifter, approver
):
    fail()
    group = FailureGroup.objects.get()
    client.force_login(shifter)
    fields = fields_of(client.get(group.get_absolute_url()))
    assert "owner" not in fields, "the group has none"
    assert fields["days"] == "7"
    typed = {"do": button, "text": "Pool restarted", "owner": approver.username} | (
        {"days": days} if days else {}
    )
    answer = client.post(reverse("diagnosis:act-on-group", args=[group.pk]), fields | typed)
    assert answer.status_code == 302, answer.text
    group.refresh_from_db()
    assert (group.owner, group.status) == (approver.username, status)
    assert not days or timedelta(days=2) < group.muted_until - timezone.now() <= timedelta(days=3)


@pytest.mark.parametrize("button", ["known", "resolved", "note"])
def test_fields_of_the_triage_that_nobody_changed_do_nothing(
    button, client, fail, shifter, approver
):
    fail()
    group = FailureGroup.objects.get()
    client.force_login(shifter)
    fields = fields_of(client.get(group.get_absolute_url()))
    groups.assign_group(group=group, owner=approver.username, by=approver, at=timezone.now())
    fields["seen_at"] = timezone.now().isoformat()
    client.post(
        reverse("diagnosis:act-on-group", args=[group.pk]), fields | {"do": button, "text": "Seen"}
    )
    group.refresh_from_db()
    assert (group.owner, group.muted_until) == (approver.username, None)
    assert group.status == ("assigned" if button == "note" else button)


def test_group_is_assigned_to_who_presses_the_button(client, fail, shifter, approver):
    fail()
    group = FailureGroup.objects.get()
    groups.assign_group(group=group, owner=approver.username, by=approver, at=timezone.now())
    client.force_login(shifter)
    page = client.get(group.get_absolute_url()).text
    form = page.partition("Assign to me")[0].rpartition("<form")[2]
    hidden = dict(re.findall(r'name="(seen_at|owner|days)" value="([^"]*)"', form))
    client.post(reverse("diagnosis:act-on-group", args=[group.pk]), hidden | {"do": "assign"})
    group.refresh_from_db()
    assert (group.owner, group.status) == (shifter.username, "assigned")
    assert "Assign to me" not in client.get(group.get_absolute_url()).text


def test_days_typed_beside_a_button_that_cannot_mute_are_refused_and_kept(client, fail, shifter):
    fail()
    group = FailureGroup.objects.get()
    client.force_login(shifter)
    fields = fields_of(client.get(group.get_absolute_url()))
    typed = fields | {"do": "resolved", "days": "3", "text": ""}
    answer = client.post(reverse("diagnosis:act-on-group", args=[group.pk]), typed)
    assert answer.status_code == 400
    assert "Press Mute to mute it, or clear the days." in answer.text
    assert (fields_of(answer)["days"], fields_of(answer)["initial-days"]) == ("3", "7")
    group.refresh_from_db()
    assert group.status == "new"

    client.post(
        reverse("diagnosis:act-on-groups"),
        {"do": "resolved", "group": group.pk, "owner": shifter.username},
    )
    group.refresh_from_db()
    assert (group.owner, group.status) == (shifter.username, "resolved")


def test_stale_page_overwrites_no_status(client, fail, shifter, approver):
    fail()
    group = FailureGroup.objects.get()
    client.force_login(shifter)
    page = client.get(group.get_absolute_url())
    seen_at = page.context["form"].initial["seen_at"]
    listed_at = client.get(reverse("diagnosis:failures")).context["seen_at"].isoformat()
    groups.set_status(group=group, status=GroupStatus.RESOLVED, by=approver, at=timezone.now())

    stale = {"do": "known", "text": "Still fails", "seen_at": seen_at}
    answer = client.post(reverse("diagnosis:act-on-group", args=[group.pk]), stale)
    assert answer.status_code == 409
    assert "changed by another user in the meantime: it is now resolved" in answer.text
    assert "Still fails" in answer.text, "the note is kept"
    several = {"do": "known", "group": group.pk, "seen_at": listed_at}
    client.post(reverse("diagnosis:act-on-groups"), several)
    group.refresh_from_db()
    assert (group.status, group.notes.count()) == ("resolved", 0)

    fresh = stale | {"seen_at": answer.context["form"].data["seen_at"]}
    assert client.post(reverse("diagnosis:act-on-group", args=[group.pk]), fresh).status_code == 302
    group.refresh_from_db()
    assert (group.status, group.notes.count()) == ("known", 1)


def test_release_of_which_most_jobs_fail_is_a_group(client, fail, shifter, nova):
    cluster = clusters.cluster("farm")
    for number in range(11):
        bad = {
            "host": f"wn-{number}",
            "stage": "reco",
            "release": "v9",
            "spool_id": str(number % 3),
        }
        fail(KEY.format(number) if number % 2 else "nothing\n", sweep=False, cluster=cluster, **bad)
    now = timezone.now()
    fine = {
        "state": "completed",
        "exit_code": 0,
        "ended_at": now,
        "experiment": nova,
        "stage": "reco",
    }
    assert group_failures_of_bad_releases(at=now) == []  # nothing to compare with
    for number in range(10):
        jobs.row(cluster, 5000 + number, at=now, release="v8", **fine)
    sweep_groups(recount_dirty_hours(), at=now)
    group = FailureGroup.objects.get(kind="release")
    assert (group.title, group.release, group.verdicts.count()) == (
        "Release v9: most jobs fail",
        "v9",
        11,
    )
    fail(KEY.format(1), cluster=cluster, stage="reco", release="v9")
    other = fail(KEY.format(1), cluster=cluster, stage="reco", release="v8")
    assert group.verdicts.count() == 12
    assert other.verdict.group.kind == "error"
    client.force_login(shifter)
    html = " ".join(client.get(group.get_absolute_url()).content.decode().split())
    assert "other releases are fine in the same stages" in html
    assert "hold the release, then retry with another" in html


def test_lift_and_its_interval():
    ratio, low, high = compare_rates(26, 26, 28, 1400)
    assert ratio == pytest.approx(50)
    assert 30 < low < 50 < high < 80


def complete_on_other_hosts(cluster):
    """Twenty jobs, each on a host of its own."""
    now = timezone.now()
    for number in range(20):
        jobs.row(
            cluster,
            5000 + number,
            at=now,
            state="completed",
            exit_code=0,
            host=f"wn-{number}",
            ended_at=now,
        )


def test_host_on_which_all_jobs_fail_is_a_group_and_what_is_common(client, fail, shifter):
    cluster = clusters.cluster("farm")
    complete_on_other_hosts(cluster)
    for number in range(11):
        stage = "reco" if number % 2 else "simulation"
        fail(AUTH, sweep=number == 10, cluster=cluster, host="wn-0306.example.org", stage=stage)
    group = FailureGroup.objects.get(kind="host")
    assert (group.title, group.verdicts.count()) == ("wn-0306: nearly every job fails", 11)
    fail("nothing\n", cluster=cluster, host="wn-0306.example.org")
    group.refresh_from_db()
    assert group.verdicts.count() == 12
    [trait] = [trait for trait in profile_of(group).traits if trait.attribute == "host"]
    assert (trait.value, trait.jobs, trait.stands_out) == ("wn-0306", 12, True)
    client.force_login(shifter)
    page = text_of(client.get(group.get_absolute_url()))
    assert re.search("Of the 12 jobs that ended since .*<li>12 ran on wn-0306[^<]*, expected", page)
    assert page.count("jobs that ended since") == 1


def test_host_group_shows_the_failure_of_most_of_its_jobs(client, fail, shifter):
    """Its newest job may have failed for an outage that met it too."""
    cluster = clusters.cluster("farm")
    complete_on_other_hosts(cluster)
    for number in range(11):
        stage = "reco" if number % 2 else "simulation"
        fail(AUTH, sweep=False, cluster=cluster, host="wn-0306", stage=stage)
    timeout = "Exception: samweb: FetchError: Retry count exceeded\n"
    fail(timeout, cluster=cluster, host="wn-0306", ended_at=timezone.now())
    sweep_groups(recount_dirty_hours(), at=timezone.now())
    group = FailureGroup.objects.get(kind="host")
    assert group.verdicts.count() == 12
    assert "Auth failed" in group.line

    client.force_login(shifter)
    html = client.get(group.get_absolute_url()).content.decode()
    example = html.partition('id="log"')[2].partition("</section>")[0]
    assert "Auth failed" in example
    assert "FetchError" not in example


def test_what_is_common_is_computed_again_after_growth_by_a_fifth_or_an_hour(client, fail, shifter):
    cluster = clusters.cluster("farm")
    for number in range(10):
        fail(KEY.format(number), sweep=number == 9, cluster=cluster, host="wn-1")
    group, now = FailureGroup.objects.get(), timezone.now()
    assert profile_of(group).total == 10

    def jobs_compared(*, after: timedelta) -> int:
        sweep_groups(recount_dirty_hours(), at=now + after)
        group.refresh_from_db()
        return profile_of(group).jobs

    fail(KEY.format(11), sweep=False, cluster=cluster, host="wn-2")
    assert jobs_compared(after=timedelta(minutes=5)) == 10
    assert jobs_compared(after=timedelta(minutes=65)) == 11
    for number in (12, 13, 14):
        fail(KEY.format(number), sweep=False, cluster=cluster, host="wn-2")
    assert jobs_compared(after=timedelta(minutes=70)) == 14

    client.force_login(shifter)
    html = " ".join(client.get(group.get_absolute_url()).content.decode().split())
    common = html.partition('id="common"')[2].partition("</header>")[0]
    assert "of the 14 jobs from" in common
    assert f", as of {when(now + timedelta(minutes=70))}" in common


def test_a_black_hole_is_found_in_logs_that_are_analysed_late(fail, nova):
    cluster, now = clusters.cluster("farm"), timezone.now()
    broke = now - timedelta(hours=30)
    for number in range(40):
        ended = broke + timedelta(minutes=number)
        fine = {"state": "completed", "exit_code": 0, "ended_at": ended, "experiment": nova}
        jobs.row(cluster, 5000 + number, at=now, host=f"wn-{number % 5}", **fine)
    for number in range(7):
        times = {
            "started_at": broke + timedelta(minutes=5 * number),
            "ended_at": broke + timedelta(minutes=5 * number + 1),
        }
        stage = "reco" if number % 2 else "simulation"
        fail(AUTH, sweep=number == 6, cluster=cluster, host="wn-7", stage=stage, **times)

    assert list(FailureGroup.objects.filter(kind="host").values_list("host", flat=True)) == ["wn-7"]

    later = fail(AUTH, cluster=cluster, host="wn-7")
    assert later.verdict.group.kind == "error"


def test_an_outage_makes_no_host_a_black_hole(fail, nova):
    cluster, now = clusters.cluster("farm"), timezone.now()
    for number in range(40):
        state = (
            {"state": "failed", "exit_code": 1}
            if number % 2
            else {"state": "completed", "exit_code": 0}
        )
        jobs.row(
            cluster,
            5000 + number,
            at=now,
            host=f"wn-{number % 5}",
            ended_at=now,
            experiment=nova,
            **state,
        )
    for number in range(7):
        fail(
            AUTH,
            sweep=number == 6,
            cluster=cluster,
            host="wn-7",
            stage="reco" if number % 2 else "simulation",
        )

    assert not FailureGroup.objects.filter(kind="host").exists()


@hypothesis.given(st.lists(st.booleans(), max_size=30))
def test_densest_run_has_the_largest_excess_of_failures(failures):
    def excess(run: slice) -> float:
        taken = failures[run]
        return sum(taken) - 4 * (len(taken) - sum(taken))

    run = densest_run(failures)
    places = range(len(failures) + 1)
    assert excess(run) == max(
        excess(slice(start, end)) for start in places for end in places if start <= end
    )
    assert not failures[run] or (failures[run][0] and failures[run][-1])


@hypothesis.given(st.integers(1, 60), st.integers(1, 60), st.floats(0.01, 0.99))
def test_chance_is_never_below_the_binomial_tail(jobs_in_all, failed, rate):
    failed = min(failed, jobs_in_all)
    numbers = range(failed, jobs_in_all + 1)
    tail = sum(
        comb(jobs_in_all, number) * rate**number * (1 - rate) ** (jobs_in_all - number)
        for number in numbers
    )
    assert chance_of(jobs_in_all, failed / jobs_in_all, rate) >= tail * (1 - 1e-9)


def test_the_example_log_shows_the_deciding_line_below_many_others(client, fail, shifter):
    symptoms = "".join(f"ERROR: cannot read block {number}\n" for number in range(12))
    job = fail(symptoms + AUTH)
    assert Evidence.objects.filter(harvest__job=job).count() > 6

    client.force_login(shifter)
    html = client.get(job.verdict.group.get_absolute_url()).content.decode()

    assert "Auth failed" in html.partition('id="log"')[2].partition("</section>")[0]


def test_list_is_sorted_within_its_sections(client, fail, shifter):
    for _ in range(2):
        fail(AUTH, wall_seconds=60, cpus=1)
    fail(KEY.format(1), wall_seconds=600, cpus=4)
    client.force_login(shifter)

    def jobs_of(sort):
        [section] = client.get(f"/failures/?sort={sort}").context["sections"]
        return [row.jobs for row in section.rows]

    assert jobs_of("-open") == [2, 1]
    assert jobs_of("-core") == [1, 2]
    assert jobs_of("core") == [2, 1]
    assert jobs_of("nothing") == [2, 1]
