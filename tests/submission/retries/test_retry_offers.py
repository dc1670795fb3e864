"""Every page that offers a retry says what its dry run would do,
and none says "retry" while the service is down.
"""

import re
from dataclasses import replace
from datetime import timedelta
from unittest import mock

import pytest
from django.core.cache import cache
from django.utils import timezone
from redis.exceptions import RedisError

from apps.archive.models import ArchivedJob
from apps.clusters.schedulers.environment import pack
from apps.diagnosis.domain.causes.impact.recount import recount_impact
from apps.diagnosis.domain.causes.totals import mark_dirty, recount_dirty_hours
from apps.diagnosis.enums import FollowUp, VerdictKind
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.models import Job
from apps.portal.pages import job as job_page
from apps.portal.pages.fix_first import fix_first
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.maintenance.announcements import (
    post_announcement,
    withdraw_announcement,
)
from apps.statusboard.enums import State
from apps.submission.domain.retries import batches, offers
from apps.submission.domain.retries.offers import retry_offer
from apps.submission.domain.retries.release import advance_batch
from apps.submission.enums import LeftOut
from tests.factories import archive, clusters, jobs, requests, statusboard
from tests.factories.verdicts import unsaved_verdict
from tests.pages import text_of

COMMAND = "/usr/bin/sudo -n -u {user} /opt/opsportal/bin/submit-as-owner"


@pytest.fixture
def now():
    return timezone.now()


@pytest.fixture
def outage(now, shifter):
    samweb = statusboard.service("samweb", now - timedelta(days=3))
    return open_incident(
        service=samweb,
        state=State.DOWN,
        title="503",
        by=shifter,
        at=now,
        started_at=now - timedelta(hours=2),
    )


@pytest.fixture
def pages(outage, nova, now, browse):
    """Return a function that lets jobs fail because of samweb,
    and returns the pages about them that a user sees.
    """

    def make(user, *, owners, captured=3, others=2):
        options = {"owner_command": COMMAND} if owners else {}
        farm = clusters.cluster("farm", "slurm", options=options, service=outage.service)
        group = FailureGroup.objects.create(
            fingerprint="f", verdict="service", service="samweb", title="samweb", status_at=now, first_seen_at=now,
            last_seen_at=now,
        )  # fmt: skip
        ended_at = now - timedelta(minutes=30)
        archived, records = [], []
        for number in range(1, captured + others + 1):
            one = archive.captured_job(
                number, cluster="farm", script=b"#!/bin/sh\n", environment=pack([(b"A", b"b")])
            )
            if number <= captured:
                archived.append(one)
            values = {
                "state": "failed",
                "submitted_at": one.submitted_at,
                "user": "alice",
                "ended_at": ended_at,
            }
            records.append(jobs.record(number, **values))
        archive.store(*archived)
        jobs.store(farm, *records)
        Job.objects.update(experiment=nova)
        failed = list(Job.objects.select_related("experiment").order_by("raw_id"))
        Verdict.objects.bulk_create(
            unsaved_verdict(job, at=now, group=group, service="samweb") for job in failed
        )
        mark_dirty([hour_of(ended_at)])
        recount_dirty_hours()
        recount_impact(incident_id=outage.pk, at=now)
        client = browse(user)
        addresses = {
            "home": "/",
            "incident": outage.get_absolute_url(),
            "group": group.get_absolute_url(),
            "retry page": f"/retries/incident/{outage.pk}/",
        }
        make.job = failed[-1]
        return lambda: {name: text_of(client.get(address)) for name, address in addresses.items()}

    return make


@pytest.fixture
def request_of_jobs(nova, liaison, approver):
    return requests.request_in("running", by=liaison, experiment=nova, approver=approver)


