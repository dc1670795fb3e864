"""How a request ran: the figures, and that they are frozen for good when it is closed."""

import json
import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils.html import strip_tags

from apps.clusters.models import Cluster, Site
from apps.core import tasks
from apps.core.web.templatetags.formatting import percent
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.models import Job
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.enums import Verb
from apps.progress.domain.production_report import digest_of, freeze_report, read_frozen, report_of
from apps.progress.models import ProductionReport
from tests.factories import clusters
from tests.factories.jobs import AT, failed, record, store
from tests.factories.requests import pass_quality, request_in
from tests.factories.verdicts import verdict
from tests.pages import text_of


@pytest.fixture
def ran(nova, liaison, approver):
    """A request in data quality: four jobs, one of which failed and was retried."""
    request = request_in("data_quality", by=liaison, experiment=nova, approver=approver)
    alps = clusters.cluster("jura")
    jobs = store(
        alps,
        record(1, wall_seconds=1000, cpu_seconds=1000),
        record(2, wall_seconds=3000, cpu_seconds=3000),
        failed(3, attempt=1, wall_seconds=3600, cpu_seconds=0),
        record(3, attempt=2, wall_seconds=2000, cpu_seconds=2000),
    )
    attach_origin(origins={job.pk: (request.key, "generation") for job in jobs}, at=AT)
    return request


def test_figures_are_those_of_the_jobs(ran):
    report = report_of(ran, at=AT)
    (stage,) = report["stages"]
    assert stage == {"stage": "generation", **report["total"]}
    assert (stage["jobs"], stage["completed"], stage["failed"], stage["retried"]) == (4, 3, 1, 1)
    assert (stage["core_hours"], stage["wasted_core_hours"]) == (round(9600 * 2 / 3600, 2), 2.0)
    assert stage["efficiency"] == round(6000 / 19200, 4)
    assert (stage["wall_p50"], stage["wall_p95"], stage["wall_max"]) == (2000, 2900, 3000)
    assert [job["wall"] for job in report["slowest"]] == [3000, 2000, 1000]
    assert [(site["site"], site["jobs"]) for site in report["sites"]] == [("", 4)]


def test_stages_come_in_the_order_of_the_chain(ran, liaison, client):
    others = store(Cluster.objects.get(), record(11), record(12), record(13))
    names = ("a_stage_of_no_request", "simulation", "simulation")
    attach_origin(
        origins={job.pk: (ran.key, name) for job, name in zip(others, names, strict=True)}, at=AT
    )
    stages = [stage["stage"] for stage in report_of(ran, at=AT)["stages"]]
    assert stages == ["generation", "simulation", "a_stage_of_no_request"]
    client.force_login(liaison)
    text = client.get(reverse("progress:request-report", args=[ran.key])).content.decode()
    text = " ".join(strip_tags(text).split())
    requested = sum(ran.stages.values_list("jobs", flat=True))
    summary = f"0 jobs completed of {requested:,} requested (0 %), in 7 attempts."
    assert summary in text, "all were submitted before production"


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("", ["generation", "simulation"]),
        ("-stage", ["simulation", "generation"]),
        ("jobs", ["simulation", "generation"]),
        ("-wasted", ["generation", "simulation"]),
    ],
)
def test_stages_are_sorted_by_their_headings(ran, liaison, client, sort, expected):
    [other] = store(Cluster.objects.get(), record(11))
    attach_origin(origins={other.pk: (ran.key, "simulation")}, at=AT)
    client.force_login(liaison)
    address = reverse("progress:request-report", args=[ran.key])
    stages = client.get(address, {"sort": sort}).context["report"]["stages"]
    assert [stage["stage"] for stage in stages] == expected


