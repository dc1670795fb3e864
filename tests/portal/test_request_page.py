"""The page of a request: what would bring it forward, what it used of its estimate,
and what it has written.
"""

import json
import re
from collections import Counter
from datetime import date, timedelta

import pytest
from django.template.loader import render_to_string
from django.urls import reverse

from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import publish
from apps.core.models import Event
from apps.core.tasks import deliver_waiting
from apps.jobs.models import Collection
from apps.notifications.domain.notifications import notify, select_unread, visible_notifications
from apps.notifications.enums import Group
from apps.notifications.models import Notification
from apps.portal.pages.request.page import request_page
from apps.portal.pages.request.production import Use
from apps.portal.pages.request.schedule import Schedule
from apps.production.domain.approvals.inbox import NextButton, inbox_items, waiting_for
from apps.production.domain.approvals.reminders import remind_of_waiting
from apps.production.domain.attention import Need, keep_attention
from apps.production.domain.forecast import Days, Expected, Forecast
from apps.production.domain.holds import place_hold
from apps.production.domain.lifecycle.moves import make_move, set_priority
from apps.production.domain.priority.rescoring import forget_sizes, rescore_all
from apps.production.domain.requests.status import RequestTotals
from apps.production.enums import AttentionKind, Verb
from apps.production.models import (
    Attention,
    QueueEntry,
    Request,
    StageCounts,
    StageHistory,
)
from apps.progress.domain.needs import note_attention
from apps.progress.domain.production_report import report_of
from apps.progress.domain.stage_counts import progress_of
from apps.progress.domain.stored_forecasts import keep_queue_forecasts
from apps.quality.domain.facts import gather_facts
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.enums import State
from apps.submission.models import Assignment, Submission
from tests.factories import clusters
from tests.factories.jobs import ran, record
from tests.factories.queue import set_pace
from tests.factories.requests import AT, LATER, request_in, stage
from tests.factories.statusboard import service
from tests.pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def made(nova, liaison, approver):
    return lambda state, **changes: request_in(
        state, by=liaison, experiment=nova, approver=approver, **changes
    )


def page(request, user):
    return request_page(request=Request.objects.get(pk=request.pk), user=user, at=LATER)


def history(request, *, name="reco", wall, memory):
    StageHistory.objects.create(
        request=request,
        experiment=request.experiment,
        name=name,
        release="v09_72",
        configuration=f"{name}.fcl",
        attempts=100,
        completed=100,
        core_seconds=100.0 * wall,
        completed_wall_seconds=100.0 * wall,
        wall_seconds=[wall] * 5,
        memory_bytes=[memory] * 5,
        per_day=[50.0] * 5,
        last_ended_at=AT,
        last_completed_at=AT,
    )


def test_higher_classes_of_a_queued_request_end_it_earlier(made, approver, liaison):
    first, second, third = (made("queued", title=f"Sample {n}") for n in range(3))
    for one, level in ((first, "high"), (second, "normal"), (third, "low")):
        set_priority(
            request=one, priority_class=level, priority=None, reason="agreed", by=approver, at=LATER
        )
    set_pace(5000)
    QueueEntry.objects.update(days_low=3, days=4, days_high=6)
    keep_queue_forecasts(at=LATER)
    changes = page(third, liaison).summary.changes_for_earlier_end
    assert [(change.what, change.why) for change in changes] == [
        ("Class normal instead of low", "2 instead of 3 in the queue"),
        ("Class high instead of low", "1 instead of 3 in the queue"),
        ("Start it now", "before the 2 ahead of it in the queue, if a cluster has room"),
    ]
    assert changes[-1].end == LATER.date() + timedelta(days=4)
    assert changes[-1].url == ""
    assert page(third, approver).summary.changes_for_earlier_end[-1].url.endswith("?do=start#do")
    table = render_to_string("portal/request/_ends.html", {"changes_for_earlier_end": changes})
    assert "What would bring it forward" in table
    assert "What it waits for" not in table
    expected = Request.objects.get(pk=third.pk).expected_end
    assert all(
        change.days > 0 and change.end == expected - timedelta(days=change.days)
        for change in changes
    )
    set_priority(
        request=third,
        priority_class="urgent",
        priority=None,
        reason="agreed",
        by=approver,
        at=LATER,
    )
    Request.objects.filter(pk=second.pk).update(deadline=LATER.date() + timedelta(days=3))
    [*_, start] = page(second, approver).summary.changes_for_earlier_end
    assert (start.what, start.days_late) == ("Start it now", 1)
    table = render_to_string("portal/request/_ends.html", {"changes_for_earlier_end": [start]})
    assert "still 1 d late" in table
    QueueEntry.objects.update(days=None)
    whats = [change.what for change in page(second, approver).summary.changes_for_earlier_end]
    assert "Start it now" not in whats


