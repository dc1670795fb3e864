"""Pages of excluded hosts, and where other pages show them."""

import re
from datetime import timedelta

import pytest

from apps.clusters.models import Site
from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.domain.groups.blame import group_failures_of_broken_hosts
from apps.diagnosis.models import FailureGroup, KnownError, Verdict
from apps.hosts.domain.automatic import exclude_failing_hosts
from apps.hosts.domain.exclusions import end_exclusion, exclude_host
from apps.hosts.enums import EndKind
from apps.hosts.models import HostExclusion, MeasuredState, Probe, ProbeJob, ProbeResult
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.totals.rollups import mark_dirty, recompute_dirty_hours
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.enums import State
from apps.statusboard.models import Incident, Service, StateInterval
from tests.factories import statusboard
from tests.pages import count_queries, text_of

HOSTS = [f"wn-{number}" for number in range(20)]
LIST = "/excluded-hosts/"


@pytest.fixture(autouse=True)
def now(monkeypatch, at):
    monkeypatch.setattr("django.utils.timezone.now", lambda: at)


@pytest.fixture
def exclusion(alps, run_well, shifter, at):
    run_well(alps, HOSTS)
    return exclude_host(cluster=alps, host="wn-1", reason="Bad <b>disk</b>.", by=shifter, at=at)


def test_list_without_exclusions(browse, liaison):
    page = text_of(browse(liaison).get(LIST))
    assert "No excluded hosts" in page
    assert "No exclusion has ended yet" in page
    assert "Exclude host…" not in page


def test_list_starts_with_the_hosts_that_fail_most(
    exclusion, alps, break_host, browse, shifter, at
):
    break_host(alps, "wn-2", failures=6)
    break_host(alps, "wn-1", failures=3)
    mark_dirty([hour_of(at)])
    recompute_dirty_hours(at=at)

    page = text_of(browse(shifter).get(LIST))

    first = page.partition("Excluded now")[0]
    assert first.index(">wn-2</a>") < first.index(">wn-1</a>")
    assert "by the lower end of the rate’s 95 % interval" in first
    assert "all hosts: 13 % failed" in " ".join(first.split()), "bad hosts stand out against it"
    assert re.search(r"soft\">[\d.]+ % to [\d.]+ %</td>", first)
    assert 'href="/hosts/wn-2/"' in first
    assert "/excluded-hosts/new/?cluster=alps&amp;host=wn-2" in first
    assert f'<a href="{exclusion.get_absolute_url()}">excluded</a>' in first
    assert "wn-3" not in first
    assert "No finished job failed" in text_of(browse(shifter).get(f"{LIST}?cluster=other"))
    assert "last 7 days" in text_of(browse(shifter).get(f"{LIST}?period=7d"))


def test_outages_explain_failures_that_make_no_host_bad(
    alps, run_well, break_host, browse, shifter, at
):
    run_well(alps, HOSTS)
    for number in (3, 4, 5):
        break_host(alps, f"wn-{number}", failures=20, service="samweb")
    known_error = KnownError.objects.filter(service="samweb").first()
    Verdict.objects.update(cause=known_error.pk)
    break_host(alps, "wn-2", failures=6)
    samweb = statusboard.service("samweb", at - timedelta(days=3))
    outage = open_incident(
        service=samweb,
        state=State.DOWN,
        title="503",
        by=shifter,
        at=at,
        started_at=at - timedelta(minutes=30),
    )
    mark_dirty([hour_of(at)])
    recompute_dirty_hours(at=at)

    page = browse(shifter).get(LIST)
    hosts = page.context["failing_hosts"]
    assert [line["host"] for line in page.context["standing_out"]] == ["wn-2"]
    assert page.context["others"] == []
    assert (hosts.answer.all.failed, hosts.in_outages, hosts.beyond) == (66, 60, 6)
    shown = words_of(page)
    assert "60 of 66 failed jobs are left out: outages of their service explain them" in shown
    assert outage.get_absolute_url() in text_of(page)

    close_incident(incident=outage, by=shifter, at=at, reason="Restarted.")
    Incident.objects.update(started_at=at - timedelta(hours=9), ended_at=at - timedelta(hours=7))
    hosts = browse(shifter).get(LIST).context["failing_hosts"]
    assert (hosts.in_outages, hosts.beyond) == (0, 66), "the outage was over"


