"""What the home page shows first: to an approver, a shifter and a liaison; and what changed."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.urls import reverse

from apps.accounts.domain.users import VISIT_PAUSE, note_visit
from apps.clusters.domain import drain_command
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import publish
from apps.diagnosis.domain.causes.totals import mark_dirty, recount_dirty_hours
from apps.diagnosis.domain.groups.triage import assign_group, set_status
from apps.diagnosis.enums import FollowUp, GroupKind, GroupStatus, VerdictKind
from apps.diagnosis.models import FailureGroup
from apps.hosts.domain.exclusions import extend_exclusion
from apps.hosts.models import HostExclusion
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.models import Job
from apps.portal.pages.fix_first import fix_first
from apps.portal.pages.home import OWN_REQUESTS, own_requests
from apps.portal.pages.home_changes import changes_for_hand_over, changes_since
from apps.portal.pages.limit_proposals import propose_limits
from apps.production.domain.approvals.wait_counts import count_waits
from apps.production.enums import AttentionKind, RequestState
from apps.production.models import Attention, Request
from apps.statusboard.domain.incidents.incidents import close_incident
from apps.submission.domain.retries.offers import retry_offer
from apps.submission.enums import LeftOut
from tests.factories import requests
from tests.factories.history import history
from tests.pages import page_of, text_of
from tests.portal.shared_world import (
    approver,
    dune,
    liaison,
    nova,
    now,
    shared_world,
    shifter,
    world,
)

__all__ = ["approver", "dune", "liaison", "nova", "now", "shared_world", "shifter", "world"]
GB = 10**9


@pytest.fixture
def group(world):
    return FailureGroup.objects.get()


def test_approver_reads_how_many_wait_for_what_and_opens_the_desk(
    world, now, client, approver, liaison, nova, at
):
    for number in range(2):
        requests.request_in(
            "awaiting_approval",
            by=liaison,
            experiment=nova,
            approver=approver,
            title=f"Request {number}",
        )
    idle = requests.request_in("queued", by=liaison, experiment=nova, approver=approver)
    for kind in (AttentionKind.IDLE, AttentionKind.LATE):
        Attention.objects.create(request=idle, kind=kind, since=at, words="no job")
    waits = count_waits(approver, at)
    assert [(count.requests, count.label) for count in waits.counts] == [
        (2, "to sign"),
        (1, "idle"),
        (1, "late"),
    ]
    assert (waits.requests, waits.to_sign) == (3, 2)
    page = page_of(client, approver, "/")
    assert re.sub(r"<[^>]*>|\s+", " ", page).replace("  ", " ").count("2 to sign") == 1
    assert f'href="{reverse("production:desk")}">Open the desk</a>' in page
    assert "3 in all, some for more than one reason." in page
    inbox = client.get(reverse("production:inbox")).context["groups"]
    assert [(group.heading, len(group.items)) for group in inbox] == [("To sign", 2), ("Idle", 1)]
    for count in waits.counts[1:]:
        listed = client.get(count.url).context["page"].rows
        assert [row.key for row in listed] == [idle.key]


def test_liaison_sees_own_open_requests_first(world, now, client, liaison, shifter, at):
    page = page_of(client, liaison, "/")
    assert page.index('id="own"') < page.index('id="hours"')
    assert world.request.key in page[page.index('id="own"') : page.index('id="hours"')]
    assert 'id="own"' not in page_of(client, shifter, "/")
    for number in range(OWN_REQUESTS):
        requests.draft(liaison, world.request.experiment, title=f"Draft {number}")
    assert "5 of 6 open" in page_of(client, liaison, "/")
    Request.objects.update(state=RequestState.CANCELLED, closed_at=at, closed_by=None)
    assert own_requests(user=liaison, at=at) == []


def test_shifter_sees_the_failure_groups_by_wasted_core_hours(world, now, client, shifter, group):
    page = page_of(client, shifter, "/")
    assert page.index('id="fix-first"') < page.index('id="hours"')
    assert f'href="{group.get_absolute_url()}"' in page


def test_next_step_of_a_service_failure_is_a_retry_once_the_service_is_up(
    world, shifter, group, at
):
    [fix] = fix_first(user=shifter, at=at).fixes
    assert (fix.label, fix.url) == ("Open", group.get_absolute_url())
    close_incident(incident=world.incident, by=shifter, at=at, reason="back")
    [fix] = fix_first(user=shifter, at=at).fixes
    offer = retry_offer(source=group, user=shifter, at=at)
    label = f"Retry {offer.jobs}…" if offer.jobs else "Retry bundle…"
    assert offer.jobs or offer.bundle
    assert (fix.label, fix.url) == (label, f"/retries/group/{group.pk}/")


def test_next_step_counts_what_the_dry_run_retries_not_the_open_jobs(
    world, shifter, group, at, monkeypatch
):
    close_incident(incident=world.incident, by=shifter, at=at, reason="back")
    offer = retry_offer(source=group, user=shifter, at=at)
    for numbers, label in (
        (replace(offer, jobs=7, bundle=0, left_out=()), "Retry 7…"),
        (replace(offer, jobs=7, left_out=[(LeftOut.NO_SCRIPT, 2)]), "Retry 7 of 9…"),
        (replace(offer, jobs=0, bundle=3, left_out=[(LeftOut.NOT_SENT, 3)]), "Retry bundle…"),
        (replace(offer, jobs=0, bundle=0, left_out=[(LeftOut.NO_SCRIPT, 2)]), "Open"),
    ):
        monkeypatch.setattr(
            "apps.portal.pages.fix_first.retry_offer", lambda numbers=numbers, **_: numbers
        )
        [fix] = fix_first(user=shifter, at=at).fixes
        assert fix.label == label
    assert fix.advice == "only their owners can resubmit: notify them"


@pytest.mark.parametrize(
    ("follow_up", "section"),
    [(FollowUp.IN_BATCH, "In progress"), (FollowUp.BY_RULE, "In progress")],
)
def test_group_whose_jobs_are_all_retried_already_is_not_to_fix(
    world, now, client, shifter, group, at, monkeypatch, follow_up, section
):
    """Neither on home nor in the list."""
    close_incident(incident=world.incident, by=shifter, at=at, reason="back")
    [verdict] = group.verdicts.values_list("pk", flat=True)
    assert len(fix_first(user=shifter, at=at).fixes) == 1
    plugin = "apps.submission.domain.retries.follow_ups.follow_ups_of"
    monkeypatch.setattr(plugin, lambda *_, **__: {verdict: follow_up})
    shown = fix_first(user=shifter, at=at)
    assert (shown.fixes, shown.groups, shown.taken_care_of) == ([], 1, 1)
    page = page_of(client, shifter, "/failures/")
    assert f'<li class="form-section">{section}' in page
    assert "Needs action" not in page
    assert f"1 {follow_up.label}." in page


def test_next_step_says_what_recovery_rules_retry(world, shifter, group, at, monkeypatch):
    close_incident(incident=world.incident, by=shifter, at=at, reason="back")
    offer = retry_offer(source=group, user=shifter, at=at)
    offer = replace(offer, jobs=5, left_out=[(LeftOut.BY_RULE, 2)])
    monkeypatch.setattr("apps.portal.pages.fix_first.retry_offer", lambda **_: offer)
    [fix] = fix_first(user=shifter, at=at).fixes
    assert fix.advice == "retry; 2 more will be retried by recovery rules"
    assert fix.label == "Retry 5…"


def test_jobs_cancelled_by_their_users_are_not_to_fix(world, shifter, group, at):
    FailureGroup.objects.update(verdict=VerdictKind.USER)
    assert fix_first(user=shifter, at=at).groups == 0


def test_groups_that_are_done_or_all_succeeded_are_not_to_fix(
    world, now, client, shifter, group, at
):
    client.force_login(shifter)
    FailureGroup.objects.update(status=GroupStatus.MUTED)
    assert fix_first(user=shifter, at=at).groups == 0
    FailureGroup.objects.update(status=GroupStatus.ASSIGNED)
    assert fix_first(user=shifter, at=at).taken_care_of == 0
    group.verdicts.update(later_state=JobState.COMPLETED, later_attempt=2)
    mark_dirty([hour_of(world.job.ended_at)])
    recount_dirty_hours()
    shown = fix_first(user=shifter, at=at)
    assert (shown.fixes, shown.groups, shown.taken_care_of) == ([], 1, 1)
    listed = client.get("/failures/").context["sections"]
    assert [section.groups for section in listed] == [shown.groups]


def test_a_host_group_is_drained_by_the_command_of_its_scheduler(world, client, shifter, group, at):
    Cluster.objects.update(scheduler="slurm")
    FailureGroup.objects.update(
        kind=GroupKind.HOST, host="wn-0777", cluster=world.job.cluster, title="it's broken"
    )
    [fix] = fix_first(user=shifter, at=at).fixes
    assert (fix.label, fix.url) == ("Drain wn-0777…", f"{group.get_absolute_url()}#drain")
    page = page_of(client, shifter, group.get_absolute_url())
    assert "scontrol update NodeName=wn-0777 State=DRAIN" in page


def test_drain_commands_quote_what_hosts_and_titles_contain():
    command = drain_command(Cluster(scheduler="torque"), "wn;reboot", reason="it's broken")
    assert command == """pbsnodes -o -N 'it'"'"'s broken' 'wn;reboot'"""
    assert drain_command(Cluster(scheduler="simulated"), "wn", reason="x") == ""


@pytest.mark.parametrize(
    ("state", "used_by_99", "label", "about"),
    [
        ("timeout", None, "Propose 12 h…", "stages.0.wall_seconds"),
        ("timeout", 16.5 * 3600, "Propose 17 h…", "stages.0.wall_seconds"),
        ("out_of_memory", None, "Propose 4 GB…", "stages.0.memory_bytes"),
        ("out_of_memory", 2.5 * GB, "Propose 4 GB…", "stages.0.memory_bytes"),
        ("out_of_memory", 4.2 * GB, "Propose 5 GB…", "stages.0.memory_bytes"),
    ],
)
def test_a_larger_limit_is_proposed_where_jobs_hit_it(
    world, client, shifter, group, at, state, used_by_99, label, about
):
    Job.objects.update(
        state=state,
        request=world.request,
        time_limit_seconds=8 * 3600,
        requested_memory_bytes=3 * GB,
    )
    history(
        world.request,
        name="reco",
        wall_seconds_99=used_by_99,
        memory_bytes_99=used_by_99,
    )
    proposal = propose_limits([group], shifter)[group.pk]
    assert proposal.label == label
    is_known = used_by_99 is not None
    assert ("99 % of the completed jobs used" in proposal.advice) == is_known
    client.force_login(shifter)
    form = client.get(proposal.url).context["form"]
    assert form["field"].value() == about
    assert form["text"].value().startswith("Jobs of reco hit their limit of ")
    assert ("99 % of the completed jobs used up to" in form["text"].value()) == is_known
    FailureGroup.objects.update(verdict="resource")
    [fix] = fix_first(user=shifter, at=at).fixes
    assert (fix.label, fix.url) == (proposal.label, proposal.url)
    assert label in page_of(client, shifter, group.get_absolute_url())


@pytest.mark.parametrize(
    ("limit", "advice"),
    [
        # 3 GB, and what someone who means 3 GB writes by hand: 3,000 MiB or 3 GiB.
        (3 * GB, "request 4 GB for reco of {}: jobs were killed at 3 GB"),
        (3000 * 2**20, "request 4 GB for reco of {}: jobs were killed at 3 GB"),
        (3 * 2**30, "request 4 GB for reco of {}: jobs were killed at 3 GB"),
        (
            4 * GB,
            "request 6 GB for reco of {}: jobs were killed at 4 GB, the request says 3 GB",
        ),
    ],
)
def test_proposal_names_the_limit_as_the_request_does(world, shifter, group, limit, advice):
    Job.objects.update(state="out_of_memory", request=world.request, requested_memory_bytes=limit)
    world.request.stages.update(memory_bytes=3 * GB)
    known = advice.format(world.request.key)
    assert propose_limits([group], shifter)[group.pk].advice == known
    history(world.request, name="reco", memory_bytes_99=2.46 * GB)
    shown = f"{known}; 99 % of the completed jobs used up to 2.5 GB"
    assert propose_limits([group], shifter)[group.pk].advice == shown


def test_no_limit_is_proposed_for_other_failures_or_closed_requests(world, shifter, group, at):
    assert propose_limits([group], shifter) == {}
    Job.objects.update(state="timeout", request=world.request, time_limit_seconds=3600)
    Request.objects.update(state=RequestState.CANCELLED, closed_at=at, closed_by=None)
    assert propose_limits([group], shifter) == {}


def test_a_visit_ends_after_a_pause(db, shifter, at):
    note_visit(user=shifter, at=at)
    note_visit(user=shifter, at=at + timedelta(minutes=10))
    assert shifter.previous_visit_at is None
    later = at + timedelta(minutes=10) + VISIT_PAUSE
    note_visit(user=shifter, at=later)
    shifter.refresh_from_db()
    assert shifter.previous_visit_at == at + timedelta(minutes=10)
    assert shifter.visited_at == later


def test_a_page_that_refreshes_itself_is_no_visit(world, now, client, shifter):
    client.force_login(shifter)
    client.get("/", headers={"HX-Request": "true"})
    shifter.refresh_from_db()
    assert shifter.visited_at is None
    client.get("/")
    shifter.refresh_from_db()
    assert shifter.visited_at


def test_shifter_reads_what_changed_since_the_last_visit(world, now, client, shifter, group, at):
    texts = [
        change.text
        for change in changes_since(since=at - timedelta(hours=2), user=shifter, at=at).shown
    ]
    assert "samweb is down" in texts
    assert f"New failure: {group.title}" in texts
    assert changes_since(since=at + timedelta(hours=1), user=shifter, at=at).shown == []
    shifter.previous_visit_at = at - timedelta(hours=2)
    shifter.save()
    client.force_login(shifter)
    assert "Since your last visit" in text_of(client.get("/"))


def test_hand_over_lists_triage_exclusions_and_groups_found_late(world, shifter, group, at):
    FailureGroup.objects.update(first_seen_at=at - timedelta(hours=9))
    publish(kind="group.new", target=group, by="diagnosis", at=at)
    group.refresh_from_db()
    exclusion = HostExclusion.objects.get()
    longer = exclusion.expires_at + timedelta(days=1)
    extend_exclusion(exclusion=exclusion, expires_at=longer, by=shifter, at=at, reason="Disk full.")
    note = {"since": at - timedelta(seconds=1), "user": shifter, "at": at, "most": 20}
    by = shifter.username
    assign_group(group=group, owner=by, by=shifter, at=at)
    assigned = [change.text for change in changes_for_hand_over(**note).shown]
    assert f"Assigned to {by} by {by}: {group.title}" in assigned
    set_status(group=group, status=GroupStatus.KNOWN, by=shifter, at=at)
    links = {change.text: change.url for change in changes_for_hand_over(**note).shown}
    assert links[f"New failure: {group.title}"] == group.get_absolute_url()
    assert links[f"Known by {by}: {group.title}"] == group.get_absolute_url()
    assert links[f"{exclusion} is excluded for longer, by {by}"] == exclusion.get_absolute_url()


def test_liaison_reads_the_moves_of_own_requests(world, liaison, approver, nova, at):
    mine = requests.request_in("queued", by=liaison, experiment=nova, approver=approver)
    changes = changes_since(since=at - timedelta(days=1), user=liaison, at=at + timedelta(days=1))
    assert f"{mine.key} was added to the queue" in [change.text for change in changes.shown]


def test_inbox_says_how_many_are_late_under_a_more_urgent_step(
    world, now, client, approver, liaison, nova, at
):
    people = {"by": liaison, "experiment": nova, "approver": approver}
    for kinds in ((AttentionKind.IDLE, AttentionKind.LATE), (AttentionKind.LATE,)):
        queued = requests.request_in("queued", **people)
        for kind in kinds:
            Attention.objects.create(request=queued, kind=kind, since=at, words="x")
    page = page_of(client, approver, reverse("production:inbox"))
    [late] = [part for part in page.split("<h2>") if part.startswith("Late")]
    assert "1 more under a more urgent step" in " ".join(late.split())
