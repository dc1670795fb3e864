"""Statistics equal a recount of the jobs, by whatever dimensions, from hours and from days."""

import html
import json
import re
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.base import JobState
from apps.jobs.domain.collection.accounting import store_records
from apps.jobs.domain.records.conversion import day_of
from apps.jobs.domain.statistics.blocks import compact_day, write_hour
from apps.jobs.domain.statistics.cube import TIME, CubeQuery, count
from apps.jobs.domain.statistics.explorer import Explorer
from apps.jobs.domain.statistics.levels import ADDED, DIMENSIONS, STORED, SUMS
from apps.jobs.domain.statistics.monthly import compact_months
from apps.jobs.domain.statistics.questions import MEASURES, Question
from apps.jobs.domain.statistics.windows import (
    hour_of_week,
    portal_zone,
    window_names,
    window_of,
    windows_of_week,
)
from apps.jobs.domain.totals.rollups import mark_dirty, recompute_dirty_hours
from apps.jobs.enums import Counted
from apps.jobs.models import Collection, DirtyHour, Job, StatisticsBlock, StatisticsValue
from tests.factories.jobs import AT, failed, record, store
from tests.factories.verdicts import verdict
from tests.pages import text_of

SINCE, UNTIL = AT - timedelta(days=4), AT + timedelta(hours=1)
FIELD = {
    "experiment": "experiment_id",
    "request": "request_key",
    "cluster": "cluster__name",
    "site": "site__name",
}
GB = 1 << 30

records = st.builds(
    record,
    st.integers(1, 8),
    state=st.sampled_from([JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED]),
    ended_at=st.integers(0, 80).map(lambda hours: AT - timedelta(hours=hours, minutes=7)),
    cpus=st.integers(0, 4),
    cpu_seconds=st.integers(0, 9000).map(lambda tenths: tenths / 10),
    account=st.sampled_from(["nova", "dune", "pool"]),
    host=st.sampled_from(["wn1", "wn2", ""]),
    exit_code=st.sampled_from([0, 1, 65]),
    cpu_model=st.sampled_from(["EPYC", ""]),
    max_memory_bytes=st.sampled_from([None, GB, 3 * GB]),
    requested_memory_bytes=st.sampled_from([None, 2 * GB]),
    attempt=st.integers(1, 2),
    gpus=st.sampled_from([None, 0, 2]),
    gpu_share=st.sampled_from([None, 0.25]),
    energy_joules=st.sampled_from([None, 7_000_000]),
)
dimensions = st.lists(
    st.sampled_from([*STORED, "hour", "weekday", "window", TIME]), max_size=3, unique=True
)


def start_of_step(at, hours):
    """Return the start of the hour, the UTC day or the week of an hour."""
    if hours == 1:
        return at
    day = at.replace(hour=0)
    return day if hours == 24 else day - timedelta(days=day.weekday())


