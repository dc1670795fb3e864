"""The answers at the top of the home page."""

import html
import re
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.causes.impact.recount import mark_incidents, recount_impact
from apps.diagnosis.domain.causes.totals import mark_dirty, recount_dirty_hours
from apps.diagnosis.models import Impact, ImpactGroup
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Collection, Job
from apps.portal.pages.home_answers import (
    MOST_BANDS,
    Broken,
    broke_since_yesterday,
    can_run,
    failures_by_hour,
)
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.enums import State
from apps.submission.domain.retries.offers import RetryOffer
from apps.submission.enums import LeftOut
from tests.factories import clusters, jobs, statusboard
from tests.factories.requests import request_in, stage
from tests.factories.statusboard import service
from tests.factories.verdicts import verdict
from tests.pages import page_of, text_of


@pytest.fixture
def words(at, shifter, liaison, other_liaison):
    """Return what the page answers to a shifter and to the liaisons of NOvA and DUNE."""
    return lambda: [can_run(user=user, at=at).text for user in (shifter, liaison, other_liaison)]


def test_announcement_for_everybody_stops_all(at, shifter, words):
    post_announcement(title="Stop", by=shifter, at=at, do_not_submit=True)
    assert words() == ["No: do not submit"] * 3


def test_announcement_for_one_experiment_stops_only_that_one(at, shifter, dune, words):
    post_announcement(title="Stop", by=shifter, at=at, experiments=[dune], do_not_submit=True)
    assert words() == ["Yes, except jobs of DUNE", "Yes", "No: do not submit"]


def test_announcement_about_a_service_stops_what_needs_it(at, shifter, words):
    samweb = service("samweb", at)
    post_announcement(title="Stop", by=shifter, at=at, services=[samweb], do_not_submit=True)
    assert words() == ["Yes, except jobs that need samweb"] * 3


def test_service_that_every_request_needs_stops_all(at, shifter, nova, liaison, approver, words):
    def made(state, *stages):
        request_in(state, by=liaison, experiment=nova, approver=approver, stages=stages)

    samweb = service("samweb", at)
    open_incident(service=samweb, state=State.DOWN, title="503", by=shifter, at=at)
    made("queued", stage("generation", services=("samweb",)), stage("merge"))
    assert words()[0] == "No: every request in queue and production needs samweb"
    assert words()[2] == "Yes, except jobs that need samweb"  # sees no request
    made("running", stage("merge"))
    assert words()[0] == "Yes, except jobs that need samweb"
    answer = can_run(user=shifter, at=at)
    assert (answer.hindered, answer.requests) == (1, 2)
    made("queued", stage("generation", services=("samweb",)))
    assert words()[0] == "Hardly: 2 of 3 requests need samweb, which is down"


def test_reasons_of_both_kinds_are_named_together(at, shifter, dune, words):
    for name in ("a", "b", "c", "d"):
        open_incident(service=service(name, at), state=State.DOWN, title="503", by=shifter, at=at)
    post_announcement(title="Stop", by=shifter, at=at, experiments=[dune], do_not_submit=True)
    services = "jobs that need a, b, c and 1 more"
    assert words() == [
        f"Yes, except jobs of DUNE and {services}",
        f"Yes, except {services}",
        "No: do not submit",
    ]


def test_chart_counts_the_outages_that_it_does_not_mark(shifter, client):
    now = timezone.now()
    outages = []
    for number in reversed(range(MOST_BANDS + 2)):
        began_at = now - timedelta(hours=number + 1)
        outage = open_incident(
            service=service(f"s{number}", began_at),
            state=State.DOWN,
            title="503",
            by=shifter,
            at=began_at,
        )
        outages.append(outage)
    assert failures_by_hour(user=shifter, at=now).left_out == outages[:2]
    client.force_login(shifter)
    page = text_of(client.get("/"))
    assert "2 earlier outages not marked" in page
    chart = page.partition('id="hours"')[2].partition("</section>")[0]
    assert all(outage.get_absolute_url() in chart for outage in outages[:2])