def test_missing_signatures_are_named_with_the_end_they_would_give(made, liaison, approver):
    history(made("done", stages=(stage("reco"),)), wall=600.0, memory=2e9)
    set_pace(5000)
    one = made("awaiting_approval", stages=(stage("reco", jobs=100),), title="Waits")
    signature = page(one, liaison).summary.changes_for_earlier_end[0]
    assert signature.what == "Signature of Approver"
    assert approver.username in signature.why
    assert signature.end > LATER.date()
    assert page(made("draft", title="Draft"), liaison).summary.changes_for_earlier_end == []


def test_request_that_no_class_would_end_waits_for_a_longer_wall_time(made, liaison):
    history(made("done", stages=(stage("reco"),)), wall=50_000.0, memory=2e9)
    for name in ("First", "Second"):
        made("queued", title=name)
    set_pace(5000)
    short = made("awaiting_approval", stages=(stage("reco", jobs=100),), title="Too short")
    changes = page(short, liaison).summary.changes_for_earlier_end
    assert [(change.what, change.url, change.is_obstacle) for change in changes] == [
        ("Signature of Approver", "", True),
        ("A longer wall time for reco", "#checks", True),
    ]


def test_who_cannot_do_what_a_request_needs_is_led_to_the_discussion(
    made, client, liaison, shifter
):
    reviewed = made("data_quality")
    link = f'href="/requests/{reviewed.key}/comment/">Ask in the discussion…</a>'
    client.force_login(liaison)
    assert link in text_of(client.get(f"/requests/{reviewed.key}/"))
    client.force_login(shifter)
    assert link not in text_of(client.get(f"/requests/{reviewed.key}/"))
    draft = made("draft", title="Draft")
    client.force_login(liaison)
    assert "Ask in the discussion" not in text_of(client.get(f"/requests/{draft.key}/"))


def test_failed_jobs_submitted_by_hand_do_not_lead_to_submissions(made, client, liaison):
    running = made("running", stages=(stage("reco", jobs=2),))
    times = {}
    for hours, name in enumerate(("submitted_at", "started_at", "ended_at"), start=1):
        times[name] = LATER + timedelta(hours=hours)
    records = [record(1, **times)]
    records += [record(number, state=JobState.FAILED, **times) for number in (2, 3)]
    farm = clusters.cluster("farm")
    ran(farm, running.key, "reco", *records, at=LATER + timedelta(hours=4))
    client.force_login(liaison)
    page_text = text_of(client.get(f"/requests/{running.key}/"))
    assert "of 2 completed<br> 1 failed <br>" in page_text
    assert f'/submissions/{running.key}/">1' not in page_text
    grid = clusters.cluster("grid", submits=True)
    Assignment.objects.create(request=running, cluster=grid, assigned_by="x", assigned_at=AT)
    page_text = text_of(client.get(f"/requests/{running.key}/"))
    assert page_text.count(f'/submissions/{running.key}/">1') == 2


def test_each_part_of_the_failed_jobs_of_a_stage_leads_to_its_list(made, client, liaison):
    """A cancelled job is one that ended without completing, but no failed attempt."""
    running = made("running", stages=(stage("reco", jobs=9),))
    hours = {"submitted_at": 1, "started_at": 2, "ended_at": 3}
    times = {name: LATER + timedelta(hours=hour) for name, hour in hours.items()}
    states = (JobState.FAILED, JobState.FAILED, JobState.CANCELLED)
    records = [record(number, state=state, **times) for number, state in enumerate(states)]
    ran(clusters.cluster("farm"), running.key, "reco", *records, at=LATER + timedelta(hours=4))
    client.force_login(liaison)
    html = client.get(running.get_absolute_url()).text
    listed = f"request={running.key}&amp;stage=reco"
    assert f'href="/jobs/?state=any_failure&amp;{listed}">2 failed attempts</a>' in html
    assert f'href="/jobs/?state=interrupted&amp;{listed}">1 interrupted</a>' in html