def recount(query):
    counts = defaultdict(lambda: defaultdict(int))
    texts = [
        FIELD.get(name, name)
        for name in query.by
        if name in STORED and name not in ("verdict", "cause")
    ]
    for job, values in zip(
        Job.objects.order_by("pk"), Job.objects.order_by("pk").values(*texts), strict=True
    ):
        if not query.since <= job.ended_at < query.until:
            continue
        at = job.ended_at.replace(minute=0, second=0, microsecond=0)
        local = at.astimezone(portal_zone())
        of_hour = {"hour": local.hour, "weekday": local.weekday(), "window": window_of(at)}
        of_hour |= {TIME: int(start_of_step(at, query.step_hours).timestamp()) // 3600}
        key = tuple(
            of_hour[n] if n in of_hour else str(values.get(FIELD.get(n, n)) or "") for n in query.by
        )
        known = job.max_memory_bytes is not None and job.requested_memory_bytes is not None
        one = {
            "jobs": 1,
            "failed": job.state == JobState.FAILED,
            "interrupted": job.state == JobState.CANCELLED,
            "core_seconds": job.core_seconds,
            "wasted_core_seconds": job.core_seconds * (job.state == JobState.FAILED),
            "interrupted_core_seconds": job.core_seconds * (job.state == JobState.CANCELLED),
            "cpu_ms": round(job.cpu_seconds * 1000),
            "wall_seconds": job.wall_seconds,
            "started": 1,
            "queued_seconds": round(job.queued_seconds) if job.queued_seconds >= 0 else 0,
            "memory_mb": job.max_memory_bytes // (1 << 20) if known else 0,
            "requested_mb": job.requested_memory_bytes // (1 << 20) if known else 0,
        }
        gpu_seconds = job.wall_seconds * (job.gpus or 0)
        measured = gpu_seconds if job.gpu_share is not None else 0
        one |= {
            "gpu_seconds": gpu_seconds,
            "gpu_measured_seconds": measured,
            "gpu_used_seconds": round(measured * (job.gpu_share or 0)),
            "energy_joules": job.energy_joules or 0,
        }
        one["started"] = job.queued_seconds >= 0
        for name, value in one.items():
            counts[key][name] += int(value)
    return {key: dict(sums) for key, sums in counts.items()}


def counted(query):
    cells = count(query)
    texts = dict(StatisticsValue.objects.values_list("pk", "text"))
    names = [name for name in cells if name not in query.by]
    counts = {}
    for row in range(len(cells["jobs"])):
        key = tuple(
            texts[int(cells[n][row])] if n in STORED else int(cells[n][row]) for n in query.by
        )
        key = tuple(
            "" if (n, text) in {("exit_code", "0"), ("signal", "0")} else text
            for n, text in zip(query.by, key, strict=True)
        )
        counts[key] = {name: int(cells[name][row]) for name in names}
    return counts


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    batches=st.lists(st.lists(records, max_size=6), max_size=4),
    by=dimensions,
    step=st.sampled_from([1, 24, 7 * 24]),
)
def test_statistics_equal_a_recount_of_late_duplicate_and_corrected_records(
    alps, nova, dune, shifter, batches, by, step
):
    for model in (StatisticsBlock, Job):
        model.objects.all().delete()
    Collection.objects.get_or_create(cluster=alps, defaults={"collected_until": AT})
    for batch in batches:
        store_records(cluster=alps, records=batch, at=AT)
        recompute_dirty_hours(at=AT)
    query = CubeQuery(
        SINCE + timedelta(hours=5), UNTIL, tuple(by), sums=frozenset(SUMS), step_hours=step
    )
    assert counted(query) == recount(query)
    by_host = Question(MEASURES["failure_rate"], ("host",), query.since, query.until)
    found = {row.label[0]: row.expected for row in Explorer(shifter).answer(by_host, limit=10).rows}
    assert found == pytest.approx(expected_by_host(query))
    by_account = replace(by_host, by=("account",))
    found = Explorer(shifter).answer(by_account, limit=10)
    assert sum(row.expected * row.jobs for row in found.rows) == pytest.approx(found.all.failed)


OCTOBER, NOVEMBER = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)
#: Ends of jobs around the ends of months, and in the middle of them.
ends = st.sampled_from([-30, -1, 0, 1, 14 * 24]).map(
    lambda hours: NOVEMBER + timedelta(hours=hours, minutes=7)
)


@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    batches=st.lists(
        st.tuples(
            st.lists(
                st.tuples(records, ends).map(lambda pair: replace(pair[0], ended_at=pair[1])),
                max_size=6,
            ),
            st.booleans(),
        ),
        min_size=2,
        max_size=3,
    ),
    by=st.lists(st.sampled_from([*STORED]), max_size=3, unique=True),
    since=st.sampled_from([OCTOBER, OCTOBER - timedelta(hours=2), NOVEMBER]),
    until=st.sampled_from([DECEMBER, DECEMBER - timedelta(hours=1), DECEMBER + timedelta(days=20)]),
)
def test_statistics_of_months_equal_a_recount_of_late_and_corrected_records(
    alps, nova, dune, batches, by, since, until
):
    for model in (StatisticsBlock, Job):
        model.objects.all().delete()
    later = DECEMBER + timedelta(days=50)
    Collection.objects.get_or_create(cluster=alps, defaults={"collected_until": later})
    for batch, compacts in batches:
        store_records(cluster=alps, records=batch, at=later)
        recompute_dirty_hours(at=later)
        if compacts:
            compact_months(at=later)
    query = CubeQuery(since, until, tuple(by), sums=frozenset(SUMS))
    assert counted(query) == recount(query)