def test_home_names_a_service_with_several_incidents_once(shifter):
    now = timezone.now()
    samweb = service("samweb", now - timedelta(hours=5))
    rucio = service("rucio", now - timedelta(hours=5))
    for broken_service, minutes in ((samweb, 40), (rucio, 30), (rucio, 20), (samweb, 10)):
        began_at = now - timedelta(minutes=minutes)
        incident = open_incident(
            service=broken_service, state=State.DOWN, title="503", by=shifter, at=began_at
        )
        end = began_at + timedelta(minutes=5)
        close_incident(incident=incident, by=shifter, at=end, reason="Up again.")
    broken = broke_since_yesterday(user=shifter, at=now)
    assert [row.service.name for row in broken.incidents] == ["samweb", "rucio", "rucio", "samweb"]
    assert [row.service.name for row in broken.of_other_services] == ["rucio"]


def test_home_leads_to_the_list_of_the_incidents_that_it_counts(client, shifter):
    now = timezone.now()
    began_at = now - timedelta(hours=3)
    for name in ("samweb", "rucio"):
        broken_service = service(name, began_at)
        outage = open_incident(
            service=broken_service, state=State.DOWN, title="503", by=shifter, at=began_at
        )
        impact = Impact.objects.create(
            incident=outage, counted_at=now, bins_from=began_at, bin_seconds=600
        )
        ImpactGroup.objects.create(impact=impact, confirmed=4)
    # One of them is over: the board lists it only on request.
    close_incident(incident=outage, by=shifter, at=now, reason="Up again.")
    client.force_login(shifter)
    page = text_of(client.get("/"))
    assert "8 jobs failed because of these" in page
    link = re.search(r'href="(/services/\?since=[^"#]*)#incidents">2 incidents</a>', page)
    listed = client.get(link[1].replace("&amp;", "&"))
    assert len(listed.context["incidents"]) == 2
    assert len(client.get("/services/").context["incidents"]) == 1


def test_home_counts_the_jobs_of_an_outage_as_their_retries_do(shifter):
    now = timezone.now()
    samweb = service("samweb", now - timedelta(hours=5))
    incident = open_incident(
        service=samweb, state=State.DOWN, title="503", by=shifter, at=now - timedelta(hours=1)
    )
    broken = Broken(now, [incident], {incident.pk: 105}, incident, is_counted=True)
    offer = RetryOffer(
        jobs=67,
        as_owner=0,
        bundle=0,
        bundle_list=LeftOut.NOT_SENT,
        left_out=[(LeftOut.BY_RULE, 127)],
        needs={},
    )
    counted = broken.with_offer(offer)
    assert (counted.confirmed, counted.victims_by_service) == (194, {samweb.pk: 194})
    assert broken.with_offer(None) == broken


def test_chart_has_a_legend_of_the_verdicts_in_it(client, shifter):
    now = timezone.now()
    jobs.store(clusters.cluster(), jobs.failed(5, ended_at=now - timedelta(hours=2)))
    Collection.objects.update(collected_until=now)
    recompute_dirty_hours(at=now)
    assert failures_by_hour(user=shifter, at=now).legend == [("unknown", 1)]
    assert "unknown 1</span>" in page_text(client, shifter, "/")


def test_home_names_the_service_that_is_down_before_those_that_are_degraded(client, shifter):
    now = timezone.now()
    for name, state in (("samweb", State.DOWN), ("dcache", State.DEGRADED), ("rucio", State.DOWN)):
        # The newest would come first if states were equal.
        began_at = now - timedelta(minutes=30 if name == "samweb" else 10)
        broken_service = service(name, now - timedelta(hours=5))
        incident = open_incident(
            service=broken_service, state=state, title="503", by=shifter, at=began_at
        )
        if name == "rucio":
            close_incident(incident=incident, by=shifter, at=now, reason="Up again.")
    broken = broke_since_yesterday(user=shifter, at=now)
    assert [row.service.name for row in broken.incidents] == ["samweb", "dcache", "rucio"]
    page = page_of(client, shifter, "/")
    assert "What broke since yesterday at 18:00" in page