def test_limit_that_later_jobs_exceeded_must_change_before_the_start(
    made, liaison, approver, browse
):
    """The checks of the submission did not know these jobs. The queue shows the same."""
    small = stage("reco", memory_bytes=2_000_000_000, wall_seconds=3600)
    queued = made("queued", stages=(small,))
    assert page(queued, liaison).plan.needed_changes == []

    history(made("done", stages=(stage("reco"),)), wall=20_000.0, memory=2.5e9)
    shown = page(queued, liaison)
    assert shown.summary.status.answer == "Needs a change before it starts."
    assert shown.summary.next_by == "liaisons of NOvA"
    assert [change.fix for change in shown.plan.needed_changes] == ["Use 7 h", "Use 2.8 GB"]
    assert "More than half of 100 past jobs" in shown.plan.needed_changes[1].message

    text = text_of(browse(liaison).get(queued.get_absolute_url()))
    assert "Use 2.8 GB…" in text
    form = browse(liaison).get(shown.plan.needed_changes[1].url).content.decode()
    assert 'value="fix:memory_sufficient:stages.0.memory_bytes"' in form
    forget_sizes(experiment_id=queued.experiment_id)
    rescore_all(at=LATER)
    text = text_of(browse(liaison).get(reverse("production:queue")))
    assert "Most jobs of reco will exceed their wall time and memory." in text

    # The change is the liaison's turn, also where nothing would start the request.
    keep_attention(request=queued, needs={AttentionKind.IDLE: Need(LATER, "idle")}, at=LATER)
    note_attention(at=LATER + timedelta(days=9))
    change = "Most jobs of reco will exceed their wall time and memory"
    [mark] = Attention.objects.all()
    assert (mark.request, mark.kind, mark.words) == (queued, "needs_change", f"{change}.")
    assert (list(waiting_for(liaison)), list(waiting_for(approver))) == ([queued], [])
    (item,) = inbox_items([queued], liaison, LATER)
    step = "Change it, or ask the OPG to start it as it is"
    edit = reverse("production:request-edit", args=[queued.key])
    assert (item.todo, item.action) == (step, NextButton("Make changes", f"{edit}?check=1#checks"))
    assert item.why == f"Needs change: {change}"
    for url in (reverse("portal:home"), reverse("production:inbox")):
        text = text_of(browse(liaison).get(url))
        assert queued.key in text, url
        assert "needs change" in text.lower(), url
    [row] = browse(liaison).get("/api/v1/requests/?attention=needs_change").json()["results"]
    assert [(need["kind"], need["words"]) for need in row["attention"]] == [
        ("needs_change", f"{change}.")
    ]
    deliver_waiting()
    event = Event.objects.get(kind="request.needs_change")
    assert event.reason == f"{change}. {step}."
    notifications = Notification.objects.filter(event=event)
    assert [(row.user, row.group) for row in notifications] == [(liaison, Group.TURN)]

    assert remind_of_waiting(at=LATER + timedelta(days=13)) == 1
    reminder = Event.objects.get(kind="request.reminder")
    notify(event=reminder)
    assert (reminder.data["people"], reminder.reason.startswith(f"{step}.")) == (
        [liaison.username],
        True,
    )
    kinds = {row.event.kind for row in select_unread(visible_notifications(liaison))}
    assert {"request.needs_change", "request.reminder"} <= kinds
    keep_attention(request=queued, needs={AttentionKind.IDLE: Need(LATER, "idle")}, at=LATER)
    assert [row.kind for row in Attention.objects.all()] == ["idle"]
    note_attention(at=LATER + timedelta(days=13))

    shown = page(queued, approver)
    assert (shown.summary.status.answer, shown.summary.status.next_step) == (
        "Needs a change before it starts.",
        "",
    )
    text = text_of(browse(approver).get(queued.get_absolute_url()))
    assert "Propose 2.8 GB…" in text
    assert "Use 2.8 GB…" not in text
    form = browse(approver).get(shown.plan.needed_changes[1].proposal_url).context["form"]
    assert form["field"].value() == "stages.0.memory_bytes"
    assert form["text"].value() == f"{shown.plan.needed_changes[1].message} I propose 2.8 GB."
    browse(approver).post(
        shown.plan.needed_changes[1].proposal_url,
        {"field": "stages.0.memory_bytes", "text": "I propose 2.8 GB."},
    )
    text = text_of(browse(approver).get(queued.get_absolute_url()))
    assert "See its open discussion" in text
    assert "Propose 2.8 GB…" not in text
    assert "Propose 7 h…" in text
    head = text_of(browse(approver).get(queued.get_absolute_url())).partition("</h1>")[2]
    assert head.partition("Summary")[0].count("needs change") == 1
    dialog = text_of(browse(approver).get(f"{queued.get_absolute_url()}?do=start"))
    assert dialog.count(shown.plan.needed_changes[1].message) == 2
    assert "Start production anyway" in dialog

    running = made("running", stages=(small,))
    assert page(running, liaison).plan.needed_changes == []