@pytest.fixture
def october(alps, nova):
    """A month with two jobs at noon of some days, summed."""
    noons = [OCTOBER + timedelta(days=day, hours=12, minutes=5) for day in (0, 6, 30)]
    jobs = []
    for number, noon in enumerate(noons):
        jobs.append(record(2 * number, ended_at=noon, host="wn1"))
        jobs.append(failed(2 * number + 1, ended_at=noon, host="wn2"))
    store(alps, *jobs, at=AT)
    recompute_dirty_hours(at=AT)
    assert compact_months(at=AT) == 1
    assert compact_months(at=AT) == 0
    return CubeQuery(OCTOBER, NOVEMBER, ("host",), sums=frozenset(SUMS))


def test_whole_months_are_read_from_their_blocks(october):
    StatisticsBlock.objects.exclude(bucket=OCTOBER).exclude(column="in_month").delete()
    assert counted(october) == recount(october)
    cut = replace(october, since=OCTOBER + timedelta(hours=1))
    assert counted(cut) == {}


@pytest.mark.parametrize("empty_day", [False, True])
def test_recount_of_a_day_by_an_older_release_leaves_no_wrong_month(alps, october, empty_day):
    """It removes the levels that it knows, and writes the hour."""
    day = OCTOBER + timedelta(days=6)
    if empty_day:
        Job.objects.filter(ended_at__date=day.date()).delete()
        write_hour(hour=day + timedelta(hours=12))
        assert compact_months(at=AT) == 1
    months = list(StatisticsBlock.objects.filter(level__endswith="month"))
    store(alps, record(100, ended_at=day + timedelta(hours=3, minutes=1), host="wn3"), at=AT)
    write_hour(hour=day + timedelta(hours=3))
    assert counted(october) == recount(october)
    compact_day(day=day)
    assert counted(october) == recount(october)
    assert list(StatisticsBlock.objects.filter(level__endswith="month")) == months
    DirtyHour.objects.all().delete()
    assert compact_months(at=AT) == 1
    assert counted(october) == recount(october)


def test_month_with_a_day_to_recount_waits(october):
    mark_dirty([OCTOBER + timedelta(hours=12)], Counted.JOBS)
    StatisticsBlock.objects.filter(column="in_month").delete()
    assert compact_months(at=AT) == 0
    recompute_dirty_hours(at=AT)
    assert compact_months(at=AT) == 1


def test_blocks_of_older_releases_have_no_gpus(alps, nova, shifter):
    day = day_of(AT) - timedelta(days=2)
    for number in (1, 2):
        ended = {"ended_at": day + timedelta(hours=number, minutes=5), "wall_seconds": 100}
        store(alps, record(number, gpus=2, gpu_share=0.5, **ended), at=AT)
    recompute_dirty_hours(at=AT)
    query = CubeQuery(day, day + timedelta(days=1), (), sums=frozenset(SUMS))
    assert counted(query)[()]["gpu_seconds"] == 400
    added = StatisticsBlock.objects.filter(column__in=ADDED)
    added.filter(bucket=day + timedelta(hours=1)).delete()
    compact_day(day=day)
    assert counted(query)[()]["gpu_seconds"] == 200
    StatisticsBlock.objects.filter(column__in=ADDED).delete()
    assert counted(query)[()]["gpu_seconds"] == 0
    question = Question(MEASURES["gpu_use"], ("host",), query.since, query.until)
    (row,) = Explorer(shifter).answer(question, limit=5).rows
    assert row.value(question.measure) is None


