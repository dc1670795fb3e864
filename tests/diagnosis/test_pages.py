"""Pages: what they show, to whom, with and without htmx; hostile text stays text."""

import re
from datetime import timedelta

import pytest
import time_machine
from django.db.models import F
from django.urls import reverse
from django.utils import timezone

from apps.core.domain.health import beat_heart
from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.domain.verdicts.harvest import (
    harvest_batch,
    harvest_log,
    queue_harvests,
)
from apps.diagnosis.models import CauseTotals, DailyCauseTotals, LogHarvest, Verdict
from apps.diagnosis.web import views
from apps.jobs.domain.records.jobs import TOTALS_HEART, counted_until
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Collection
from apps.statusboard.models import Service
from tests.factories import clusters
from tests.pages import text_of

HOSTILE = '<script>alert("x")</script> [FATAL] Auth failed\n'


@pytest.fixture
def job(make_job, at):
    made = make_job(log=HOSTILE)
    queue_harvests(job_pks=[made.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(), at=at)
    return made


def get(client, user, name, *args, htmx=False, **query):
    client.force_login(user)
    headers = {"HX-Request": "true"} if htmx else {}
    return client.get(reverse(f"diagnosis:{name}", args=args), query, headers=headers)


@pytest.mark.parametrize("name", ["verdict", "log"])
def test_job_is_shown_to_its_experiment_and_the_opg_only(
    client, job, name, liaison, other_liaison, shifter
):
    assert get(client, liaison, name, job.pk).status_code == 200
    assert get(client, shifter, name, job.pk).status_code == 200
    assert get(client, other_liaison, name, job.pk).status_code == 404
    client.logout()
    assert client.get(reverse(f"diagnosis:{name}", args=[job.pk])).status_code == 302


def test_verdict_comes_first_with_reasons_and_links(client, job, shifter):
    html = get(client, shifter, "verdict", job.pk).content.decode()
    assert "Service problem: retry" in html
    assert "Known error XRD-AUTH at line 1: cause" in html
    assert f'href="/jobs/{job.pk}/log/?stream=stdout&amp;at=0#b0"' in html


def test_htmx_gets_the_part_only(client, job, shifter):
    assert "<html" not in get(client, shifter, "verdict", job.pk, htmx=True).content.decode()
    assert "<html" not in get(client, shifter, "log", job.pk, htmx=True).content.decode()
    earlier = get(client, shifter, "log", job.pk, htmx=True, before="10").content.decode()
    assert "<section" not in earlier


def test_log_is_escaped_and_marked(client, job, shifter):
    html = get(client, shifter, "log", job.pk).content.decode()
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert 'class="log-row hit"' in html
    assert "XRD-AUTH, service xrootd" in html


@pytest.mark.parametrize(
    "query",
    [
        {"lines": "x"},
        {"lines": "-1"},
        {"before": "1e9"},
        {"at": "٣"},
        {"stream": "../x"},
        {"at": "9" * 40},
    ],
)
def test_odd_query_shows_the_end(client, job, shifter, query):
    assert get(client, shifter, "log", job.pk, **query).status_code == 200


def test_job_being_read_says_so_and_looks_again(client, make_job, at, shifter):
    job = make_job(5, log="x\n")
    queue_harvests(job_pks=[job.pk], at=at)
    html = get(client, shifter, "verdict", job.pk).content.decode()
    assert "Analysing log" in html
    assert 'hx-trigger="every 3s"' in html


def test_job_without_harvest_offers_one(client, make_job, at, shifter, liaison):
    job = make_job(5, log="x\n", state="completed", exit_code=0)
    assert "Analyse log" in get(client, shifter, "verdict", job.pk).content.decode()
    client.force_login(liaison)
    client.post(reverse("diagnosis:harvest-again", args=[job.pk]))
    assert LogHarvest.objects.get().state == "queued"


def test_correction_is_put_in_force(client, job, liaison):
    client.force_login(liaison)
    address = reverse("diagnosis:correct-verdict", args=[job.pk])
    assert client.post(address, {"verdict": "code", "reason": ""}).status_code == 400
    assert client.post(address, {"verdict": "nonsense", "reason": "x"}).status_code == 400
    assert client.post(address, {"verdict": "code", "reason": "Our proxy."}).status_code == 302
    assert Verdict.objects.get().verdict == "code"
    html = get(client, liaison, "verdict", job.pk).content.decode()
    assert "Code problem: debug" in html
    assert "Automatic verdict: Service problem." in html


def test_correction_by_another_experiment_is_not_found(client, job, other_liaison):
    client.force_login(other_liaison)
    for name in ("correct-verdict", "harvest-again"):
        assert (
            client.post(
                reverse(f"diagnosis:{name}", args=[job.pk]), {"verdict": "code"}
            ).status_code
            == 404
        )


@pytest.fixture
def failed(make_job):
    """Failures of the last hours, of two experiments and none, counted."""
    now = timezone.now()
    logs = ["[FATAL] Auth failed\n", "[FATAL] Auth failed\n", "KeyError: 'x'\n", "nothing\n"]
    jobs = []
    for number, log in enumerate(logs * 2):
        fields = {"experiment": None} if number == 7 else {}
        ended_at = now - timedelta(hours=number // 2 * 4)
        jobs.append(make_job(number, log=log, ended_at=ended_at, **fields))
    queue_harvests(job_pks=[job.pk for job in jobs], at=now)
    harvest_batch(at=now)
    recount_dirty_hours()
    recompute_dirty_hours(at=now)


def numbers_and_lists(client, html):
    """Yield each number that is a link, and how many rows the list behind it has."""
    for query, shown in re.findall(
        r'data-u=" open"><b>[\d,]+</b> of\s+<a href="[^"?]*(\?[^"]*)">([\d,]+)</a>', html
    ):
        page = client.get(
            reverse("diagnosis:failed-jobs") + query.replace("&amp;", "&")
        ).content.decode()
        yield int(shown), page.count("<tr>") - 1


def test_every_number_equals_the_list_behind_it(client, failed, shifter):
    html = get(client, shifter, "failures").content.decode()
    numbers = list(numbers_and_lists(client, html))
    assert len(numbers) == 3
    assert [shown for shown, _ in numbers] == [listed for _, listed in numbers]
    assert "8 jobs" in html

    # A verdict is counted seconds after it is stored.
    for totals in (CauseTotals, DailyCauseTotals):
        totals.objects.filter(jobs__gt=1).update(jobs=F("jobs") - 1)
    html = get(client, shifter, "failures").content.decode()
    assert list(numbers_and_lists(client, html)) == numbers
    assert "8 jobs" in html


def test_total_of_filtered_failures_equals_the_list_behind_it(client, failed, shifter):
    totals = []
    for name, value in (
        ("q", "KeyError"),
        ("status", "new"),
        ("kind", "host"),
        ("owner", "ada"),
        ("stage", "no such stage"),
        ("verdict", ["code", "unknown"]),
    ):
        html = get(client, shifter, "failures", **{name: value}).content.decode()
        address, total = re.search(r'id="as-of">\s*<a href="([^"]*)">(\d+) job', html).groups()
        page = client.get(address.replace("&amp;", "&")).content.decode()
        assert max(0, page.count("<tr>") - 1) == int(total), name
        totals.append(int(total))
    assert totals == [2, 8, 0, 0, 0, 4]


def test_failed_jobs_show_their_total_and_each_filter(client, failed, shifter, at, monkeypatch):
    group = Verdict.objects.exclude(group=None).first().group
    start = at - timedelta(hours=30)
    query = {"group": group.pk, "verdict": ["code", group.verdict], "start": start.isoformat()}
    page = get(client, shifter, "failed-jobs", **query)
    shown = page.context["jobs"]
    assert shown == len(page.context["page"].rows) > 0
    words = " ".join(re.sub("<[^>]*>", "", page.content.decode()).split())
    jobs = f"{shown} job{'s' * (shown != 1)}"
    assert re.search(rf"{jobs} group F-{group.pk} ✕ verdict .* or .* ✕ .* – now ✕ Clear", words)
    for chip in page.context["chips"]:
        without = client.get(f"{reverse('diagnosis:failed-jobs')}{chip.query}")
        assert len(without.context["chips"]) == 2
    assert get(client, shifter, "failed-jobs").context["chips"] == []
    monkeypatch.setattr(views, "MOST_COUNTED", 3)
    assert "More than 3 jobs" in get(client, shifter, "failed-jobs").content.decode()


def test_window_leaves_out_older_failures(client, failed, shifter, at):
    html = get(client, shifter, "failures", hours="168").content.decode()
    assert "8 jobs" in html
    others = get(client, shifter, "failures", stage="no such stage").content.decode()
    assert "No failures in this period" in others
    for page, has_column in ((html, True), (others, False)):
        assert ('class="side"' in page) == has_column
        assert ('aria-label="Filters"' in page) == has_column


@pytest.mark.parametrize("name", ["failures", "failed-jobs", "known-errors"])
def test_invalid_filter_shows_no_totals(client, failed, shifter, name):
    query = {"known-errors": {"category": "nonsense"}, "failures": {"hours": "abc"}}
    page = text_of(get(client, shifter, name, **query.get(name, {"verdict": "nonsense"})))
    assert "Invalid filter" in page
    assert "0 job" not in page
    assert "0 found" not in page
    assert "No failures in this period" not in page


def test_failures_of_others_are_not_counted(client, failed, liaison, other_liaison):
    assert "7 jobs" in get(client, liaison, "failures").content.decode()
    assert "No failures in this period" in get(client, other_liaison, "failures").content.decode()
    assert "No matching jobs" in get(client, other_liaison, "failed-jobs").content.decode()


@pytest.mark.parametrize(
    "query",
    [{"hours": "1e9"}, {"start": "x"}, {"verdict": "x"}, {"experiment": "x"}, {"after": "x"}],
)
def test_filters_that_make_no_sense_do_no_harm(client, failed, shifter, query):
    assert get(client, shifter, "failures", **query).status_code == 200
    assert get(client, shifter, "failed-jobs", **query).status_code == 200


@pytest.fixture(params=["00:30", "12:00", "23:30"])
def time_of_day(request):
    """A time of day; the 24 hours up to 23:30 are one whole day of UTC,
    which has totals of its own.
    """
    with time_machine.travel(f"2026-11-20T{request.param}:00Z", tick=False):
        yield


def test_list_costs_the_same_number_of_queries_for_any_length(
    client, time_of_day, failed, shifter, django_assert_max_num_queries
):
    client.force_login(shifter)
    with django_assert_max_num_queries(14):
        client.get(reverse("diagnosis:failed-jobs"))
    with django_assert_max_num_queries(36):
        client.get(reverse("diagnosis:failures"))


def test_group_says_that_its_figures_lack_jobs_only_if_they_do_for_long(client, job, shifter):
    recount_dirty_hours()
    group = Verdict.objects.get().group
    now = timezone.now()
    notice = "jobs as of"

    def shown():
        return notice in get(client, shifter, "group", group.pk).content.decode()

    assert not shown()
    Verdict.objects.update(ended_at=F("ended_at") + timedelta(seconds=1), decided_at=now)
    assert not shown(), "it is counted within seconds"
    Verdict.objects.update(decided_at=now - timedelta(minutes=3))
    assert shown()


def test_pages_of_failures_say_until_when_accounting_is_read(client, job, shifter):
    recount_dirty_hours()
    group = Verdict.objects.get().group
    now = timezone.now()
    other = clusters.cluster("jura")

    def shown():
        pages = [get(client, shifter, "group", group.pk), get(client, shifter, "failures")]
        return [page.content.decode().count("jobs as of") for page in pages]

    alps_read = Collection.objects.create(
        cluster=job.cluster, collected_until=now - timedelta(minutes=1)
    )
    assert shown() == [0, 0]
    Collection.objects.create(cluster=other, collected_until=now - timedelta(minutes=9))
    assert shown() == [0, 1], "the group has no job of that cluster"
    alps_read.collected_until = now - timedelta(minutes=5)
    alps_read.save()
    assert shown() == [1, 1]
    assert counted_until(now, [job.cluster_id]) == now - timedelta(minutes=5)
    assert counted_until(now) == now - timedelta(minutes=9)
    Collection.objects.filter(cluster=other).update(collected_until=now - timedelta(hours=1))
    assert shown() == [1, 0], "a notice of the list names the cluster that is behind"
    Collection.objects.update(collected_until=now)
    assert (counted_until(now), shown()) == (None, [0, 0])
    beat_heart(name=TOTALS_HEART, at=now - timedelta(minutes=4))
    assert (counted_until(now), shown()) == (now - timedelta(minutes=4), [1, 1])


def test_reason_about_a_service_leads_to_its_page(client, job, shifter):
    reasons = [
        {
            "kind": "outage",
            "text": "samweb had an outage while the job ran",
            "target": "service:samweb",
        }
    ]
    Verdict.objects.update(reasons=reasons)
    html = get(client, shifter, "verdict", job.pk).content.decode()
    assert '<a href="/services/samweb/">samweb</a>' in html


def test_failed_jobs_are_sorted_by_what_they_wasted(client, make_job, shifter, at):
    for number, (seconds, cpus) in enumerate([(60, 8), (300, 1), (120, 1)], start=1):
        made = make_job(number, log=HOSTILE, wall_seconds=seconds, cpus=cpus)
        queue_harvests(job_pks=[made.pk], at=at)
        harvest_log(harvest=LogHarvest.objects.get(job=made), at=at)
    for sort, expected in {"-core": [480, 300, 120], "-wall": [60 * 5, 120, 60]}.items():
        rows = get(client, shifter, "failed-jobs", sort=sort).context["page"].rows
        shown = [row.core_seconds if sort == "-core" else row.wall_seconds for row in rows]
        assert shown == expected


def test_status_has_one_name_in_filter_facet_and_group(client, failed, shifter):
    html = get(client, shifter, "failures").content.decode()
    assert '<option value="new">Not triaged</option>' in html
    assert html.count("<span>not triaged</span>") == 1
    assert '<span class="group-status new">not triaged</span>' in html
    assert ">new</span>" not in html


def test_filters_are_folded_unless_one_of_them_is_used(client, failed, shifter):
    folded = get(client, shifter, "failures", hours="168", q="KeyError").content.decode()
    assert '<details class="more">' in folded
    shown, _, more = folded.partition('<details class="more">')
    assert 'id="id_hours"' in shown
    assert 'id="id_owner"' in more
    used = get(client, shifter, "failures", status="new").content.decode()
    assert '<details class="more" open>' in used


def test_services_and_experiments_have_the_names_of_the_board(client, job, shifter, at):
    recount_dirty_hours()
    Service.objects.create(slug="xrootd", name="dCache door", kind="other")
    listed = get(client, shifter, "failed-jobs", service="xrootd").content.decode()
    assert "service=xrootd" in listed
    assert ">dCache door</a>" in listed
    assert "service dCache door ✕" in listed
    assert ">NOvA</a>" in listed
    by_name = get(client, shifter, "failed-jobs", service="dcache Door").content.decode()
    assert f'href="/jobs/{job.pk}/"' in by_name
    summary = "dCache door: service failure (XRD-AUTH)."
    for html in (listed, get(client, shifter, "verdict", job.pk).content.decode()):
        assert summary in html
        assert "xrootd:" not in html
    assert "· dCache door" in text_of(get(client, shifter, "group", job.verdict.group_id))
    assert "dCache door" in text_of(get(client, shifter, "known-error", "XRD-AUTH"))
    facets = get(client, shifter, "failures", hours="720").context["facets"]
    experiments = next(values for _, parameter, values in facets if parameter == "experiment")
    assert [(value, name) for value, name, _ in experiments] == [("NOVA", "NOvA")]
