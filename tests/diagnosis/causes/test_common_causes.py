"""Causes over many jobs: all planted ones are found in generated months,
and none is invented where there is none.
"""

import html
import re
from datetime import timedelta

import numpy as np
import pytest
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.clusters.models import Site
from apps.core.web.templatetags.formatting import percent
from apps.diagnosis.domain.causes.common import causes
from apps.diagnosis.domain.causes.common.columns import (
    JobPeriod,
    job_list_query,
    read_columns,
    text_of,
)
from apps.diagnosis.domain.causes.common.peeling import find_causes
from apps.diagnosis.models import CauseAnalysis
from apps.jobs.filters import JobFilter
from apps.jobs.models import Job
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.enums import State
from apps.statusboard.models import StateInterval
from tests.diagnosis.causes.generated_months import PLANTED, month
from tests.factories import clusters, jobs, people, statusboard


@pytest.mark.parametrize("seed", range(3))
def test_planted_causes_are_found_and_no_others(seed):
    causes = find_causes(month(seed, causes=PLANTED))
    assert {(one.attribute, one.value) for one in causes} == {
        (name, value) for name, value, _ in PLANTED
    }
    assert all(one.low <= one.excess <= one.high for one in causes)


def test_nothing_is_invented_in_months_without_a_cause():
    invented = [find_causes(month(seed, jobs=2000, submissions=40)) for seed in range(40)]
    assert [one for one in invented if one] == []


@pytest.fixture
def broken_host(nova, dune, at):
    """Ten submissions of ten jobs each; all jobs on wn-7 fail."""
    site = Site.objects.create(name="FNAL")
    made = [
        Job(
            cluster=clusters.cluster(),
            job_id=f"{unit}_{task}",
            raw_id=unit * 100 + task,
            spool_id=str(unit),
            state="failed" if task == 7 else "completed",
            submitted_at=at - timedelta(hours=3),
            started_at=at - timedelta(hours=2),
            ended_at=at - timedelta(hours=1),
            host=f"wn-{task}.example.org",
            site=site,
            stage="reco",
            user="novapro",
            experiment=nova,
            collected_at=at,
        )
        for unit in range(10)
        for task in range(10)
    ]
    Job.objects.bulk_create(made)


def test_columns_are_those_of_the_jobs(broken_host, at, shifter, nova):
    samweb = statusboard.service("samweb", people.LONG_AGO)
    cluster = clusters.cluster()
    cluster.service = samweb
    cluster.save()
    incident = open_incident(
        service=samweb,
        state=State.DOWN,
        title="503",
        by=shifter,
        at=at,
        started_at=at - timedelta(minutes=90),
    )
    close_incident(incident=incident, by=shifter, at=at, reason="Restarted.")
    jobs.row(cluster, 999, at=at - timedelta(hours=1, minutes=45), experiment=nova)
    period = JobPeriod(at - timedelta(days=1), at)
    read = read_columns(period)
    assert (len(read.jobs.failed), read.jobs.failed.sum(), read.jobs.submission.max()) == (
        101,
        11,
        10,
    )
    assert {name: mask.sum() for name, mask in read.jobs.outages.items()} == {"samweb": 100}
    hosts = {text_of(period, "host", int(number)) for number in read.stored["host"]}
    assert hosts == {"wn-0233", *(f"wn-{number}" for number in range(10))}
    assert len(read_columns(JobPeriod(at - timedelta(days=1), at, [])).jobs.failed) == 0


def test_jobs_without_a_stage_are_named_so(nova, at):
    jobs.row(clusters.cluster(), 1, at=at - timedelta(hours=1), experiment=nova, stage="")
    period = JobPeriod(at - timedelta(days=1), at)
    (number,) = read_columns(period).stored["stage"]
    assert text_of(period, "stage", int(number)) == "NOVA (no stage)"


def test_values_link_to_the_list_of_their_jobs(broken_host, at, nova, shifter, rf):
    request = rf.get("/")
    request.user = shifter
    cluster = clusters.cluster()
    jobs.row(cluster, 1000, at=at - timedelta(hours=1), stage="")
    for number in range(1, 5):
        ended_at = at - timedelta(hours=6 * number - 5)
        fields = (
            {"host": "", "user": "", "cpu_model": "Zen 2"}
            if number == 2
            else {"host": "wn-7", "user": "alice"}
        )
        jobs.row(cluster, 1000 + number, at=ended_at, experiment=nova, **fields)
    period = JobPeriod(at - timedelta(days=1), at)
    read = read_columns(period)
    attributes = "site, host, host and time, CPU model, release, stage, user, hour"
    assert set(read.stored) == set(attributes.split(", "))
    for attribute in read.stored:
        values = read.jobs.attributes[attribute]
        counts = np.bincount(values, minlength=len(read.stored[attribute]))
        listed = []
        for number in read.stored[attribute]:
            query = QueryDict(job_list_query(period, attribute, int(number)))
            listed.append(JobFilter(query, queryset=Job.objects.all(), request=request).qs.count())
        assert listed == list(counts), attribute