def test_everyone_sees_what_is_excluded_and_until_when(exclusion, browse, liaison, shifter):
    page = text_of(browse(liaison).get(LIST))
    assert 'Excluded now</h2><span class="count">1' in page
    assert "Bad &lt;b&gt;disk&lt;/b&gt;." in page
    assert str(shifter) in page
    assert "Exclude host…" not in page
    assert "Exclude host…" in text_of(browse(shifter).get(LIST))
    assert "No excluded hosts" in text_of(browse(liaison).get(f"{LIST}?cluster=other"))

    shown = text_of(browse(liaison).get(exclusion.get_absolute_url()))
    assert "New jobs of the portal do not run on wn-1" in shown
    assert "Return host" not in shown


def test_number_of_queries_does_not_grow_with_the_exclusions(exclusion, alps, client, shifter, at):
    client.force_login(shifter)
    end = {"ended_at": at, "ended_as": "returned", "ended_by": "shift-one"}
    for number in range(2, 9):
        exclude_host(cluster=alps, host=f"wn-{number}", reason="Rack.", by=shifter, at=at)
        if number == 2:
            HostExclusion.objects.filter(host="wn-2").update(**end)
            before = count_queries(client, LIST)
    HostExclusion.objects.filter(host__in=["wn-3", "wn-4"]).update(**end)
    assert count_queries(client, LIST) == before


def test_shifter_excludes_extends_and_returns(alps, run_well, browse, shifter, at):
    run_well(alps, HOSTS)
    client = browse(shifter)
    form = text_of(client.get(f"{LIST}new/?cluster=alps&host=wn-1"))
    assert 'value="wn-1"' in form
    assert 'value="alps" selected' in form

    values = {"cluster": "alps", "host": "wn-1", "expires_at": "2026-11-25T10:00", "reason": "Disk"}
    answer = client.post(f"{LIST}new/", values)
    exclusion = HostExclusion.objects.get()
    assert answer.url == exclusion.get_absolute_url()
    assert exclusion.expires_at > at + timedelta(days=4)

    extend = f"{exclusion.get_absolute_url()}extend/"
    assert client.post(extend, {"extend-expires_at": "2026-12-01T10:00"}).status_code == 302
    exclusion.refresh_from_db()
    assert exclusion.expires_at > at + timedelta(days=10)
    page = text_of(client.get(exclusion.get_absolute_url()))
    assert "wn-1 of alps gets no new jobs until Tue 1 Dec 10:00." in page

    back = f"{exclusion.get_absolute_url()}return/"
    assert client.post(back, {"return-reason": "New disk."}).status_code == 302
    exclusion.refresh_from_db()
    assert (exclusion.ended_as, exclusion.end_reason) == ("returned", "New disk.")
    page = text_of(client.get(exclusion.get_absolute_url()))
    assert "Returned by a person" in page
    assert "returned the host to new jobs" in page
    assert "Return host</h2>" not in page


def test_problems_are_shown_beside_their_fields(exclusion, browse, shifter):
    client = browse(shifter)
    values = {"cluster": "alps", "host": "wn-99", "expires_at": "2020-01-01T10:00", "reason": "x"}
    answer = client.post(f"{LIST}new/", values)
    assert answer.status_code == 400
    assert "alps has no host wn-99" in text_of(answer)
    assert "Choose a time in the future" in text_of(answer)

    address = exclusion.get_absolute_url()
    answer = client.post(f"{address}extend/", {"extend-expires_at": "2020-01-01T10:00"})
    assert answer.status_code == 400
    assert "Choose a time in the future" in text_of(answer)
    answer = client.post(f"{address}return/", {"return-reason": " "})
    assert answer.status_code == 400
    assert "is required: enter a value." in text_of(answer)


def test_second_return_says_that_it_has_ended(exclusion, browse, shifter):
    client = browse(shifter)
    address = f"{exclusion.get_absolute_url()}return/"
    client.post(address, {"return-reason": "New disk."})
    answer = client.post(address, {"return-reason": "New disk."}, follow=True)
    assert "has already ended" in text_of(answer)


