"""A week of an experiment: figures equal a recount, are frozen once, told to those concerned,
and to nobody else.
"""

from datetime import UTC, date, datetime, timedelta

import pytest
import time_machine
from django.core import mail

from apps.core import tasks
from apps.core.domain.dates import OUT_OF_RANGE
from apps.core.domain.events import publish
from apps.core.models import Event
from apps.diagnosis.domain.causes.totals import mark_dirty, recount_dirty_hours
from apps.diagnosis.models import FailureGroup, Impact
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import HourlyTotals, Job
from apps.notifications.models import Notification
from apps.production.enums import RequestState as S
from apps.production.models import Request
from apps.progress.domain.weekly_report import (
    freeze_weekly_reports,
    next_report,
    summary_sentence,
    week_before,
    weekly_report_of,
)
from apps.progress.domain.weekly_summaries import NO_WEEK
from apps.progress.models import WeeklyReport
from apps.recovery.models import Decision
from apps.statusboard.models import Incident
from tests.factories import clusters, statusboard
from tests.factories.jobs import failed, record, store
from tests.factories.requests import request_in
from tests.factories.verdicts import verdict
from tests.pages import text_of

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)
#: The Monday after, at six.
MORNING = MONDAY + timedelta(days=7, hours=6)
HOUR = timedelta(hours=1)


def ended(number: int, at: datetime, make=record, **changes):
    times = {"submitted_at": at - 3 * HOUR, "started_at": at - HOUR, "ended_at": at}
    return make(number, **times, wall_seconds=3600, cpus=2, **changes)


@pytest.fixture
def week(nova, liaison, approver):
    """Six jobs of NOvA: three of the week, two of them failed,
    and one in each second beside its edges.
    """
    request = request_in(S.DONE, by=liaison, experiment=nova, approver=approver)
    edges = [
        MONDAY - timedelta(seconds=1),
        MONDAY,
        MONDAY + timedelta(days=7, seconds=-1),
        MONDAY + timedelta(days=7),
    ]
    rows = [ended(1, edges[0]), ended(2, edges[1]), ended(3, edges[2], failed), ended(4, edges[3])]
    store(
        clusters.cluster(), *rows, ended(5, MONDAY + HOUR, failed), ended(6, MONDAY - HOUR, failed)
    )
    Job.objects.update(experiment=nova, stage="reco")
    times = dict.fromkeys(("status_at", "first_seen_at", "last_seen_at"), MONDAY - HOUR)
    group = FailureGroup.objects.create(
        fingerprint="f", verdict="service", title="samweb answers 503", **times
    )
    for number in ("3", "5", "6"):
        verdict(Job.objects.get(job_id=number), at=MORNING, group=group)
    mark_dirty({hour_of(job.ended_at) for job in Job.objects.all()})
    recompute_dirty_hours(at=MORNING)
    recount_dirty_hours()
    return request


@pytest.mark.parametrize(
    ("at", "monday"),
    [
        (MORNING, date(2026, 11, 16)),
        (MORNING - timedelta(seconds=1), date(2026, 11, 9)),
        (MORNING + timedelta(days=6, hours=17), date(2026, 11, 16)),
        (datetime(2026, 1, 1, tzinfo=UTC), date(2025, 12, 22)),
    ],
)
def test_week_is_the_last_that_was_over_six_hours_before(at, monday):
    assert week_before(at) == monday


def test_figures_are_those_of_the_jobs_that_ended_in_the_week(
    week, nova, django_assert_max_num_queries
):
    with django_assert_max_num_queries(15):
        report = weekly_report_of(nova, monday=MONDAY.date(), at=MORNING)
    assert report["week"] == "2026-W47"
    jobs = {
        "jobs": 3,
        "completed": 1,
        "failed": 2,
        "failure_rate": 0.6667,
        "core_hours": 6.0,
        "wasted_core_hours": 4.0,
    }
    assert report["jobs"] == jobs
    assert (report["before"]["jobs"], report["before"]["failed"]) == (2, 1)
    assert report["stages"] == [{"stage": "reco", **jobs, "failure_rate_before": 0.5}]
    assert [(row["jobs"], row["jobs_before"], row["core_hours"]) for row in report["failures"]] == [
        (2, 1, 4.0)
    ]
    told = (
        "3 jobs finished, 66.7 % of them failed (50.0 % the week before); 4 of 6 core-hours were "
        "wasted."
    )
    assert summary_sentence(report) == told
    assert (
        summary_sentence(weekly_report_of(nova, monday=date(2026, 1, 5), at=MORNING))
        == "No jobs finished."
    )