def expected_by_host(query):
    """Count each job as failed in part: as its experiment's share of failed jobs (stage and
    release are not set).
    """
    jobs = [
        (job.experiment_id, job.host or "no data", job.state == JobState.FAILED)
        for job in Job.objects.filter(ended_at__gte=query.since, ended_at__lt=query.until)
    ]
    expected = {}
    for host in {host for _, host, _ in jobs}:
        alike = [
            [failed for at, _, failed in jobs if at == own]
            for own, at_host, _ in jobs
            if at_host == host
        ]
        expected[host] = sum(sum(each) / len(each) for each in alike) / len(alike)
    return expected


def test_windows_follow_the_clocks_of_the_portal(settings):
    settings.TIME_ZONE = "Europe/Berlin"
    noon = datetime(2026, 10, 23, 10, 30, tzinfo=UTC)  # Friday 12:30, summer time
    assert (hour_of_week(noon), window_names()[window_of(noon)]) == (4 * 24 + 12, "lunch")
    after = datetime(2026, 10, 26, 11, 30, tzinfo=UTC)  # Monday 12:30, winter time
    assert (hour_of_week(after), window_names()[window_of(after)]) == (12, "lunch")


@pytest.mark.parametrize("text", ["lunch", "a=Mon-Fri 12-13", "a=Mo 1-2", "a=Mon 13-12", "a="])
def test_windows_that_make_no_sense_are_refused(text):
    with pytest.raises(ValueError, match=r"window|day|hour"):
        windows_of_week(text)


# Page and API


def ask(client, query=""):
    answer = client.get(f"/statistics/{query}")
    assert answer.status_code == 200, answer.content.decode()[:2000]
    return answer


@pytest.fixture
def counted_jobs(alps, nova, dune):
    now = timezone.now()
    ended = {"ended_at": now - timedelta(hours=2), "host": "wn1"}
    store(
        alps,
        *[record(n, **ended) for n in range(1, 8)],
        *[failed(n, exit_code=65, **ended | {"host": "wn2"}) for n in (8, 9)],
        failed(10, account="dune", **ended),
        at=now,
    )
    verdict(Job.objects.get(job_id="8"), at=now)
    recompute_dirty_hours(at=now)


def test_explorer_counts_the_jobs_that_a_user_sees_and_links_to_exactly_those(
    client, counted_jobs, liaison
):
    client.force_login(liaison)
    page = ask(client, "?measure=failure_rate&by=host,exit_code")
    answer = page.context["answer"]
    assert [(row.label, row.failed, row.jobs) for row in answer.rows] == [
        (["wn2", "65"], 2, 2),
        (["wn1", "0"], 0, 7),
    ]
    assert answer.all.jobs == 9
    assert page.content.decode().count("22.2 %") == 2, "in the sentence and in the sum, not twice"
    for shown in page.context["rows"]:
        linked = client.get("/jobs/" + shown["query"]).context["page"].rows
        assert len(linked) == shown["row"].jobs
    assert answer.rows[0].expected == pytest.approx(2 / 9)
    assert answer.rows[0].stands_out


@pytest.mark.parametrize(
    "query",
    [
        "?by=verdict,cause",
        "?measure=cpu_efficiency&by=site,request&period=24h",
        "?measure=queue_time&by=hour,weekday,window",
        "?measure=memory&by=user&period=90d&host=wn1&state=any_failure",
        "?measure=wall_time&by=experiment&experiment=NOVA&weekday=Mon&weekday=Tue",
    ],
)
def test_explorer_answers_and_every_row_links_to_its_jobs(client, counted_jobs, liaison, query):
    client.force_login(liaison)
    page = ask(client, query)
    for shown in page.context["rows"]:
        answer = client.get("/jobs/" + shown["query"])
        assert len(answer.context["page"].rows) == shown["row"].jobs, shown["query"]
    assert client.get(f"/statistics/{query}&format=csv").content.startswith(
        page.context["question"].by[0].encode()
    )