@pytest.mark.parametrize("verb", ["extend", "return"])
def test_liaisons_change_nothing(exclusion, browse, liaison, verb):
    client = browse(liaison)
    assert client.post(f"{exclusion.get_absolute_url()}{verb}/").status_code == 403
    assert client.get(f"{LIST}new/").status_code == 403


def test_page_of_a_host_loads_its_exclusions(exclusion, browse, shifter, liaison, at):
    mark_dirty({hour_of(at)})
    recompute_dirty_hours(at=at)
    page = text_of(browse(shifter).get("/hosts/wn-1/"))
    assert 'hx-get="/excluded-hosts/of/wn-1/"' in page

    part = text_of(browse(shifter).get(f"{LIST}of/wn-1.example.org/", HTTP_HX_REQUEST="true"))
    assert "Extend it or return the host" in part
    assert "<html" not in part
    assert "Extend it" not in text_of(browse(liaison).get(f"{LIST}of/wn-1/"))

    other = text_of(browse(shifter).get(f"{LIST}of/wn-2/"))
    assert "Never excluded" in other
    assert "?cluster=alps&amp;host=wn-2" in other
    assert "Exclude from new jobs…" not in text_of(browse(liaison).get(f"{LIST}of/wn-2/"))


def test_status_board_names_the_clusters_with_excluded_hosts(
    exclusion, alps, browse, liaison, shifter, at
):
    page = text_of(browse(liaison).get("/services/"))
    assert re.search("Excluded from new jobs: <a [^>]*>1 host of alps</a>", page)
    exclude_host(cluster=alps, host="wn-2", reason="Rack.", by=shifter, at=at)
    assert "2 hosts of alps" in text_of(browse(liaison).get("/services/"))
    HostExclusion.objects.all().delete()
    assert "Excluded from new jobs" not in text_of(browse(liaison).get("/services/"))


@pytest.fixture
def broken_group(alps, run_well, break_host, at):
    """Return the counted failure group of a host on which all jobs fail, beside others."""
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad")
    [group] = group_failures_of_broken_hosts(at=at)
    recount_dirty_hours()
    return group


def test_failure_group_of_a_host_offers_its_exclusion(broken_group, browse, shifter, at):
    group = broken_group
    client = browse(shifter)
    address = f"/excluded-hosts/new/?cluster=alps&amp;host=wn-bad&amp;group={group.pk}"
    assert address in text_of(client.get(group.get_absolute_url()))
    for page in (client.get("/failures/"), client.get("/")):
        assert "Drain the host, then retry elsewhere" in text_of(page)

    values = {
        "cluster": "alps",
        "host": "wn-bad",
        "expires_at": "2026-11-25T10:00",
        "reason": "Black hole.",
        "group": group.pk,
    }
    client.post(f"{LIST}new/", values)
    exclusion = HostExclusion.objects.get()
    assert (exclusion.group, exclusion.failed_jobs, exclusion.automatic) == (group, 6, False)
    page = text_of(client.get(group.get_absolute_url()))
    assert f'href="{exclusion.get_absolute_url()}">Excluded from new jobs' in page
    assert address not in page
    assert "Excluded from new jobs; retry elsewhere" in text_of(client.get("/failures/"))
    for page in (client.get("/failures/"), client.get("/")):
        assert "Drain the host, then retry elsewhere" not in text_of(page)

    end_exclusion(exclusion, EndKind.RETURNED, by=shifter, at=at, reason="Repaired.")
    returned = "The host was excluded and has returned; no failure since"
    assert returned in text_of(client.get("/failures/"))
    FailureGroup.objects.update(last_seen_at=at + timedelta(minutes=5))
    page = text_of(client.get("/failures/"))
    assert returned not in page
    assert "Drain the host, then retry elsewhere" in page