def test_hands_off_share_is_by_cause_and_links_to_its_list(week, nova, client, liaison):
    for number, recovery in (("3", "by-rule"), ("5", "not-recovered"), ("6", "by-rule")):
        job = Job.objects.get(job_id=number)
        Decision.objects.create(
            job=job,
            experiment=nova,
            failed_at=job.ended_at,
            arm="no-rule",
            recovery=recovery,
            due_at=MORNING,
            decided_at=MORNING,
        )
    freeze_weekly_reports(at=MORNING)
    report = WeeklyReport.objects.get()
    recovery = report.content["recovery"]
    figures = {
        "jobs": 2,
        "by_rule": 1,
        "by_person": 0,
        "not_recovered": 1,
        "waiting": 0,
        "saved_minutes": 5.0,
    }
    (cause,) = recovery.pop("causes")
    assert recovery == {**figures, "minutes_per_job": 5}
    assert {name: cause[name] for name in figures} == figures

    client.force_login(liaison)
    shown = client.get(report.get_absolute_url())
    assert "50 %" in text_of(shown)
    links = shown.context["report"]["recovery"]["links"]
    for name, address in links.items():
        assert client.get(address).context["page"].paginator.count == figures[name]
    del report.content["recovery"]
    report.save()
    assert "min of work saved" not in text_of(client.get(report.get_absolute_url()))


def test_requests_of_the_week_and_late_ones_are_named(nova, liaison, approver):
    done = request_in(S.DONE, by=liaison, experiment=nova, approver=approver)
    late = request_in(
        S.RUNNING, by=liaison, experiment=nova, approver=approver, deadline=date(2026, 12, 1)
    )
    type(late).objects.filter(pk=late.pk).update(expected_end=date(2026, 12, 20))
    done.refresh_from_db()
    monday = done.closed_at.date() - timedelta(days=done.closed_at.weekday())
    requests_of_week = weekly_report_of(nova, monday=monday, at=MORNING)["requests"]
    assert [row["request"] for row in requests_of_week["closed"]] == [done.key]
    assert [row["request"] for row in requests_of_week["late"]] == [late.key]


def test_request_counts_as_submitted_in_each_week_in_which_it_was(nova, liaison, approver):
    request = request_in(S.RUNNING, by=liaison, experiment=nova, approver=approver)
    for submitted_at in (MONDAY + HOUR, MONDAY + timedelta(days=7, hours=1)):
        publish(kind="request.submit", target=request, by=liaison, at=submitted_at)

    for monday, expected in ((0, [request.key]), (7, [request.key]), (14, [])):
        day = (MONDAY + timedelta(days=monday)).date()
        report = weekly_report_of(nova, monday=day, at=MORNING)
        assert [row["request"] for row in report["requests"]["submitted"]] == expected


def test_week_without_jobs_notifies_nobody(nova, liaison, approver):
    request = request_in(S.RUNNING, by=liaison, experiment=nova, approver=approver)
    publish(kind="request.submit", target=request, by=liaison, at=MONDAY + HOUR)
    assert freeze_weekly_reports(at=MORNING) == 1
    kinds = Event.objects.filter(kind__startswith="report.weekly").values_list("kind", flat=True)
    assert list(kinds) == ["report.weekly_empty"]