def test_preset_of_cpu_models_shows_the_worst_first_and_rows_without_data_are_explained(
    client, counted_jobs, liaison
):
    client.force_login(liaison)
    page = ask(client, "?measure=cpu_efficiency&by=stage,release,cpu_model&sort=value")
    query = next(preset.query for preset in page.context["presets"] if preset.name == "CPU models")
    assert "sort=value" in query
    values = []
    for shown in page.context["rows"]:
        value = shown["row"].value(page.context["question"].measure)
        if value is not None:
            values.append(value)
    assert values == sorted(values)
    assert "CPU model" in page.context["without_data"]
    assert "the records of these jobs have no" in page.text
    assert "no data" not in ask(client, "?by=verdict").text


def test_long_periods_are_drawn_by_week(client, alps, nova, liaison):
    monday = datetime(2025, 3, 3, tzinfo=UTC)
    ends = (monday, monday + timedelta(days=6, hours=23), monday + timedelta(days=7))
    store(alps, *[record(n, ended_at=end) for n, end in enumerate(ends, 1)], at=AT)
    recompute_dirty_hours(at=AT)
    client.force_login(liaison)
    page = ask(client, "?measure=jobs&by=host&since=2024-01-10T00:00Z&until=2025-12-31T00:00Z")
    assert page.context["step"] == "week"
    weeks = set(re.findall(r'href="(/jobs/[^"]*)"', page.context["chart"]))
    # 8 January 2024, a Monday, to 29 December 2025.
    assert len(weeks) == 104
    week = next(html.unescape(link) for link in weeks if "ended_from=2025-03-03" in link)
    assert [job.job_id for job in client.get(week).context["page"].rows] == ["2", "1"]
    assert "Mon 3 Mar 2025" in page.context["chart"]


@pytest.mark.parametrize(
    ("by", "compares"),
    [("host", True), ("host,stage", True), ("verdict", False), ("site,exit_code", False)],
)
def test_rates_are_shown_where_they_compare(client, counted_jobs, liaison, by, compares):
    """A failure rate by what only failures have would be 100 % in each row."""
    client.force_login(liaison)
    html = ask(client, f"?by={by}").content.decode()
    assert ("sort=-ratio" in html or "sort=ratio" in html) == compares
    assert ("<dt>Expected</dt>" in html) == compares


@pytest.mark.parametrize(
    ("dimension", "value"),
    [
        *((name, "plain") for name in DIMENSIONS),
        *(
            ("host", text)
            for text in ("with.dot", "with/slash", "a b&c=d", "//example.org", "-", "")
        ),
    ],
)
def test_filter_of_the_form_becomes_part_of_the_address(client, db, liaison, dimension, value):
    client.force_login(liaison)
    answer = client.get("/statistics/", {"period": "7d", "filter": dimension, "value": value})
    assert answer.status_code == 302
    query = QueryDict(answer["Location"].removeprefix("?"))
    assert query.getlist(dimension) == ([value] if value else [])
    assert query["period"] == "7d"
    assert not {"filter", "value"} & set(query)
    assert client.get("/statistics/" + answer["Location"]).status_code in (200, 400)


@pytest.mark.parametrize(
    ("dimension", "texts", "value"),
    [
        ("hour", ["7", "07", " 007 "], "07"),
        ("hour", ["0", "00"], "00"),
        ("weekday", ["Mon", "mon", "Monday", "MONDAY", "1"], "Mon"),
        ("weekday", ["Sun", "sunday", "7"], "Sun"),
    ],
)
def test_hours_and_weekdays_may_be_typed_in_several_ways(
    client, db, liaison, dimension, texts, value
):
    client.force_login(liaison)
    answers = [client.get("/statistics/", {"filter": dimension, "value": text}) for text in texts]
    assert {answer["Location"] for answer in answers} == {f"?{dimension}={value}"}
    for text in texts:
        page = client.get("/statistics/", {dimension: [text.strip(), value]})
        assert page.status_code == 200
        assert page.context["question"].filters == {dimension: (value,)}