def test_home_says_when_the_jobs_of_an_outage_are_being_counted(client, shifter):
    now = timezone.now()
    samweb = statusboard.service("samweb", now)
    outage = open_incident(
        service=samweb, state=State.DOWN, title="503", by=shifter, at=now, started_at=now
    )
    assert "Failed jobs are being counted." in page_of(client, shifter, "/")
    recount_impact(incident_id=outage.pk, at=now)
    page = page_of(client, shifter, "/")
    assert "No job is known to have failed because of an outage." in page
    assert "Failed jobs are being counted." not in page
    mark_incidents([outage.pk])  # jobs that it met were collected since
    assert "Failed jobs are being counted." in page_of(client, shifter, "/")


def test_home_says_how_far_accounting_is_read(client, shifter):
    now = timezone.now()
    cluster = clusters.cluster(collects=True)
    read = Collection.objects.create(cluster=cluster, collected_until=now - timedelta(hours=3))
    page = " ".join(page_of(client, shifter, "/").split())
    assert f"Jobs of {cluster.name} are counted up to" in page
    assert "its accounting is being read." in page
    assert "No job failed" not in page
    assert "No jobs failed since" not in page, "nor in the wasted core-hours of a week"
    for address in ("/failures/", "/statistics/", "/jobs/"):
        assert f"Jobs of {cluster.name} are counted up to" in page_text(client, shifter, address)
    failures = page_text(client, shifter, "/failures/")
    assert "No failures in this period" not in failures
    Collection.objects.update(last_error="sacct: connection refused")
    page = " ".join(page_of(client, shifter, "/").split())
    assert f"Jobs of {cluster.name} are not counted" in page, "it was never read"
    Collection.objects.update(last_success_at=now - timedelta(hours=3))
    for address in ("/", "/failures/", "/statistics/", "/jobs/"):
        page = page_text(client, shifter, address)
        assert "its accounting cannot be read. It was last read" in page
        assert 'href="/health/#accounting"' in page
        assert 'href="/help/jobs/#accounting-that-cannot-be-read"' in page
    assert 'id="accounting"' in page_of(client, shifter, "/health/")
    assert 'id="accounting-that-cannot-be-read"' in page_of(client, shifter, "/help/jobs/")
    Collection.objects.update(collected_until=now, last_error="")
    page = page_of(client, shifter, "/")
    assert "No job failed in the last 24 hours" in page
    assert "No jobs failed since" in page
    assert f"Jobs of {read.cluster.name}" not in page_of(client, shifter, "/")


def test_who_sees_no_portal_health_is_not_sent_there(client, other_liaison):
    late = timezone.now() - timedelta(hours=3)
    Collection.objects.create(
        cluster=clusters.cluster(collects=True),
        collected_until=late,
        last_success_at=late,
        last_error="sacct: connection refused",
    )
    page = page_text(client, other_liaison, "/jobs/")
    assert "its accounting cannot be read." in page
    assert "/health/" not in page


def page_text(client, user, address):
    return " ".join(page_of(client, user, address).split())


def test_pages_of_failures_say_how_many_logs_are_being_read(client, shifter, other_liaison):
    """The verdicts of a fresh site come minutes after its jobs."""
    now = timezone.now()
    jobs.store(clusters.cluster(), jobs.failed(5, ended_at=now), jobs.failed(6, ended_at=now))
    Collection.objects.update(collected_until=now)
    assert "no verdict yet" not in page_text(client, shifter, "/failures/")

    recompute_dirty_hours(at=now)
    for address in ("/failures/", "/failures/jobs/", "/jobs/"):
        text = page_text(client, shifter, address)
        assert "2 jobs</b></a> of the last 24 hours did not complete and have no verdict" in text
        assert "no verdict yet" not in page_text(client, other_liaison, address)
    assert "No verdicts yet" in page_text(client, shifter, "/failures/")
    Collection.objects.update(collected_until=now - timedelta(hours=1))
    page = page_text(client, shifter, "/failures/")
    assert "No verdicts yet" in page
    assert "No failures yet" not in page, "two jobs failed"
    Collection.objects.update(collected_until=now)

    for job in Job.objects.all():
        verdict(job, at=now)
    mark_dirty([hour_of(now)])
    recount_dirty_hours()
    assert "no verdict yet" not in page_text(client, shifter, "/failures/")