def test_pages_wait_for_the_service_and_then_offer_what_the_dry_run_retries(
    pages, outage, shifter, now
):
    visit = pages(shifter, owners=True)
    for name, text in visit().items():
        assert "Start 3 of 5 jobs once samweb is up" in text, name
        assert "Retry 3 of 5 jobs" not in text, name
        # Home says so in the heading of the outage.
        assert name in ("group", "home") or "Wait: samweb has been down since" in text, name
    close_incident(incident=outage, by=shifter, at=now, reason="Restarted.")
    for name, text in visit().items():
        assert "Retry 3 of 5 jobs" in text, name
        assert "Wait:" not in text, name


def test_dry_run_shows_jobs_that_are_alike_in_one_line(
    pages, outage, nova, shifter, now, browse, monkeypatch
):
    pages(shifter, owners=True, captured=6, others=0)
    Job.objects.filter(job_id__in=["1", "2"]).update(stage="reco")
    Job.objects.filter(job_id__in=["3", "4", "5"]).update(stage="simulation")
    Job.objects.filter(job_id="5").update(host="node02")
    Job.objects.filter(job_id="6").update(stage="merge")
    monkeypatch.setattr("apps.submission.web.retries.MOST_LISTED", 2)

    answer = browse(shifter).get(f"/retries/incident/{outage.pk}/")
    lines = []
    for line in answer.context["lines"]:
        lines.append((line.newest.job.stage, len(line.verdicts), line.hosts, line.not_listed))
    assert sorted(lines) == [
        ("merge", 1, 1, 0),
        ("reco", 2, 1, 0),
        ("simulation", 3, 2, 1),
    ]
    assert lines[0][0] == "simulation"  # most jobs first
    page = " ".join(re.sub("<[^>]*>", " ", text_of(answer)).split())
    assert "To retry 6" in page
    assert "– simulation 3 jobs" in page
    assert "1 more in the CSV file 2 hosts" in page
    assert "– merge 6 node01" in page  # one job alone has no list


def test_pages_wait_for_an_announcement_that_says_not_to_submit(
    pages, outage, shifter, approver, nova, now
):
    visit = pages(shifter, owners=True)
    close_incident(incident=outage, by=shifter, at=now, reason="Restarted.")
    announcement = post_announcement(
        title="<b>Power cut", by=approver, at=now, do_not_submit=True, experiments=[nova]
    )
    for name, text in visit().items():
        assert "Start 3 of 5 jobs once “&lt;b&gt;Power cut” ends" in text, name
        assert "Retry 3 of 5 jobs" not in text, name
        says_why = "“&lt;b&gt;Power cut” says not to submit" in text
        assert says_why or name in ("group", "home", "retry page"), name

    withdraw_announcement(announcement=announcement, by=approver, at=now, reason="Over.")
    for name, text in visit().items():
        assert "Retry 3 of 5 jobs" in text, name
        assert "Power cut" not in text, name


def test_offer_does_not_wait_for_an_announcement_to_another_experiment(
    pages, outage, shifter, approver, dune, now
):
    visit = pages(shifter, owners=True)
    close_incident(incident=outage, by=shifter, at=now, reason="Restarted.")
    post_announcement(
        title="Power cut", by=approver, at=now, do_not_submit=True, experiments=[dune]
    )
    for name, text in visit().items():
        assert "Retry 3 of 5 jobs" in text, name


def test_next_step_is_to_wait_while_the_service_is_down(pages, outage, shifter, now, browse):
    pages(shifter, owners=True)
    group = FailureGroup.objects.get()
    addresses = [
        "/",
        "/failures/",
        "/jobs/",
        group.get_absolute_url(),
        f"/jobs/{pages.job.pk}/",
        f"/jobs/{pages.job.pk}/log/",
    ]
    client = browse(shifter)
    for address in addresses:
        text = text_of(client.get(address)).replace("Service problem: retry</option>", "")
        assert "ait until samweb is up (down since " in text, address
        assert "Service problem: retry" not in text, address
    close_incident(incident=outage, by=shifter, at=now, reason="Restarted.")
    for address in addresses:
        assert "ait until samweb is up" not in text_of(client.get(address)), address