def test_report_is_frozen_when_the_request_is_closed_and_stays(
    ran, approver, liaison, other_liaison, client
):
    client.force_login(liaison)
    page = reverse("progress:request-report", args=[ran.key])
    assert b"as of" in client.get(page).content
    pass_quality(ran, approver)
    MOVE_FUNCTIONS[Verb.DONE](request=ran, by=approver, at=AT + timedelta(days=1))
    for _ in range(3):
        tasks.deliver_waiting()
    kept = ProductionReport.objects.get()
    before = read_frozen(kept)
    late = store(Cluster.objects.get(), record(9))
    attach_origin(origins={late[0].pk: (ran.key, "generation")}, at=AT)
    assert freeze_report(request=ran, at=AT + timedelta(days=2)) == kept
    assert (before["total"]["jobs"], report_of(ran, at=AT)["total"]["jobs"]) == (4, 5)
    address = reverse("progress:frozen-report", args=[kept.sha256])
    assert client.get(page).headers["Location"] == address
    assert kept.sha256[:12] in client.get(address).content.decode()
    answer = client.get(reverse("api:request-report-detail", args=[ran.key])).json()
    assert (answer["sha256"], answer["report"]) == (
        digest_of(kept.content),
        json.loads(kept.content),
    )
    client.force_login(other_liaison)
    assert client.get(address).status_code == 404


def test_changed_report_is_not_shown_as_frozen(ran):
    kept = freeze_report(request=ran, at=AT)
    ProductionReport.objects.update(content=kept.content.replace('"jobs":4', '"jobs":5'))
    with pytest.raises(ValueError, match="was changed"):
        read_frozen(ProductionReport.objects.get())


def test_request_that_was_never_approved_has_no_report(nova, liaison, approver):
    request_in("cancelled", by=liaison, experiment=nova, approver=approver)
    for _ in range(3):
        tasks.deliver_waiting()
    assert not ProductionReport.objects.exists()


def test_report_says_what_was_requested_and_why(ran, liaison, client):
    stage = ran.stages.get(position=0)
    ran.stages.exclude(pk=stage.pk).delete()
    ran.stages.update(jobs=8)
    ran.purpose = "For the <freeze>"
    ran.deadline = AT.date()
    ran.save(update_fields=["purpose", "deadline"])
    client.force_login(liaison)
    address = reverse("progress:request-report", args=[ran.key])
    page = text_of(client.get(address))
    assert f"<h2>{ran.title}</h2>" in page
    assert "For the &lt;freeze&gt;" in page
    assert f"due {AT:%-d %b %Y}" in page
    completed = report_of(ran, at=AT)["total"]["completed_jobs"]
    assert f"completed</b> of 8 requested ({percent(completed, 8)})," in page
    ran.stages.update(jobs=None)
    assert "requested" not in text_of(client.get(address)).partition("completed</b>")[2][:20]


def test_report_keeps_its_query_count(ran, django_assert_max_num_queries):
    with django_assert_max_num_queries(16):
        report_of(ran, at=AT)


def judged(job, **changes):
    return verdict(job, at=AT, **changes)


@pytest.fixture
def ran_everywhere(ran, dune):
    """Jobs of stages and sites, known and not; and some that are of no concern to the report."""
    alps = Cluster.objects.get()
    more = store(
        alps,
        failed(11),
        record(12, state="cancelled"),
        record(13, wall_seconds=10),
        failed(14, wall_seconds=7200),
        failed(21),
        failed(22, account="dune"),
    )
    keys = [ran.key] * 4 + ["NOVA-9999", ran.key]
    names = ["", "reco", "reco", "reco", "reco", "reco"]
    attach_origin(origins={job.pk: own for job, *own in zip(more, keys, names, strict=True)}, at=AT)
    Job.objects.filter(pk__in=[more[2].pk, more[3].pk]).update(
        site=Site.objects.create(name="A & B")
    )
    judged(more[0], cause="XRD-AUTH", service="xrootd")
    judged(more[3])
    judged(more[4])
    judged(more[5])
    return ran