@pytest.mark.parametrize(("last", "days"), [(19, 0), (20, 0), (21, 1), (25, 5)])
def test_deadline_is_at_risk_if_a_part_of_the_expected_range_is_after_it(last, days):
    end = Days(date(2026, 12, 10), date(2026, 12, 12), date(2026, 12, last))
    schedule = Schedule(
        started_at=AT,
        forecast=Forecast(end=end),
        deadline=date(2026, 12, 20),
        slack=None,
        days_gone=0,
        days_left=0,
        days_over=0,
    )
    assert schedule.days_at_risk == days
    context = {"schedule": schedule, "totals": RequestTotals(jobs=0, wall_seconds=0)}
    text = render_to_string("portal/request/_summary.html", context)
    assert ("At risk" in text) == bool(days)


def test_user_is_led_to_the_form_that_they_may_use(made, liaison, approver, shifter):
    history(made("done", stages=(stage("reco"),)), wall=600.0, memory=2e9)
    set_pace(5000)
    made("queued", stages=(stage("reco", jobs=50),), title="Ahead")
    last = made(
        "queued", stages=(stage("reco", jobs=100),), title="Behind", requested_priority="low"
    )
    addresses = {}
    for user in (approver, liaison, shifter):
        (first, *_) = page(last, user).summary.changes_for_earlier_end
        assert first.what.startswith("Class ")
        addresses[user] = first.url.removeprefix(last.get_absolute_url())
    assert addresses[approver] == "?do=priority#do"
    assert addresses[liaison] == "?do=reschedule#do"


def test_request_that_must_change_leads_to_its_form_before_its_submission(
    made, liaison, approver, client
):
    client.force_login(liaison)

    def main_buttons(request):
        html = client.get(request.get_absolute_url()).text
        return re.findall(r'class="button small main" href="([^"]*)"', html)

    returned = made("awaiting_approval")
    edit = reverse("production:request-edit", args=[returned.key])
    make_move(
        request=returned, verb=Verb.REQUEST_CHANGES, by=approver, at=LATER, reason="4 GB in reco"
    )
    assert page(returned, liaison).summary.next_button == NextButton("Make changes", edit)
    assert page(returned, approver).summary.next_button is None
    assert main_buttons(returned) == [edit]
    publish(kind="request.edited", target=returned, by=liaison, at=LATER + timedelta(hours=1))
    assert page(returned, liaison).summary.next_button is None
    assert main_buttons(returned) == ["?do=submit#do"]

    draft = made("draft", title="Draft", purpose="")
    edit = reverse("production:request-edit", args=[draft.key])
    assert page(draft, liaison).summary.next_button == NextButton("Continue draft", edit)
    assert main_buttons(draft) == [edit]


def test_request_does_not_wait_for_clusters_to_which_it_is_not_submitted(made, liaison):
    running = made("running")
    silent = [clusters.cluster(name) for name in ("farm", "tier2")]
    for cluster in silent:
        Collection.objects.create(cluster=cluster, collected_until=AT)

    def waits_for():
        return [change.what for change in page(running, liaison).summary.changes_for_earlier_end]

    assert waits_for() == ["farm answers again", "tier2 answers again"]
    Assignment.objects.create(
        request=running, cluster=silent[0], assigned_by="x", assigned_at=AT, most_in_flight=50
    )
    assert waits_for() == ["farm answers again"]