def test_pages_offer_the_bundle_where_only_owners_can_submit(pages, outage, shifter, now):
    visit = pages(shifter, owners=False)
    close_incident(incident=outage, by=shifter, at=now, reason="Restarted.")
    for name, text in visit().items():
        assert "Retry bundle of 3 of 5 jobs" in text, name
        assert "Retry 3 of 5 jobs" not in text, name


@pytest.mark.parametrize("owners", [True, False])
def test_no_page_offers_the_retry_of_jobs_whose_script_was_not_captured(
    pages, outage, shifter, now, browse, owners
):
    """The sentence says why, where the button would be."""
    visit = pages(shifter, owners=owners, captured=0)
    close_incident(incident=outage, by=shifter, at=now, reason="Restarted.")
    for name, text in visit().items():
        assert "No script of these jobs was captured." in text, name
    client = browse(shifter)
    group = FailureGroup.objects.get()
    for address in ("/", "/failures/", group.get_absolute_url()):
        text = text_of(client.get(address))
        assert re.search("nly their owners can resubmit: notify them", text), address
        assert "Service problem: retry." not in text, address
        assert "<b>Retry</b>" not in text, address
    main = f'<a class="button main" href="/notify/group/{group.pk}/">'
    assert main in client.get(group.get_absolute_url()).text
    for name, text in visit().items():
        assert re.search(r"Retry( bundle of)? \d", text) is None, name
    job_page = text_of(browse(shifter).get(pages.job.get_absolute_url()))
    assert "No script of this job was captured." in job_page
    assert "/retries/" not in re.sub(r'href="/retries/" *>', "", job_page)
    assert "All 2 jobs of this failure" in job_page


def test_job_page_offers_the_retry_of_its_group_only_as_far_as_it_can(
    pages, outage, shifter, now, browse, monkeypatch
):
    pages(shifter, owners=True)
    close_incident(incident=outage, by=shifter, at=now, reason="Restarted.")
    address = pages.job.get_absolute_url()
    page = text_of(browse(shifter).get(address))
    assert "No script of this job was captured." in page
    assert "Retry 3 of 5 jobs…" in page
    monkeypatch.setattr(job_page, "MOST_IN_GROUP", 4)
    page = text_of(browse(shifter).get(address))
    assert "Retry 3 of 5 jobs…" not in page
    assert "All 5 jobs of this failure" in page


def test_reasons_why_no_job_can_be_retried_make_one_sentence(pages, shifter, now):
    pages(shifter, owners=True)
    group = FailureGroup.objects.get()
    offer = retry_offer(source=group, user=shifter, at=now)
    assert (offer.open, offer.why_none) == (5, "")

    def without_jobs(*left_out):
        return replace(offer, jobs=0, bundle=0, left_out=left_out, outlook=None)

    assert without_jobs((LeftOut.IN_FLIGHT, 1)).why_none == "Retry planned, queued or running."
    mixed = without_jobs((LeftOut.SUCCEEDED, 2), (LeftOut.IN_BATCH, 1), (LeftOut.CLUSTER, 4))
    assert mixed.why_none == (
        "No job to retry: 2 succeeded since, 1 in another batch of retries, 4 submission to its "
        "cluster is switched off."
    )
    assert (mixed.open, mixed.label, mixed.short_label) == (4, "", "")