def test_filter_that_is_given_twice_costs_no_error(client, db, liaison):
    client.force_login(liaison)
    answer = client.get("/statistics/?filter=host&filter=site&value=wn1")
    assert answer["Location"] == "?site=wn1"


def test_ledger_assigns_every_wasted_hour_and_agrees_with_accounting(client, counted_jobs, shifter):
    client.force_login(shifter)
    ledger = ask(client, "?measure=wasted_core_hours&by=user").context["ledger"]
    assert (
        sum(entry["seconds"] for entry in ledger["verdicts"])
        == ledger["all"].wasted_core_seconds
        == 3 * 7200
    )
    assert (ledger["accounted"], ledger["difference"]) == (10 * 7200, 0)


@pytest.mark.parametrize(
    "query",
    [
        "?measure=luck",
        "?by=colour",
        "?by=host,site,user,stage",
        "?period=1y",
        "?since=never",
        "?hour=24",
        "?weekday=Moonday",
    ],
)
def test_wrong_question_is_named_by_page_and_api(client, db, liaison, query):
    client.force_login(liaison)
    name = query[1:].partition("=")[0]
    assert name in client.get(f"/statistics/{query}").context["parsed"].problems
    assert client.get(f"/api/v1/statistics/{query}").status_code == 400


@pytest.mark.parametrize(
    ("query", "sentence", "of_api"),
    [
        ("measure=luck", "There is no measure “luck”. Choose one of: wasted", "wasted_core_hours,"),
        ("by=colour", "There is no dimension “colour”. Choose one of: experiment,", "cpu_model,"),
        ("period=1y", "There is no period “1y”. Choose one of: last 24 hours,", "24h, 7d"),
        ("weekday=x", "<b>Weekday:</b> There is no weekday “x”. Choose one of: Mon,", "Mon, Tue"),
    ],
)
def test_page_names_possible_values_by_labels(client, db, liaison, query, sentence, of_api):
    client.force_login(liaison)
    page = text_of(client.get(f"/statistics/?{query}"))
    assert sentence in page
    assert "_" not in page.partition("Choose one of: ")[2].partition(".")[0]
    assert of_api in client.get(f"/api/v1/statistics/?{query}").content.decode()


def test_experiments_have_their_names(client, counted_jobs, liaison):
    client.force_login(liaison)
    page = ask(client, "?measure=jobs&by=experiment&experiment=NOVA")
    assert [row["cells"] for row in page.context["rows"]] == [[("NOvA", "")]]
    assert page.context["filter_chips"][0][:2] == ("experiment", "NOvA")
    assert "experiment=NOVA" in page.context["rows"][0]["query"]
    by_name = ask(client, "?measure=jobs&by=experiment&experiment=NOvA")
    assert by_name.context["answer"].all.jobs == page.context["answer"].all.jobs


def test_shares_differ_by_percentage_points(client, alps, nova, liaison):
    now = timezone.now()
    store(
        alps,
        record(1, ended_at=now - timedelta(hours=30)),
        failed(2, ended_at=now - timedelta(hours=2)),
        at=now,
    )
    recompute_dirty_hours(at=now)
    client.force_login(liaison)
    page = ask(client, "?measure=failure_rate&by=host&period=24h&compare=previous")
    assert page.context["change_of_all"] == {"before": "0.0 %", "difference": "+100.0 pp"}
    assert "Percentage points" in page.text


def test_api_gives_rows_with_intervals_and_hides_other_experiments(client, counted_jobs, liaison):
    client.force_login(liaison)
    answer = client.get("/api/v1/statistics/?measure=jobs&by=host&exit_code=65").json()
    assert answer["total"]["jobs"] == 2
    [row] = answer["rows"]
    assert (row["key"], row["jobs"], row["failed"], row["value"]) == ({"host": "wn2"}, 2, 2, 2)
    assert row["rate_low"] == pytest.approx(0.342, abs=0.001)
    assert client.get("/api/v1/statistics/?by=host&experiment=DUNE").json()["rows"] == []