def test_holds_and_services_that_are_down_keep_a_request(made, liaison, shifter, client):
    samweb = service("samweb", AT - timedelta(days=9))
    one = made("running", stages=(stage("reco", services=("samweb",)),))
    assert page(one, liaison).summary.changes_for_earlier_end == []
    place_hold(by=shifter, at=AT, reason="Wrong seeds.", stage=one.stages.get())
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=AT)
    release, up = page(one, liaison).summary.changes_for_earlier_end
    assert (release.why, up.what, up.why) == (
        "on hold: Wrong seeds.",
        "samweb up again",
        "down, needed by reco",
    )
    assert up.advice.endswith("New ones should wait until it is up.")
    farm = clusters.cluster("farm")
    chosen = Assignment.objects.create(
        request=one, cluster=farm, assigned_by="x", assigned_at=AT, most_in_flight=50
    )
    up = page(one, liaison).summary.changes_for_earlier_end[1]
    assert up.advice.endswith("The portal submits new ones once it is up.")
    chosen.delete()
    client.force_login(liaison)
    text = client.get(one.get_absolute_url()).text
    assert "What it waits for" in text
    assert "samweb up again" in text
    assert "Stage reco of" in text
    assert "What would bring it forward" not in text

    queued = made("queued", stages=(stage("reco", services=("samweb",)),))
    Attention.objects.create(request=queued, kind="idle", since=AT, words="nothing submitted")
    step = "Choose its cluster now: its jobs go out when samweb is up"
    assert page(queued, shifter).summary.status.next_step == f"{step}."
    shown_to_liaison = page(queued, liaison).summary.status.next_step
    assert shown_to_liaison.startswith("Approvers and shifters choose its cluster now: ")
    assert [item.todo for item in inbox_items([queued, one], shifter, LATER)] == [step, "Review it"]
    assert remind_of_waiting(at=LATER + timedelta(days=9)) == 1
    assert Event.objects.get(kind="request.reminder").reason.startswith(f"{step}.")
    Attention.objects.all().delete()
    need = Need(AT, "nothing submitted")
    keep_attention(request=queued, needs={AttentionKind.IDLE: need}, at=LATER)
    assert Event.objects.get(kind="request.idle").reason == f"nothing submitted. {step}."
    samweb.name = "SAM web"
    samweb.save()
    client.force_login(shifter)
    turn = "choose its cluster now: its jobs go out when SAM web is up</span>"
    assert turn in text_of(client.get("/"))


def test_use_is_compared_with_past_jobs_of_other_requests(
    made, liaison, client, settings, tmp_path
):
    past = made("done", stages=(stage("reco"),), title="Earlier")
    history(past, wall=600.0, memory=2e9)
    known = [{"name": "nova.mc.past", "events": 100, "size_bytes": 1000}]
    known += [{"name": "nova.mc.now", "files": 3, "size_bytes": 5_000_000_000}]
    (tmp_path / "datasets.json").write_text(json.dumps({"datasets": known}))
    settings.DATASET_CATALOGUE = f"file:{tmp_path}/datasets.json"
    asked = stage("reco", jobs=100, events=1000, output_dataset="nova.mc.now")
    one = made("running", stages=(asked,), title="Now")
    empty = page(made("queued", title="Queued", stages=(stage("other"),)), liaison)
    assert (empty.production.uses, empty.production.outputs) == ([], [])
    history(one, wall=3600.0, memory=2e9)
    StageCounts.objects.create(stage=one.stages.get(), files_out=2, events_out=400, reports=2)
    shown = page(one, liaison)
    uses = {use.title: (use.estimated, use.actual, use.is_over) for use in shown.production.uses}
    assert uses["reco time per job"] == (600.0, 3600.0, True)
    assert uses["reco memory"] == (2e9, 2e9, False)
    assert uses["Events"] == (1000, 400, False)
    assert uses["Disk"][1] == 5_000_000_000
    output = shown.production.outputs[0]
    assert (output.dataset, output.files, output.events, output.size) == (
        "nova.mc.now",
        2,
        400,
        5_000_000_000,
    )
    client.force_login(liaison)
    text = client.get(one.get_absolute_url()).text
    assert all(words in text for words in ("Estimate and actual", "nova.mc.now", "5 GB"))


def test_each_estimate_of_core_hours_says_what_it_is_based_on(made, liaison, client):
    client.force_login(liaison)
    reco = stage("reco", jobs=100, wall_seconds=3600)

    def started_with(core_seconds):
        request = made("running", stages=(reco,))
        Request.objects.filter(pk=request.pk).update(estimated_core_seconds=core_seconds)
        history(request, wall=600.0, memory=2e9)
        StageCounts.objects.create(stage=request.stages.get(), files_out=2, reports=2)
        request.refresh_from_db()
        [used] = [
            use for use in page(request, liaison).production.uses if use.title == "Core-hours"
        ]
        text = " ".join(client.get(request.get_absolute_url()).text.split())
        return used, text

    # Without past jobs, each of the 100 jobs counted for an hour.
    used, text = started_with(100 * 3600.0)
    assert (used.basis, used.is_most) == ("at the start, with time limits", True)
    assert "≤ 100 <br><small>at the start, with time limits</small>" in text

    # By now the first request has jobs that tell more.
    used, text = started_with(50 * 3600.0)
    assert (used.basis, used.is_most) == ("at the start", False)
    assert "<dt>Core-hours at the start</dt> <dd> 50 </dd>" in text
    assert "<small>with today’s past jobs</small>" in text

    used, text = started_with(None)
    assert (used.basis, used.is_most) == ("with today’s past jobs", False)
    assert "Core-hours at the start" not in text