def test_host_where_jobs_complete_again_need_not_be_drained(
    broken_group, alps, run_well, browse, shifter, at
):
    group = broken_group
    client = browse(shifter)
    works = "Jobs complete there again; retry"
    later = at + timedelta(minutes=10)
    run_well(alps, ["wn-bad.example.org"], jobs_each=2, ended_at=later, ran=timedelta(minutes=5))
    run_well(alps, ["wn-bad.example.org"], ended_at=later, ran=timedelta(hours=1))
    assert works not in text_of(client.get("/failures/")), "too few started after the failure"
    recompute_dirty_hours(at=later)
    hint = 'jobs complete there again <a href="/excluded-hosts/new/?cluster=alps&amp;host=wn-bad"'
    assert "complete there again" not in text_of(client.get(LIST))
    run_well(alps, ["wn-bad.example.org"], jobs_each=1, ended_at=later, ran=timedelta(minutes=5))
    assert hint in text_of(client.get(LIST))
    assert works in text_of(client.get("/failures/"))
    for address in ("/failures/", "/"):
        assert "Drain the host, then retry elsewhere" not in text_of(client.get(address))
    page = text_of(client.get(group.get_absolute_url()))
    assert "jobs complete there again; retry." in page
    assert "Exclude from new jobs…" not in page


def test_exclusion_by_the_portal_shows_its_evidence(
    alps, run_well, break_host, browse, liaison, at
):
    run_well(alps, HOSTS)
    break_host(alps, "wn-bad")
    [group] = group_failures_of_broken_hosts(at=at)
    exclude_failing_hosts(at=at)
    page = text_of(browse(liaison).get(HostExclusion.objects.get().get_absolute_url()))
    assert "6 jobs failed</a> of 6 that ended" in page
    assert f"F-{group.pk}" in page
    assert "By the portal" in page


def test_central_cause_is_shown(alps, run_well, break_host, browse, liaison, at):
    run_well(alps, HOSTS)
    for number in range(5):
        break_host(alps, f"bad-{number}")
    exclude_failing_hosts(at=at)
    page = text_of(browse(liaison).get(LIST))
    assert "Central cause on alps: nearly every job fails on 5 of 25 hosts" in page