def test_outages_are_those_of_the_week_that_made_jobs_of_the_experiment_fail(nova, dune):
    until = MONDAY + timedelta(days=7)
    service = statusboard.service("samweb", MONDAY - timedelta(days=30))

    def incident(title, started_at, ended_at, *groups, merged_into=None):
        row = Incident.objects.create(
            service=service,
            title=title,
            state="down",
            started_at=started_at,
            episode_started_at=started_at,
            ended_at=ended_at,
            resolution="manual" if ended_at else "",
            merged_into=merged_into,
        )
        impact = Impact.objects.create(
            incident=row, counted_at=until, bins_from=MONDAY, bin_seconds=3600
        )
        for number, (experiment, confirmed) in enumerate(groups):
            impact.groups.create(
                experiment=experiment,
                stage=f"stage {number}",
                confirmed=confirmed,
                confirmed_core_seconds=1800 * confirmed,
            )
        return row

    # Half-open, as the week is: over at its first instant, or begun at its end, is another week's.
    incident("over", MONDAY - HOUR, MONDAY, (nova, 9))
    incident("later", until, None, (nova, 9))
    incident("of DUNE", MONDAY, MONDAY + HOUR, (dune, 9))
    incident("harmless", MONDAY, MONDAY + HOUR, (nova, 0))
    still = incident("still open", MONDAY - HOUR, None, (nova, 2), (nova, 3), (dune, 50))
    last = incident("last hour", until - HOUR, until + HOUR, (nova, 7))
    incident("merged", MONDAY, MONDAY + HOUR, (nova, 9), merged_into=last)

    outages = weekly_report_of(nova, monday=MONDAY.date(), at=MORNING)["outages"]
    assert [(row["incident"], row["title"], row["jobs"], row["core_hours"]) for row in outages] == [
        (last.pk, "last hour", 7, 3.5),
        (still.pk, "still open", 5, 2.5),
    ]
    assert {row["service"] for row in outages} == {service.name}


def test_report_is_frozen_once_told_and_shown(
    week, nova, dune, liaison, other_liaison, shifter, client
):
    assert freeze_weekly_reports(at=MORNING - timedelta(days=1)) == 1  # of the week before
    assert freeze_weekly_reports(at=MORNING) == 1
    assert freeze_weekly_reports(at=MORNING + HOUR) == 0
    report = WeeklyReport.objects.get(monday=MONDAY.date())
    assert (str(report), report.experiment) == (f"{nova}, week 47 of 2026", nova)
    assert Event.objects.filter(kind="report.weekly").count() == 2
    tasks.deliver_waiting()
    told = Notification.objects.filter(report=report)
    assert {row.user for row in told} >= {liaison, shifter}
    assert other_liaison not in {row.user for row in told}
    assert mail.outbox == []  # sent by the task of notifications

    store(clusters.cluster(), ended(9, MONDAY + HOUR, failed))
    Job.objects.update(experiment=nova)
    recompute_dirty_hours(at=MORNING)
    client.force_login(liaison)
    page = client.get(report.get_absolute_url())
    assert page.context["report"]["jobs"]["jobs"] == 3  # as it was
    assert client.get(page.context["report"]["stages"][0]["links"]["failed"]).status_code == 200
    reports = client.get("/reports/weekly/?experiment=NOVA").text
    assert report.get_absolute_url() in reports
    assert "written on the next Monday at 06:00 UTC" in reports
    for sort, newest_first in {"-week": True, "week": False, "-jobs": True, "jobs": False}.items():
        rows = client.get(f"/reports/weekly/?sort={sort}").context["rows"]
        assert (rows[0][0] == report) == newest_first, sort
    answer = client.get("/api/v1/weekly-reports/?experiment=NOVA&monday=2026-11-16").json()[
        "results"
    ]
    assert [(row["week"], row["content"]["jobs"]["failed"]) for row in answer] == [("2026-W47", 2)]
    client.force_login(other_liaison)
    assert client.get(report.get_absolute_url()).status_code == 404
    assert client.get("/api/v1/weekly-reports/").json()["results"] == []


@pytest.mark.parametrize("week", ["2026-W48", "now", "2026-11-16"])
def test_week_without_a_report_does_not_exist(nova, liaison, client, week):
    client.force_login(liaison)
    assert client.get(f"/reports/weekly/NOVA/{week}/").status_code == 404