def test_core_hours_are_projected_at_what_jobs_used_so_far(made, liaison):
    request = made("running", stages=(stage("reco", jobs=100), stage("merge", jobs=5)))
    alps = clusters.cluster("alps")
    times = {"submitted_at": LATER, "started_at": LATER, "ended_at": LATER + timedelta(hours=1)}
    ran(alps, request.key, "reco", *(record(n, **times) for n in range(10)), at=LATER)
    [used] = [use for use in page(request, liaison).production.uses if use.title == "Core-hours"]
    assert used.projected is None, "no job of merge has completed"
    ran(alps, request.key, "merge", *(record(50 + n, **times) for n in range(5)), at=LATER)
    [both] = [use for use in page(request, liaison).production.uses if use.title == "Core-hours"]
    of_merge = both.actual - used.actual
    assert both.projected == pytest.approx(10 * used.actual + of_merge)


def test_use_is_compared_with_the_estimate_at_the_start(made, approver, liaison):
    request = made("queued", stages=(stage("reco", jobs=100),))
    QueueEntry.objects.update_or_create(
        request=request, defaults={"core_seconds": 1e6, "is_queued": True, "points": 1}
    )
    make_move(verb=Verb.START, request=request, by=approver, at=LATER)
    history(made("done", title="Later"), wall=9.0, memory=2e9)
    times = {"submitted_at": LATER, "started_at": LATER, "ended_at": LATER + timedelta(hours=1)}
    ran(clusters.cluster("alps"), request.key, "reco", record(1, **times), at=LATER)
    request.refresh_from_db()
    [used] = [use for use in page(request, liaison).production.uses if use.title == "Core-hours"]
    assert used.estimated == 1e6


def test_use_that_is_heading_beyond_the_estimate_is_marked():
    assert Use("Core-hours", "core-hours", 100, 50, 111).is_over
    assert not Use("Core-hours", "core-hours", 100, 50, 109).is_over


def test_use_within_a_tenth_of_the_estimate_is_not_marked():
    assert not Use("Disk", "size", 100, 109).is_over
    assert Use("Disk", "size", 100, 111).is_over
    assert not Use("Disk", "size", None, 111).is_over


@pytest.mark.parametrize("state", ["testing", "running"])
def test_end_that_no_worker_has_computed_yet_is_being_computed(made, client, liaison, state):
    request = made(state)
    client.force_login(liaison)
    assert "Expected end unknown: it is being computed." in text_of(
        client.get(request.get_absolute_url())
    )


def test_review_of_data_quality_waits_for_no_queue(made, approver):
    Collection.objects.create(cluster=clusters.cluster("farm"), collected_until=AT)
    for state, waits in (("running", True), ("data_quality", False)):
        changes = page(made(state), approver).summary.changes_for_earlier_end
        assert ("farm answers again" in [change.what for change in changes]) == waits


def test_closed_request_says_first_that_it_is_closed(made, client, liaison):
    client.force_login(liaison)
    text = text_of(client.get(made("done").get_absolute_url()))
    first = text.partition("Deadline and expected end")[2]
    assert re.match(r'</h2> <div class="main-line"> ?Closed <time[^>]*>[^<]*</time> </div>', first)


def test_closed_request_says_nothing_of_services_that_are_down_now(made, client, liaison, shifter):
    samweb = service("samweb", at=AT)
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=AT)
    client.force_login(liaison)
    for state, is_shown in (("queued", True), ("done", False)):
        request = made(state, stages=(stage("reco", services=("samweb",)),))
        html = client.get(request.get_absolute_url()).text
        assert ("Required services" in html.partition("<main")[2]) == is_shown


def late(request, due_in=20, **stages):
    """Make a request late, with the ends of its stages in days."""
    ends = {}
    for name, (days, basis) in stages.items():
        ends[name] = Expected(days and LATER + timedelta(days), basis).as_data()
    Request.objects.filter(pk=request.pk).update(
        deadline=(LATER + timedelta(days=due_in)).date(),
        expected_end=(LATER + timedelta(days=30)).date(),
        forecast_at=LATER,
        forecast_stages=ends,
    )
    keep_attention(
        request=request, needs={AttentionKind.LATE: Need(AT, "expected to end late")}, at=AT
    )
    return Request.objects.get(pk=request.pk)