def words_of(response):
    """Return the text of a page without its tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", text_of(response)).split())


@pytest.fixture
def measured(alps, at):
    """Two hosts of CNAF: on one of them CVMFS, which is reported as up, is bad."""
    alps.site = Site.objects.create(name="CNAF")
    alps.save()
    service = Service.objects.create(slug="cvmfs", name="CVMFS")
    StateInterval.objects.create(service=service, state="up", started_at=at, cause="feed")
    probe = Probe.objects.get(name="cvmfs")
    probe.service = service
    probe.active = True
    probe.save()
    for host, message in (("wn-1", "no <b>mount</b>"), ("wn-2", "")):
        MeasuredState.objects.create(
            cluster=alps,
            host=host,
            probe=probe,
            good=not message,
            message=message,
            measured_at=at - timedelta(minutes=5),
            since=at - timedelta(hours=2),
        )
    return probe


def test_matrix_links_each_number_to_its_hosts(measured, browse, liaison):
    client = browse(liaison)
    page = words_of(client.get("/probes/"))
    assert "CVMFS up" in page
    assert "CNAF 1 of 2" in page
    assert "wn-1" in page
    assert "wn-2" not in page  # bad hosts alone
    link = "?site=CNAF&amp;probe=cvmfs"
    assert link in client.get("/probes/").content.decode()
    page = words_of(client.get("/probes/", {"site": "CNAF", "probe": "cvmfs"}))
    assert "Hosts of CNAF by cvmfs 2" in page
    assert "wn-2" in page
    assert "Nothing was measured there" in words_of(client.get("/probes/", {"site": "else"}))
    assert "<b>mount" not in client.get("/probes/").content.decode()


def test_bad_probe_is_one_line_with_its_hosts(measured, alps, browse, liaison, at):
    scratch = Probe.objects.get(name="scratch")
    for number in range(30, 60):
        MeasuredState.objects.create(
            cluster=alps,
            host=f"wn-{number}",
            probe=scratch,
            good=False,
            message="disk full" if number > 30 else "read-only",
            measured_at=at - timedelta(minutes=5),
            since=at - timedelta(hours=90 - number),
        )
    client = browse(liaison)
    page = words_of(client.get("/probes/"))
    bad = page[page.index("Bad now") :]
    assert bad.startswith("Bad now 2 probes")
    assert bad.index("scratch bad disk full 30 hosts wn-59") < bad.index("cvmfs CVMFS bad")
    assert bad.count("disk full") == 1
    assert "wn-40 alps 10 more" in bad
    assert "wn-39" not in bad
    page = words_of(client.get("/probes/", {"probe": "scratch"}))
    assert "Hosts by scratch 30" in page
    assert "wn-39" in page
    assert "wn-30" in page


def test_page_of_probes_says_when_none_is_active_and_none_is_bad(alps, browse, admin, liaison):
    page = words_of(browse(liaison).get("/probes/"))
    assert "No probe is active" in page
    assert "Nothing measured yet" in page
    assert "No probe is bad on any host" in page
    assert "Edit probes" not in page
    assert "Edit probes" in words_of(browse(admin).get("/probes/"))


def test_status_board_and_host_show_what_was_measured(measured, alps, run_well, browse, liaison):
    client = browse(liaison)
    assert 'hx-get="/probes/"' in client.get("/services/").content.decode()
    card = client.get("/probes/", headers={"hx-request": "true"}).content.decode()
    assert "<html" not in card
    assert 'id="measured"' in card
    assert "cvmfs alps" in words_of(client.get("/excluded-hosts/of/wn-1/"))
    MeasuredState.objects.all().delete()
    assert "/probes/" not in words_of(client.get("/services/"))
    assert 'hx-get="/probes/"' not in client.get("/services/").content.decode()


def test_exclusion_shows_its_probe_jobs_and_how_many_are_missing(
    exclusion, measured, browse, liaison, at
):
    job = ProbeJob(
        cluster=exclusion.cluster,
        host="wn-1",
        asked=["cvmfs"],
        exclusion=exclusion,
        planned_at=at,
        due_at=at,
        name="opsportal-probe-1",
        ended_at=at,
    )
    job.state = "ended"
    job.good = False
    job.save()
    ProbeResult.objects.create(
        job=job, probe=measured, good=False, message="no mount", measured_at=at
    )
    client = browse(liaison)
    page = words_of(client.get(exclusion.get_absolute_url()))
    assert "people return this host, whatever they measure" in page
    assert "cvmfs : no mount" in page
    exclusion.automatic = True
    exclusion.save()
    ProbeJob.objects.create(
        cluster=exclusion.cluster,
        host="wn-1",
        asked=["cvmfs"],
        exclusion=exclusion,
        planned_at=at + timedelta(minutes=5),
        due_at=at,
        name="opsportal-probe-2",
        state="lost",
        good=False,
        ended_at=at,
    )
    page = words_of(client.get(exclusion.get_absolute_url()))
    assert "0 of 3 good in a row return the host" in page
    assert "Did not report in time" in page


def test_queries_of_probe_pages_do_not_grow(measured, exclusion, alps, client, shifter, at):
    def queries():
        client.force_login(shifter)
        counts = []
        for path in ("/probes/", "/probes/?site=CNAF", exclusion.get_absolute_url()):
            counts.append(count_queries(client, path))
        return counts

    before = queries()
    for number in range(20):
        MeasuredState.objects.create(
            cluster=alps,
            host=f"wn-{number + 100}",
            probe=measured,
            good=False,
            measured_at=at,
            since=at,
        )
        job = ProbeJob.objects.create(
            cluster=alps,
            host=f"wn-{number}",
            asked=["cvmfs"],
            exclusion=exclusion,
            planned_at=at,
            due_at=at,
            name=f"opsportal-probe-{number}",
            state="ended",
            good=True,
            ended_at=at,
        )
        ProbeResult.objects.create(job=job, probe=measured, good=True, measured_at=at)
    after = queries()
    # The first probe jobs of an exclusion cost their results and the probes of these.
    assert after[:2] == before[:2]
    assert after[2] <= before[2] + 2


def test_many_exclusions_are_reached_by_cluster(
    exclusion, alps, browse, liaison, shifter, at, monkeypatch
):
    exclude_host(cluster=alps, host="wn-2", reason="Bad fan.", by=shifter, at=at)
    monkeypatch.setattr("apps.hosts.web.views.MOST_OPEN", 1)
    page = words_of(browse(liaison).get(LIST))
    assert "By cluster: alps (2)" in page
    assert "By cluster" not in words_of(browse(liaison).get(LIST, {"cluster": "alps"}))