def list_behind(client, user, page, text):
    """Return the job IDs on the list that the link with this text on a page leads to."""
    links = re.findall(r'<a[^>]* href="([^"]*)"[^>]*>(?:<b>)?([^<]*)', page)
    [address] = [html.unescape(address) for address, label in links if label == text]
    return re.findall(r">(\d+)</a>", page_text(client, user, address))


def test_jobs_without_a_verdict_are_counted_alike_on_home_and_failures(client, shifter):
    """Each number says what it counts, and leads to a list of as many jobs."""
    now = timezone.now()
    records = [jobs.record(8, ended_at=now)]
    for number, state in ((5, "failed"), (6, "failed"), (7, "cancelled")):
        records.append(jobs.record(number, state=JobState(state), ended_at=now))
    long_ago = jobs.failed(4, ended_at=now - timedelta(hours=30))
    jobs.store(clusters.cluster(), *records, long_ago)
    Collection.objects.update(collected_until=now)
    verdict(Job.objects.get(raw_id=5), at=now)
    recompute_dirty_hours(at=now)
    mark_dirty([hour_of(now)])
    recount_dirty_hours()

    home = page_text(client, shifter, "/")
    assert "3 of 4 jobs</a> did not complete · 75 % · 1 with a verdict" in home
    assert sorted(list_behind(client, shifter, home, "3 of 4 jobs")) == ["5", "6", "7"]
    assert sorted(list_behind(client, shifter, home, "Logs are being read")) == ["6", "7"]

    failures = page_text(client, shifter, "/failures/")
    assert "1 job</a> with a verdict" in failures
    assert list_behind(client, shifter, failures, "1 job") == ["5"]
    assert sorted(list_behind(client, shifter, failures, "2 jobs")) == ["6", "7"]


def test_chart_shows_all_jobs_that_did_not_complete(shifter, client):
    now = timezone.now()
    cancelled = jobs.record(7, state=JobState.CANCELLED, ended_at=now)
    jobs.store(clusters.cluster(), jobs.failed(5, ended_at=now), cancelled)
    recompute_dirty_hours(at=now)
    assert "most, 2, at" in failures_by_hour(user=shifter, at=now).svg


def test_home_and_failures_say_that_jobs_are_being_counted(client, shifter):
    ended_at = timezone.now() - timedelta(hours=2)
    jobs.store(clusters.cluster(), jobs.failed(5, ended_at=ended_at))
    Collection.objects.update(collected_until=timezone.now())
    for address in ("/", "/failures/"):
        text = page_text(client, shifter, address)
        assert "are being counted." in text
        assert "No job failed" not in text
        assert "No failures in this period" not in text

    recompute_dirty_hours(at=ended_at)
    for address in ("/", "/failures/"):
        assert "are being counted." not in page_text(client, shifter, address)


def test_the_last_24_hours_are_the_same_on_every_page(client, shifter):
    """They are the current hour and the 23 before it."""
    now = timezone.now()
    first_hour = hour_of(now) - timedelta(hours=23)
    before = first_hour - timedelta(minutes=1)
    jobs.store(
        clusters.cluster(),
        jobs.failed(5, ended_at=now),
        jobs.failed(6, ended_at=first_hour),
        jobs.failed(7, ended_at=before),
        jobs.record(8, ended_at=before),
    )
    Collection.objects.update(collected_until=now)
    recompute_dirty_hours(at=now)
    host = Job.objects.get(raw_id=5).host

    home = page_text(client, shifter, "/")
    job_list = page_text(client, shifter, "/jobs/")
    statistics = page_text(client, shifter, "/statistics/?period=24h")
    of_host = page_text(client, shifter, f"/hosts/{host}/?period=24h")

    assert "2 of 2 jobs" in home
    assert list_behind(client, shifter, job_list, "2 failed") == ["5", "6"]
    assert re.search(r"Finished\W+(<[^>]*>\s*)*2\b", job_list)
    assert "2 attempts of jobs" in statistics
    assert re.search(r"<span>Jobs<b><a [^>]*>2</a>", of_host)