def test_offer_is_left_to_rules_that_retry_all_of_it(pages, shifter, now):
    pages(shifter, owners=True)
    group = FailureGroup.objects.get()
    offer = replace(retry_offer(source=group, user=shifter, at=now), outlook=None)
    assert (offer.jobs, offer.open, offer.by_rules) == (3, 5, 0)
    some = replace(offer, jobs=1, left_out=[(LeftOut.BY_RULE, 2)])
    all_of_them = replace(offer, jobs=0, left_out=[(LeftOut.BY_RULE, 3), (LeftOut.NO_SCRIPT, 2)])
    none = replace(offer, jobs=0, left_out=[(LeftOut.NO_SCRIPT, 2)])
    is_left = [variant.is_left_to_rules for variant in (offer, some, all_of_them, none)]
    assert is_left == [False, False, True, False]
    assert (some.label, some.query) == ("Retry 1 job…", "")
    assert (all_of_them.label, all_of_them.query) == ("Retry 3 jobs yourself…", "?with_planned=on")
    assert all_of_them.why_none == ""
    some = replace(some, bundle=0)
    all_of_them = replace(all_of_them, bundle=0)
    divided = [variant.who_retries for variant in (offer, some, all_of_them)]
    assert divided == [
        "",
        "2 will be retried by recovery rules, 1 with no retry planned.",
        "3 will be retried by recovery rules, 2 for only their owners to retry.",
    ]
    left_out = [(LeftOut.SUCCEEDED, 7), (LeftOut.RETRIED, 4), (LeftOut.IN_BATCH, 136)]
    left_out += [(LeftOut.BY_RULE, 2), (LeftOut.NOT_SENT, 3), (LeftOut.CLUSTER, 38)]
    in_batch = replace(some, bundle=3, left_out=left_out)
    assert in_batch.failed == 136 + 2 + 1 + 3 + 38 + 4 + 7
    assert in_batch.who_retries == (
        "136 in batches of retries, 2 will be retried by recovery rules, 1 with no retry planned, "
        "3 for only their owners to retry, 38 cannot be retried, 4 failed again since, "
        "7 succeeded since."
    )


def test_pages_retry_a_code_problem_only_anyway(pages, shifter, browse):
    """Also while a service is down."""
    pages(shifter, owners=True)
    Verdict.objects.update(verdict=VerdictKind.CODE, service="")
    FailureGroup.objects.update(verdict=VerdictKind.CODE)
    group = FailureGroup.objects.get()
    job = Job.objects.get(job_id="1").get_absolute_url()
    for address in (group.get_absolute_url(), f"/retries/group/{group.pk}/", job):
        text = text_of(browse(shifter).get(address))
        assert "Retry 3 of 5 jobs anyway" in text, address
        assert ">Start " not in text, address
    assert "Retry anyway…" in text


def test_offer_is_for_who_may_submit(pages, outage, liaison, now):
    visit = pages(liaison, owners=True)
    offer = retry_offer(source=outage, user=liaison, at=now)
    assert (offer.jobs, offer.bundle, offer.waits_for) == (0, 0, None)
    assert "Start" not in visit()["home"]


def test_liaison_sees_who_retries_and_is_offered_only_own_steps(
    pages, liaison, nova, now, browse, request_of_jobs
):
    visit = pages(liaison, owners=False)
    Job.objects.update(request_key=request_of_jobs.key)
    ArchivedJob.objects.update(experiment=nova)
    group = FailureGroup.objects.get()
    job = Job.objects.get(job_id="1")
    for text in (*visit().values(), text_of(browse(liaison).get(job.get_absolute_url()))):
        for label in ("Retry bundle", "Retry 3", "Debug re-run", "Debug newest", "not yours"):
            assert label not in text, label
    assert "Only their owners can submit 5 again." in visit()["group"]
    assert "Who retries them" in visit()["retry page"]
    shown = browse(liaison).get(job.get_absolute_url())
    assert "Only its owner can submit it again." in text_of(shown)
    assert "Debug it yourself…" in text_of(shown)
    for page in (shown, browse(liaison).get(group.get_absolute_url())):
        [address] = set(re.findall(r'href="(/requests/[^"]+/comment/[^"]+)"', page.text))
        assert f"Comment on {request_of_jobs.key}…" in text_of(page)
        assert browse(liaison).get(address.replace("&amp;", "&")).status_code == 200

    liaison.cluster_logins.create(login="alice", cluster="farm")
    cache.clear()
    assert "Retry bundle of 3 of 5 jobs" in text_of(browse(liaison).get(group.get_absolute_url()))