@pytest.mark.parametrize(
    ("now", "written", "week", "last"),
    [
        (MONDAY + timedelta(days=3), "Monday, 23 November at 06:00", "16 November", "9 November"),
        (MORNING - HOUR, "Monday, 23 November at 06:00", "16 November", "9 November"),
        (MORNING, "Monday, 30 November at 06:00", "23 November", "16 November"),
    ],
)
def test_list_without_reports_says_when_the_first_comes(
    nova, liaison, client, now, written, week, last
):
    with time_machine.travel(now, tick=False):
        client.force_login(liaison)
        page = text_of(client.get("/reports/weekly/"))
    assert f"Those of the week from {last} are written within minutes" in page
    assert f"those of the week from {week} on {written}." in page
    assert str(next_report(now)[0].day) in week


def test_next_report_is_the_next_to_be_frozen(week, nova):
    monday, written_at = next_report(MORNING - HOUR)
    freeze_weekly_reports(at=written_at)
    assert WeeklyReport.objects.get(experiment=nova).monday == monday


def test_week_of_all_experiments_sums_up_their_reports(
    week, dune, liaison, client, approver, other_liaison
):
    store(clusters.cluster("brenner"), ended(900, MONDAY + HOUR, failed))
    Job.objects.filter(job_id="900").update(experiment=dune, stage="reco")
    recompute_dirty_hours(at=MORNING)
    freeze_weekly_reports(at=MORNING)
    reports = {report.experiment.key: report.content for report in WeeklyReport.objects.all()}
    assert set(reports) >= {"NOVA", "DUNE"}

    client.force_login(approver)
    shown = client.get("/reports/weekly/2026-W47/")
    jobs = shown.context["report"]["jobs"]
    assert jobs["jobs"] == sum(content["jobs"]["jobs"] for content in reports.values())
    assert jobs["failed"] == sum(content["jobs"]["failed"] for content in reports.values())
    assert jobs["failure_rate"] == round(jobs["failed"] / jobs["jobs"], 4)
    rows = {row["experiment"]: row for row in shown.context["report"]["experiments"]}
    assert rows["NOVA"]["jobs"] == reports["NOVA"]["jobs"]["jobs"]
    assert "All experiments, week 47 of 2026" in text_of(shown)
    assert "/reports/weekly/2026-W47/" in text_of(client.get("/reports/weekly/"))
    for wrong in ("2026-W99", "2026-W46", "last-week"):
        assert client.get(f"/reports/weekly/{wrong}/").status_code == 404

    client.force_login(liaison)
    own = client.get("/reports/weekly/2026-W47/")
    assert [row["experiment"] for row in own.context["report"]["experiments"]] == ["NOVA"]
    assert own.context["report"]["jobs"]["jobs"] == reports["NOVA"]["jobs"]["jobs"]


def test_week_of_a_campaign_has_the_jobs_of_its_requests(
    week, nova, liaison, approver, client, other_liaison
):
    Request.objects.filter(pk=week.pk).update(campaign="Muons & more")
    request_in(S.QUEUED, by=liaison, experiment=nova, approver=approver, campaign="Others")
    hours = HourlyTotals.objects.filter(hour__gte=MONDAY, hour__lt=MONDAY + timedelta(days=1))
    hours.update(request_key=week.key)
    address = "/reports/weekly/NOVA/2026-W47/campaign/"

    client.force_login(liaison)
    with time_machine.travel(MORNING, tick=False):
        shown = client.get(address, {"name": "Muons & more"})
        jobs = shown.context["report"]["jobs"]
        assert (jobs["jobs"], jobs["failed"]) == (2, 1)
        assert "Campaign Muons &amp; more of NOvA, week 47 of 2026" in text_of(shown)
        assert client.get(address, {"name": "Nothing"}).status_code == 404
        campaigns = client.get(address).headers["Location"]
        assert campaigns == "/requests/campaigns/?experiment=NOVA"
        later = "/reports/weekly/NOVA/2026-W50/campaign/"
        assert client.get(later, {"name": "Muons & more"}).status_code == 404

        client.force_login(other_liaison)
        assert client.get(address, {"name": "Muons & more"}).status_code == 404