def test_late_request_that_runs_names_the_stage_that_ends_last_and_no_priority(
    made, liaison, approver
):
    running = made("running", stages=(stage("generation"), stage("reco")))
    late(running, generation=(30, "9 jobs in 24 h, 90 to go"), reco=(30, "not before generation"))
    shown_page = page(running, liaison)
    assert shown_page.summary.status.next_step == (
        "generation ends last: 9 jobs in 24 h, 90 to go. "
        "Nothing holds its jobs, but liaisons of NOvA can postpone its deadline."
    )
    assert shown_page.summary.next_button.label == "Postpone deadline…"
    assert page(running, approver).summary.next_button is None, "a priority does not help"

    late(running, generation=(30, "9 jobs in 24 h, 90 to go"), reco=(None, "no past jobs"))
    assert page(running, liaison).summary.status.next_step.startswith(
        "reco sets its end, which is unknown: no past jobs."
    )


def test_job_that_completed_as_its_retry_did_counts_once(made, client, shifter):
    running = made("running", stages=(stage("reco", jobs=4), stage("merge", jobs=None)))
    farm = clusters.cluster("farm")
    values = {"request": running, "cluster": farm, "position": 0, "stage_name": "reco"}
    values |= {"state": "sent", "sent_at": AT - timedelta(hours=3), "settled_at": AT}
    values |= {"due_at": AT, "created_at": AT}
    array = Submission.objects.create(
        **values, number=1, spool_id="7", first=0, tasks=4, ended=4, completed=2
    )
    Submission.objects.create(
        **values,
        number=2,
        spool_id="8",
        retry_of=array,
        first=3,
        indices="3",
        tasks=1,
        ended=1,
        completed=1,
    )
    states = {"7_0": "completed", "7_1": "completed", "7_2": "failed", "7_3": "completed"}
    states["8_0"] = "completed"
    times = {}
    for hours, name in enumerate(("submitted_at", "started_at", "ended_at"), start=1):
        times[name] = LATER + timedelta(hours=hours)
    records = []
    for number, (job_id, state) in enumerate(states.items()):
        jobs = {"job_id": job_id, "spool_id": job_id.partition("_")[0]}
        records.append(record(number, state=JobState(state), **jobs, **times))
    ran(farm, running.key, "reco", *records, at=LATER + timedelta(hours=3))
    merges = record(9, state=JobState.FAILED, **times), record(10, **times)
    ran(farm, running.key, "merge", *merges, at=LATER + timedelta(hours=3))

    client.force_login(shifter)
    html = text_of(client.get(running.get_absolute_url()))
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))
    assert "75 % of the jobs of reco" in text
    assert "3 of 4 completed 1 failed merge: 1 completed, 1 failed" in text
    assert "failed attempt" not in text, "none was retried"
    assert "not submitted here" not in text

    # Progress, data quality and report agree with a recount: job 3 of reco completed twice.
    recount = {("reco", 0), ("reco", 1), ("reco", 3), ("merge", 0)}
    completed = {row.stage: row.completed for row in progress_of(running)}
    assert completed == Counter(name for name, _ in recount)
    judged = {row.name: row.jobs.good for row in gather_facts(running, catalogued={}).stages}
    report = report_of(running, at=LATER)
    reported = {row["stage"]: row["completed_jobs"] for row in report["stages"]}
    assert judged == reported == completed
    assert report["total"]["completed_jobs"] == len(recount)
    page = client.get(reverse("progress:request-report", args=[running.key]))
    assert "4 jobs completed</b>" in text_of(page)


def test_late_request_names_the_limit_that_holds_its_jobs(made, liaison, approver):
    running = late(made("running"), generation=(30, "9 jobs in 24 h, 90 to go"))
    cluster = clusters.cluster("farm", submits=True, submission={"most_in_flight": 60})
    assignment = Assignment.objects.create(
        request=running, cluster=cluster, assigned_by="x", assigned_at=AT, most_in_flight=50
    )
    for number, state in enumerate(("sent", "planned"), start=1):
        Submission.objects.create(
            request=running,
            cluster=cluster,
            number=number,
            position=0,
            first=40 * number,
            tasks=40,
            state=state,
            sent_at=AT if state == "sent" else None,
            spool_id="7" if state == "sent" else "",
            due_at=AT,
            created_at=AT,
        )
    shown_page = page(running, liaison)
    [change] = [row for row in shown_page.summary.changes_for_earlier_end if row.is_obstacle]
    assert change.what == "Raise the limit of 50 concurrent jobs of this request"
    assert change.obstacle == (
        "40 jobs wait for the limit of 50 concurrent jobs of this request, which approvers and "
        "shifters can raise."
    )
    assert "Below is what would help." in shown_page.summary.status.next_step

    assignment.most_in_flight = None
    assignment.save()
    changes = page(running, approver).summary.changes_for_earlier_end
    assert [change.what for change in changes] == [
        "Raise the limit of 60 concurrent jobs of farm",
        "A higher priority",
    ]