def test_liaison_sees_that_the_opg_retries_other_jobs(pages, liaison, browse):
    visit = pages(liaison, owners=True)
    text = visit()["group"]
    assert "Approvers and shifters decide whether to retry 3 jobs" in text
    assert "jobs that no rule or batch retries" not in text, "the portal can, but not this user"
    offer = retry_offer(source=FailureGroup.objects.get(), user=liaison, at=timezone.now())
    planned = replace(offer, planned=1)
    assert planned.who_retries == (
        "1 will be retried by recovery rules, 2 for approvers and shifters to decide, "
        "2 for only their owners to retry."
    )
    by_rules_only = replace(planned, planned=3, left_out=[(LeftOut.FORBIDDEN, 3)])
    assert by_rules_only.who_retries == "All 3 will be retried by recovery rules."
    assert by_rules_only.why_none == ""
    job = Job.objects.get(job_id="1").get_absolute_url()
    text = text_of(browse(liaison).get(job))
    assert "Approvers and shifters decide whether to retry it." in text


def test_offer_is_kept_for_a_minute_and_until_a_batch_begins(
    pages, outage, shifter, now, monkeypatch
):
    pages(shifter, owners=True)
    close_incident(incident=outage, by=shifter, at=now, reason="Restarted.")
    runs = []
    monkeypatch.setattr(
        offers, "dry_run", lambda **options: runs.append(options) or batches.dry_run(**options)
    )
    group = FailureGroup.objects.get()

    def offered():
        return retry_offer(source=group, user=shifter, at=timezone.now()).jobs, len(runs)

    assert [offered(), offered()] == [(3, 1), (3, 1)]
    batches.plan_batch(source=group, by=shifter, at=now)
    assert offered() == (0, 2)
    for name in ("get", "set"):
        monkeypatch.setattr(cache, name, mock.Mock(side_effect=RedisError))
    assert [offered(), offered()] == [(0, 3), (0, 4)]


def test_retry_as_owner_waits_for_a_service_that_its_stage_needs(pages, outage, shifter, now):
    """The job failed because of its host: its retry would fail because of the service."""
    read = pages(shifter, owners=True, others=0)
    Verdict.objects.update(service="")
    assert "Start 3 jobs once samweb is up…" in read()["group"]
    batch = batches.plan_batch(source=FailureGroup.objects.get(), by=shifter, at=now)
    assert advance_batch(batch=batch, at=now) == 0

    close_incident(incident=outage, by=shifter, at=now, reason="It answers.")
    assert advance_batch(batch=batch, at=now) == 3


@pytest.mark.parametrize(("failed", "state"), [(5, "stopped"), (4, "stopped"), (3, "released")])
def test_small_batch_stops_when_its_first_step_fails_again(
    pages, outage, shifter, now, failed, state
):
    pages(shifter, owners=True, captured=6, others=0)
    close_incident(incident=outage, by=shifter, at=now, reason="Restarted.")
    batch = batches.plan_batch(source=FailureGroup.objects.get(), by=shifter, at=now)
    assert advance_batch(batch=batch, at=now) == 5, "the sixth waits for the outcome"

    released = list(batch.jobs.filter(state="released").values_list("job__pk", flat=True))
    verdicts = Verdict.objects.filter(job__in=released)
    verdicts.update(later_state="completed")
    verdicts.filter(job__in=released[:failed]).update(later_state="failed")
    advance_batch(batch=batch, at=now + timedelta(minutes=5))
    batch.refresh_from_db()
    assert batch.state == state