def test_api_has_the_week_of_all_visible_experiments(
    week, dune, client, liaison, approver, other_liaison
):
    store(clusters.cluster("brenner"), ended(900, MONDAY + HOUR, failed))
    Job.objects.filter(job_id="900").update(experiment=dune, stage="reco")
    recompute_dirty_hours(at=MORNING)
    freeze_weekly_reports(at=MORNING)
    address = "/api/v1/weekly-reports/all/"

    client.force_login(approver)
    answer = client.get(address, {"week": "2026-W47"}).json()
    page = client.get("/reports/weekly/2026-W47/").context
    assert (answer["title"], answer["week"]) == ("All experiments", "2026-W47")
    assert (answer["monday"], answer["as_of"]) == ("2026-11-16", "2026-11-23T06:00:00Z")
    figures = {name: page["report"]["jobs"][name] for name in answer["content"]["jobs"]}
    assert answer["content"]["jobs"] == figures
    assert [row["experiment"] for row in answer["content"]["experiments"]] == ["NOVA", "DUNE"]

    client.force_login(other_liaison)
    own = client.get(address, {"week": "2026-W47"}).json()
    assert own["title"] == "Your experiments"
    assert [row["experiment"] for row in own["content"]["experiments"]] == ["DUNE"]
    assert client.get(address, {"week": "2026-W46"}).status_code == 404


@pytest.mark.parametrize(
    ("query", "problems"),
    [
        ({}, {"week": ["This field is required."]}),
        ({"week": "2026-W54"}, {"week": [NO_WEEK]}),
        ({"week": "2026-11-16"}, {"week": [NO_WEEK]}),
        ({"week": "0001-W01"}, {"week": [OUT_OF_RANGE]}),
    ],
)
def test_api_names_what_is_wrong_with_a_week(client, liaison, query, problems):
    client.force_login(liaison)
    answer = client.get("/api/v1/weekly-reports/all/", query)
    assert (answer.status_code, answer.json()) == (400, problems)


def test_api_has_the_week_of_a_campaign(week, nova, client, liaison, other_liaison):
    Request.objects.filter(pk=week.pk).update(campaign="Muons & more")
    hours = HourlyTotals.objects.filter(hour__gte=MONDAY, hour__lt=MONDAY + timedelta(days=1))
    hours.update(request_key=week.key)
    address = "/api/v1/weekly-reports/campaign/"
    query = {"experiment": "NOVA", "name": "Muons & more", "week": "2026-W47"}

    client.force_login(liaison)
    with time_machine.travel(MORNING, tick=False):
        answer = client.get(address, query).json()
        assert answer["title"] == "Campaign Muons & more of NOvA"
        assert answer["as_of"] == "2026-11-23T06:00:00Z"
        jobs = answer["content"]["jobs"]
        assert (jobs["jobs"], jobs["failed"]) == (2, 1)
        assert [row["stage"] for row in answer["content"]["stages"]] == ["reco"]

        assert client.get(address, query | {"name": "Nothing"}).status_code == 404
        assert client.get(address, query | {"experiment": "DUNE"}).status_code == 404
        assert client.get(address, query | {"week": "2026-W49"}).status_code == 404
        missing = client.get(address, {"week": "2026-W47"})
        assert (missing.status_code, set(missing.json())) == (400, {"experiment", "name"})

        client.force_login(other_liaison)
        assert client.get(address, query).status_code == 404


def test_week_long_ago_does_not_exist(week, client, liaison):
    """The week before the first one of the calendar could not be computed: an error 500."""
    Request.objects.filter(pk=week.pk).update(campaign="Muons")
    client.force_login(liaison)
    answer = client.get("/reports/weekly/NOVA/0001-W01/campaign/", {"name": "Muons"})
    assert answer.status_code == 404