def test_statistics_never_read_jobs(client, counted_jobs, liaison):
    client.force_login(liaison)
    with CaptureQueriesContext(connection) as queries:
        ask(client, "?measure=wasted_core_hours&by=host,verdict")
    assert not [query for query in queries if '"jobs_job"' in query["sql"]]


def test_every_panel_of_the_dashboard_asks_what_the_api_answers(alps, nova, client, shifter):
    store(alps, record(1), failed(2))
    recompute_dirty_hours(at=AT)
    client.force_login(shifter)
    dashboard = json.loads((Path(__file__).parents[2] / "docs/grafana-jobs.json").read_text())
    period = {
        "${__from:date:iso}": "2026-11-20T00:00:00Z",
        "${__to:date:iso}": "2026-11-21T00:00:00Z",
        "${experiment}": "",
    }
    targets = [
        target for panel in dashboard["panels"] for target in panel["targets"] if "url" in target
    ]
    assert len(targets) >= 8
    for target in targets:
        query = {
            param["key"]: period.get(param["value"], param["value"])
            for param in target["url_options"]["params"]
        }
        answer = client.get(target["url"], query).json()
        rows = answer[target["root_selector"]]
        for row in rows if isinstance(rows, list) else [rows]:
            for column in target["columns"]:
                value = row
                for name in column["selector"].split("."):
                    value = value[name]


@pytest.mark.parametrize(
    ("sort", "hosts"),
    [
        ("", ["wn2", "wn1"]),
        ("value", ["wn1", "wn2"]),
        ("-jobs", ["wn1", "wn2"]),
        ("-failed", ["wn2", "wn1"]),
        ("rate", ["wn1", "wn2"]),
        ("-ratio", ["wn2", "wn1"]),
    ],
)
def test_table_is_sorted_by_each_column(client, counted_jobs, liaison, sort, hosts):
    client.force_login(liaison)
    query = f"?measure=failures&by=host&sort={sort}"
    assert [row["row"].label[0] for row in ask(client, query).context["rows"]] == hosts
    compared = ask(client, query + "&compare=previous").context["rows"]
    assert [row["row"].label[0] for row in compared] == hosts


def test_period_is_compared_with_the_one_before(client, alps, nova, liaison):
    now = timezone.now()
    yesterday = {"ended_at": now - timedelta(hours=30)}
    today = {"ended_at": now - timedelta(hours=2)}
    store(
        alps,
        *[failed(n, host="wn1", **yesterday) for n in (1, 2, 3)],
        failed(4, host="wn2", **yesterday),
        failed(5, host="wn1", **today),
        *[failed(n, host="wn3", **today) for n in (6, 7)],
        at=now,
    )
    recompute_dirty_hours(at=now)
    client.force_login(liaison)
    query = "?measure=failures&by=host&period=24h&compare=previous"
    page = ask(client, query + "&sort=-change")
    changes = {row["row"].label[0]: row["change"] for row in page.context["rows"]}
    shown = [(host, one["before"], one["difference"]) for host, one in changes.items()]
    assert shown == [("wn3", "0", "+2"), ("wn2", "1", "−1"), ("wn1", "3", "−2")]
    assert page.context["change_of_all"]["difference"] == "−1"
    assert page.context["change_of_all"]["before"] == "4"
    rows = client.get(f"/statistics/{query}&format=csv").content.decode().splitlines()
    assert rows[0].endswith("failures_before,failures_change")
    assert "Before" not in ask(client, query.replace("&compare=previous", "")).text


def test_comparison_takes_as_many_queries_for_many_rows(client, counted_jobs, liaison):
    client.force_login(liaison)
    counts = []
    for by in ("experiment", "host,user"):
        with CaptureQueriesContext(connection) as queries:
            ask(client, f"?measure=failures&by={by}&compare=previous")
        counts.append(len(queries))
    assert counts[0] == counts[1]