def test_sum_of_the_dry_run_leads_to_the_numbers_of_its_button(pages, outage, shifter, now, browse):
    pages(shifter, owners=True)
    succeeded = Verdict.objects.filter(job__job_id="1")
    assert succeeded.update(later_state="completed") == 1
    page = text_of(browse(shifter).get(f"/retries/incident/{outage.pk}/"))
    words = " ".join(re.sub("<[^>]*>", " ", page).split())
    sums = re.search(r"5 failed jobs − 1 succeeded since 4 still open − 2 [^−]* 2 to retry", words)
    assert sums, words
    assert "Start 2 of 4 jobs once samweb is up" in words
    assert "The batch stops by itself if too many of its first retries fail again" in words


def test_pages_say_why_only_some_jobs_can_be_retried(pages, outage, shifter, browse):
    pages(shifter, owners=True)
    Verdict.objects.filter(job__job_id="1").update(later_state="completed")
    client = browse(shifter)
    for address in (FailureGroup.objects.get().get_absolute_url(), outage.get_absolute_url()):
        page = " ".join(text_of(client.get(address)).split())
        assert "can retry 2 of the 4 jobs that no rule or batch retries." in page, address
        assert "Only their owners can submit them again" in page, address
        numbers = re.findall(r'href="(/retries/\S+\?list=[a-z-]+)#list">(\d+)</a>', page)
        assert [int(number) for _, number in numbers] == [1, 2], address
        for listed, number in numbers:
            assert client.get(listed).context["jobs"] == int(number), listed


def test_list_group_home_and_incident_divide_failed_jobs_as_a_recount_does(
    pages, outage, shifter, now, browse
):
    pages(shifter, owners=True, captured=6, others=1)
    close_incident(incident=outage, by=shifter, at=now, reason="Restarted.")
    group = FailureGroup.objects.get()
    in_batch = Job.objects.get(job_id="3")
    batches.plan_batch(source=in_batch, by=shifter, at=now)
    Verdict.objects.filter(job__job_id="1").update(later_state="completed", later_attempt=2)
    Verdict.objects.filter(job__job_id="2").update(later_state="failed", later_attempt=2)
    mark_dirty({hour_of(verdict.ended_at) for verdict in Verdict.objects.all()})
    recount_dirty_hours()
    recount_impact(incident_id=outage.pk, at=now)
    cache.clear()

    recount = {FollowUp.SUCCEEDED: 1, FollowUp.FAILED_AGAIN: 1, FollowUp.IN_BATCH: 1}
    recount |= {FollowUp.OPEN: 3, FollowUp.BY_OWNER: 1}
    assert sum(recount.values()) == Verdict.objects.filter(group=group).count()
    sentence = (
        "1 in batches of retries, 3 with no retry planned, 1 for only their owners to retry, "
        "1 failed again since, 1 succeeded since"
    )
    listed = browse(shifter).get("/failures/")
    shown = browse(shifter).get(group.get_absolute_url())
    [row_of_list] = listed.context["sections"][0].rows
    [fix] = fix_first(user=shifter, at=now).fixes
    offers_shown = [
        retry_offer(source=source, user=shifter, at=now).follow_ups for source in (group, outage)
    ]
    rows = [row.follow_ups for row in (row_of_list, shown.context["row"], fix.row)]
    for counts in (*rows, *offers_shown):
        assert {name: jobs for name, jobs in counts.items() if jobs} == recount
    assert (row_of_list.open, row_of_list.for_a_person, fix.label) == (4, 4, "Retry 3 of 4…")
    pages_of_failures = (listed, shown, browse(shifter).get(outage.get_absolute_url()))
    for page in pages_of_failures:
        assert sentence in text_of(page)

    batches.plan_batch(source=group, by=shifter, at=now)
    Verdict.objects.filter(job__job_id="7").update(later_state="completed", later_attempt=2)
    mark_dirty({hour_of(verdict.ended_at) for verdict in Verdict.objects.all()})
    recount_dirty_hours()
    listed = browse(shifter).get("/failures/")
    assert [section.label for section in listed.context["sections"]] == ["In progress"]
    assert fix_first(user=shifter, at=now).fixes == []