@pytest.mark.parametrize(
    ("due_in", "shown", "reason"),
    [
        (20, "Expected 10 days late", "10 days after its deadline"),
        (-2, "Overdue, expected 32 days late", "expected to end 32 days after it, on 20 Dec 2026"),
    ],
)
def test_late_request_is_a_turn_of_those_who_can_change_it(made, liaison, due_in, shown, reason):
    """The stored reason follows moments later; the page has that of the expected end it shows."""
    clusters.cluster("farm", scheduler="slurm", submits=True)
    made("queued", title="Ahead")
    shown_page = page(late(made("queued"), due_in), liaison)
    assert shown_page.summary.next_by == "approvers and liaisons of NOvA"
    assert shown_page.summary.status.answer.endswith(f"{reason}.")
    assert [need.words.endswith(reason) for need in shown_page.summary.attention] == [True]
    assert (
        shown_page.summary.status.next_step
        == "Postpone its deadline, or ask an approver to raise its priority."
    )
    assert shown_page.summary.next_button.label == "Deadline or class…"
    summary = render_to_string("portal/request/_summary.html", shown_page.context())
    assert shown in " ".join(summary.split())


def test_who_can_help_a_late_request_reads_their_own_way_first(made, liaison, approver, shifter):
    clusters.cluster("farm", scheduler="slurm", submits=True)
    made("queued", title="Ahead")
    request = late(made("queued"))
    steps = {
        liaison: "Postpone its deadline, or ask an approver to raise its priority",
        approver: "Raise its priority, or ask its liaisons to postpone its deadline",
        shifter: "An approver can raise its priority, a liaison postpone its deadline",
    }
    for user, step in steps.items():
        assert [item.todo for item in inbox_items([request], user, LATER)] == [step]
        assert page(request, user).summary.status.next_step == f"{step}."


def test_priority_is_no_advice_for_the_late_request_that_is_next(made, liaison, approver, shifter):
    clusters.cluster("farm", scheduler="slurm", submits=True)
    request = late(made("queued"))
    late(made("queued", title="Behind"))
    steps = {
        liaison: "It is next in the queue: postpone its deadline, or ask the OPG to start it",
        approver: "It is next in the queue: start it, or ask its liaisons to postpone its deadline",
        shifter: "It is next in the queue: start it, or ask its liaisons to postpone its deadline",
    }
    start = f"{request.get_absolute_url()}?do=start#do"
    for user, step in steps.items():
        [item] = inbox_items([request], user, LATER)
        summary = page(request, user).summary
        assert (item.todo, summary.status.next_step) == (step, f"{step}.")
        assert item.action == summary.next_button
        assert (item.action.url == start) == (user != liaison)


def test_request_that_someone_must_start_has_the_button_to_start_it(made, approver, liaison):
    request = made("queued")
    start = NextButton("Start production…", f"{request.get_absolute_url()}?do=start#do")
    assert page(request, approver).summary.next_button == start
    assert page(request, liaison).summary.next_button is None
    clusters.cluster("farm", scheduler="slurm", submits=True)
    assert page(request, approver).summary.next_button is None, "farm starts it"
    keep_attention(request=request, needs={AttentionKind.IDLE: Need(LATER, "idle")}, at=LATER)
    request = Request.objects.get(pk=request.pk)
    assert page(request, approver).summary.next_button == start
    shown = request_page(request=request, user=approver, at=LATER, open_form="start")
    assert shown.summary.next_button is None, "its form is open"


def test_message_of_a_start_says_what_its_jobs_wait_for(made, browse, approver, shifter):
    samweb = service("samweb", AT - timedelta(days=9))
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=AT)
    queued = made("queued", stages=(stage("reco", services=("samweb",)),))
    start = f"{queued.get_absolute_url()}start/"
    answer = browse(approver).post(start, {"version": queued.version}, follow=True)
    assert "now “running”. Its jobs wait until samweb is up." in text_of(answer)


def test_start_out_of_turn_says_that_others_are_ahead(made, client, approver):
    first = made("queued", title="Ahead")
    last = made("queued", title="Behind")
    client.force_login(approver)
    page = text_of(client.get(f"{last.get_absolute_url()}?do=start"))
    assert re.sub(r"<[^>]*>", "", page).count("It is 2nd of 2 in the queue") == 1
    assert "in the queue: it starts before" not in text_of(
        client.get(f"{first.get_absolute_url()}?do=start")
    )