def links_of(page: str) -> list[tuple[str, str, str]]:
    """Return address, title and text of each link to a list of jobs."""
    links = re.findall(
        r'<a href="(/(?:failures/)?jobs/\?[^"]*)"(?: title="([^"]*)")?>([\d.,]+)</a>', page
    )
    return [(address.replace("&amp;", "&"), title, text) for address, title, text in links]


def rows_at(client, address: str) -> list:
    answer = client.get(address)
    assert not answer.context["filter"].form.errors, address
    return answer.context["page"].rows


def cells_of(page: str, heading: str) -> dict[str, list[tuple[str, str, str]]]:
    """Return the links in each row of a table by the row's first words."""
    table = page.split(f"<h2>{heading}</h2>")[1].split("</table>", maxsplit=1)[0]
    rows = re.findall(r"<tr>\s*(<t[dh].*?)</tr>", table, re.DOTALL)
    return {
        " ".join(strip_tags(row.split("</t")[0]).split()): links_of(row)
        for row in rows
        if "<td" in row
    }


@pytest.mark.parametrize("who", ["liaison", "shifter"])
def test_each_number_leads_to_as_many_jobs(who, ran_everywhere, client, request):
    client.force_login(request.getfixturevalue(who))
    page = client.get(
        reverse("progress:request-report", args=[ran_everywhere.key])
    ).content.decode()
    counts = []
    for address, title, text in links_of(page):
        assert title == ""
        if "state=not_completed" not in address:
            counts.append((len(rows_at(client, address)), int(text)))
    assert len(counts) >= 15
    assert all(listed == shown for listed, shown in counts)


def test_rows_lead_to_their_own_jobs(ran_everywhere, liaison, client):
    client.force_login(liaison)
    page = client.get(
        reverse("progress:request-report", args=[ran_everywhere.key])
    ).content.decode()

    def listed(heading: str, row: str) -> list[list[str]]:
        found = [rows_at(client, address) for address, _, _ in cells_of(page, heading)[row]]
        return [sorted(getattr(one, "job", one).job_id for one in jobs) for jobs in found]

    assert listed("Stages", "reco") == [["12", "13", "14"], ["14"], ["12", "14"]]
    assert listed("Stages", "no stage named") == [["11"], ["11"], ["11"]]
    assert listed("Stages", "All")[2] == ["11", "12", "14", "3"]
    assert listed("Sites", "A &amp; B") == [["13", "14"], ["14"]]
    assert listed("Sites", "not known") == [["1", "11", "12", "2", "3", "3"], ["11", "3"]]
    cause = "service Authentication failed (XRootD) XRD-AUTH xrootd"
    assert listed("Failures by cause", cause) == [["11"]]
    assert listed("Failures by cause", "service no known error") == [["14"]]


def test_numbers_of_a_frozen_report_say_that_the_jobs_are_as_of_now(
    ran_everywhere, liaison, client
):
    kept = freeze_report(request=ran_everywhere, at=AT)
    late = store(Cluster.objects.get(), record(31))
    attach_origin(origins={late[0].pk: (ran_everywhere.key, "generation")}, at=AT)
    client.force_login(liaison)
    page = client.get(reverse("progress:frozen-report", args=[kept.sha256])).content.decode()
    links = links_of(page)
    assert {title for _, title, _ in links} == {"Jobs as of now"}
    assert "its links show jobs as of now" in " ".join(page.split())
    jobs = cells_of(page, "Stages")["generation"][0]
    assert (jobs[2], len(rows_at(client, jobs[0]))) == ("4", 5)


def test_nought_leads_nowhere(ran, liaison, client):
    Job.objects.filter(state="failed").delete()
    client.force_login(liaison)
    page = client.get(reverse("progress:request-report", args=[ran.key])).content.decode()
    assert '<a href="/requests/" aria-current="page">' in page, "a report belongs to its request"
    assert "0 attempts failed" in " ".join(strip_tags(page).split())
    assert not any(
        text in {"0", "0.0"} or "any_failure" in address for address, _, text in links_of(page)
    )