def test_page_and_api_name_the_cause(client, broken_host, shifter, other_liaison, at):
    client.force_login(shifter)
    bounds = {"since": (at - timedelta(days=1)).isoformat(), "until": at.isoformat()}
    answer = client.get("/api/v1/causes/", bounds).json()
    assert (answer["jobs"], answer["failed"]) == (100, 10)
    [cause] = answer["causes"]
    assert (cause["attribute"], cause["value"], cause["jobs"], cause["failed"]) == (
        "host",
        "wn-7",
        10,
        10,
    )
    assert cause["interval"][0] <= cause["excess"] == 10
    assert (cause["other_jobs"], cause["other_failed"]) == (90, 0)
    backwards = {"since": bounds["until"], "until": bounds["since"]}
    assert client.get("/api/v1/causes/", backwards).status_code == 400
    assert client.get("/api/v1/causes/", {"until": "0001-01-02T00:00:00Z"}).status_code == 400
    client.force_login(other_liaison)
    assert client.get("/api/v1/causes/", bounds).json()["jobs"] == 0


def outage_of(service, state, *, at):
    StateInterval.objects.filter(service=service).delete()
    StateInterval.objects.create(
        service=service, state=state, started_at=at - timedelta(hours=3), cause="report"
    )


def test_the_page_reads_no_job_and_shows_what_a_worker_computed(
    client, broken_host, shifter, other_liaison, at
):
    Job.objects.update(
        ended_at=timezone.now() - timedelta(hours=2), started_at=timezone.now() - timedelta(hours=3)
    )
    client.force_login(shifter)

    def page(**given):
        return " ".join(client.get(reverse("diagnosis:causes"), given).content.decode().split())

    with CaptureQueriesContext(connection) as asked:
        assert "Analysis in progress" in page()
    assert not [query for query in asked.captured_queries if "jobs_job" in query["sql"]]
    now = timezone.now()
    assert causes.requeue_lost(at=now) == 0
    assert causes.requeue_lost(at=now + causes.LOST) == 1
    [row] = CauseAnalysis.objects.all()
    causes.analyse(analysis_id=row.pk, at=now)
    shown = page()
    assert "1 cause explains" in shown
    # The rate of all other jobs, of any submission, is no measure of what to expect.
    assert "Others failed" not in shown
    [cause] = CauseAnalysis.objects.get().causes
    assert f"{percent(cause['expected'], cause['jobs'])}</small>" in shown
    [address] = re.findall('href="([^"]*)">wn-7</a>', shown)
    assert client.get(html.unescape(address)).content.decode().count(">wn-7.example.org</a>") == 10
    assert "in progress" not in shown
    with CaptureQueriesContext(connection) as asked:
        answer = client.get("/api/v1/causes/").json()
    assert [cause["value"] for cause in answer["causes"]] == ["wn-7"]
    row.refresh_from_db()
    samweb = statusboard.service("samweb", people.LONG_AGO)
    outage = {**row.causes[0], "attribute": "service", "value": "samweb", "query": ""}
    CauseAnalysis.objects.update(causes=[outage])
    assert 'href="/services/samweb/">samweb</a> down' in page()
    outage_of(samweb, State.DEGRADED, at=row.until)
    assert 'href="/services/samweb/">samweb</a> degraded' in page()
    hosts = [{**row.causes[0], "value": f"wn-{number}", "expected": number} for number in range(8)]
    CauseAnalysis.objects.update(causes=hosts[::-1])
    shown = page()
    assert re.findall('">wn-(\\d)</a>', shown) == [str(number) for number in range(8)]
    assert "8 causes explain about 52 of 10 failures" in shown, "as a sum of the rows"
    folded = shown.partition("3 more causes, +12 failures")[2]
    assert re.findall('">wn-(\\d)</a>', folded) == ["5", "6", "7"]
    assert not [query for query in asked.captured_queries if "jobs_job" in query["sql"]]
    CauseAnalysis.objects.update(analysed_at=now - causes.FRESH)
    assert "update in progress" in page()
    assert client.get(reverse("diagnosis:causes"), {"days": "x"}).status_code == 400
    client.force_login(other_liaison)
    assert "Analysis in progress" in page()
    causes.analyse(analysis_id=CauseAnalysis.objects.latest("pk").pk, at=now)
    assert "No job failed" in page()
    causes.requeue_lost(at=now + 2 * causes.STALE)
    assert not CauseAnalysis.objects.exists()


def test_analysis_that_fails_is_recorded_and_retried(db, monkeypatch):
    now = timezone.now()
    row = CauseAnalysis.objects.create(
        scope="all", since=now - timedelta(days=1), until=now, requested_at=now, due_at=now
    )

    def fail(row, at):
        raise ValueError("no columns")

    with monkeypatch.context() as patch:
        patch.setattr(causes, "_computed", fail)
        causes.analyse(analysis_id=row.pk, at=now)
    row.refresh_from_db()
    assert (row.attempts, row.last_error) == (1, "ValueError: no columns")
    assert causes.requeue_lost(at=row.due_at + causes.LOST) == 1
    causes.analyse(analysis_id=row.pk, at=row.due_at)
    row.refresh_from_db()
    assert (row.requested_at, row.attempts, row.last_error) == (None, 0, "")
