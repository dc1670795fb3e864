"""Where else a line of a log was written: by which jobs, since when, and what they share."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.urls import reverse

from apps.accounts.models import User
from apps.core.models import Event
from apps.diagnosis.domain.groups.where_else import hash_line
from apps.jobs.models import DirtyHour, Job
from apps.search.domain.line_totals import recount_dirty_hours
from apps.search.domain.new_lines import announce_spread, new_lines
from apps.search.domain.where_else import compare, count_occurrences, newest_jobs
from apps.search.models import LineTemplate
from tests.diagnosis.conftest import BAD, START, read_all
from tests.factories.people import experiment, liaison_of, shifter

pytestmark = pytest.mark.django_db


def find(user: User, at, line: str = "flux capacitor <b>3</b> cannot align", **more):
    return count_occurrences(hash_line(line), user=user, since=at - timedelta(days=30), **more)


def test_counts_failed_and_good_jobs_of_the_same_stages_and_days(jobs, at):
    user = shifter()
    occurrences = find(user, at)
    assert (
        occurrences.failed,
        occurrences.failed_of,
        occurrences.completed,
        occurrences.completed_of,
    ) == (
        6,
        8,
        0,
        8,
    )
    assert occurrences.comes_with_failure
    assert occurrences.stages == ["reco"]

    usual = find(user, at, START.replace("{n}", "7"))
    assert (usual.failed, usual.completed) == (8, 8)
    assert not usual.comes_with_failure
    assert not find(user, at, "no job wrote this").hours
    assert not find(user, at, stages=["simulation"]).hours


def test_nobody_learns_of_lines_of_another_experiment(jobs, at, client):
    dune = liaison_of(experiment("DUNE"))
    assert not find(dune, at).hours
    assert not find(dune, at).templates
    assert find(dune, at).first_seen is None
    assert new_lines(user=dune, since=at - timedelta(days=1)) == []

    client.force_login(dune)
    page = client.get(
        reverse("diagnosis:where-else"), {"line": "flux capacitor <b>3</b> cannot align"}
    )
    assert "No job of the last" in page.content.decode()
    assert "cannot align" not in page.content.decode().replace("3&lt;/b&gt; cannot align", "")


def test_newest_jobs_come_in_pages_and_by_outcome(jobs, at):
    occurrences = find(shifter(), at, START.replace("{n}", "7"))
    everything = newest_jobs(occurrences, limit=100)
    assert everything == [(job.ended_at, job.pk) for job in reversed(jobs)]
    assert newest_jobs(occurrences, limit=100, failed=True) == everything[8:]
    assert newest_jobs(occurrences, limit=100, failed=False) == everything[:8]

    paged: list[tuple[datetime, int]] = []
    before = None
    while page := newest_jobs(occurrences, limit=3, before=before):
        paged += page
        before = page[-1]
    assert paged == everything


def test_comparison_finds_the_site_where_the_line_is(jobs, at):
    user = shifter()
    comparison = compare(find(user, at), user=user)
    assert (comparison.jobs, comparison.alike) == (6, 8)
    [site] = [trait for trait in comparison.traits if trait.attribute == "site"]
    assert (site.value, site.jobs, site.expected) == ("FNAL", 5, pytest.approx(5 / 8))
    assert site.low < site.lift < site.high


def test_page_shows_the_line_its_jobs_and_what_is_common(jobs, at, client):
    client.force_login(shifter())
    url = reverse("diagnosis:where-else")
    with time_machine.travel(at + timedelta(minutes=5), tick=False):
        text = client.get(url, {"line": "flux capacitor <b>3</b> cannot align"}).content.decode()
    assert "This line comes with failure." in text
    assert "flux capacitor &lt;b&gt;*&lt;/b&gt; cannot align" in text
    assert "flux capacitor &lt;b&gt;17&lt;/b&gt; cannot align" in text
    assert text.count('class="cause"') == 6
    assert "<b>17" not in text

    offset = (START + "flux").index("flux") - len("{n}") * 3 + 3
    line_url = reverse("diagnosis:line", args=[jobs[0].pk])
    address = client.get(line_url, {"stream": "stdout", "at": offset}).headers["location"]
    assert f"template={hash_line('flux capacitor <b>3</b> cannot align'):016x}" in address
    gone = client.get(line_url, {"stream": "stderr", "at": 5}, follow=True)
    assert "This part of the log is not kept." in gone.content.decode()


def test_new_lines_of_two_sites_come_first(jobs, at):
    user = shifter()
    lines = new_lines(user=user, since=at - timedelta(days=1))
    assert lines[0].template.text == "flux capacitor <b>*</b> cannot align"
    assert lines[0].spread_at is not None
    assert lines[0].experiments == ["NOVA"]
    texts = {line.template.text for line in lines}
    usual = LineTemplate.objects.get(text__contains="INFO").text
    assert usual not in texts
    with_completed = new_lines(user=user, since=at - timedelta(days=1), in_completed_jobs=True)
    assert usual in {line.template.text for line in with_completed}


def test_new_lines_without_a_word_of_an_error_are_shown_on_demand(jobs, at, client):
    client.force_login(shifter())
    LineTemplate.objects.update(spread_at=None, names_error=False)
    LineTemplate.objects.filter(text__contains="flux").update(names_error=True)
    hidden = LineTemplate.objects.filter(names_error=False)
    with time_machine.travel(at + timedelta(minutes=5), tick=False):
        page = client.get(reverse("diagnosis:new-lines"), {"good": "yes"})
        everything = client.get(reverse("diagnosis:new-lines"), {"good": "yes", "all": "yes"})
    assert [line.template.names_error for line in page.context["page"]] == [True]
    assert page.context["others"] == len({row.hash for row in hidden}) > 0
    assert f"Show {page.context['others']} without one" in page.content.decode()
    assert len(everything.context["page"].object_list) == 1 + page.context["others"]


def test_spread_lines_are_announced_once_for_each_experiment(jobs, at):
    assert announce_spread(at=at + timedelta(hours=1)) == 0  # everything is new
    LineTemplate.objects.filter(names_error=False).update(first_seen_at=at - timedelta(days=8))
    assert announce_spread(at=at) == 0  # completed jobs may have the line too
    assert announce_spread(at=at + timedelta(hours=1)) == 1
    assert announce_spread(at=at + timedelta(hours=1)) == 0
    event = Event.objects.get(kind="line.spread")
    assert event.data == {"lines": 1, "jobs": 6}
    template = LineTemplate.objects.get(pk=event.target_id)
    assert template.text == "flux capacitor <b>*</b> cannot align"


def test_link_of_a_notification_is_for_those_who_see_the_line(jobs, at, client, nova):
    template = LineTemplate.objects.get(names_error=True)
    address = reverse("diagnosis:template", args=[template.pk])
    client.force_login(liaison_of(nova))
    assert "template=" in client.get(address).headers["location"]
    client.force_login(liaison_of(experiment("DUNE")))
    assert client.get(address).status_code == 404


def test_a_stage_filters_counts_jobs_and_comparison(jobs, make_job, at):
    log = BAD.replace("{n}", "5")
    others = [make_job(100 + n, stage="simulation", log=log) for n in range(4)]
    read_all(others, at)
    user = shifter()
    assert find(user, at).failed == 10

    simulation = find(user, at, stages=["simulation"])
    assert simulation.failed == simulation.failed_of == 4
    assert {key for _, key in newest_jobs(simulation, limit=100)} == {job.pk for job in others}
    comparison = compare(simulation, user=user)
    assert (comparison.jobs, comparison.alike) == (4, 4)


def test_shares_are_of_the_jobs_of_the_period(jobs, make_job, at):
    earlier = at - timedelta(hours=6)
    early = make_job(50, stage="reco", log=START.replace("{n}", "1"))
    Job.objects.filter(pk=early.pk).update(ended_at=earlier)
    early.refresh_from_db()
    read_all([early], at)
    user = shifter()
    line = "flux capacitor <b>3</b> cannot align"
    day = count_occurrences(hash_line(line), user=user, since=at - timedelta(days=1))
    assert day.failed_of == 9
    hour = count_occurrences(hash_line(line), user=user, since=at - timedelta(hours=1))
    assert (hour.failed, hour.failed_of) == (6, 8)


def test_next_page_starts_where_the_last_ended_in_summer_too(
    jobs, at, client, monkeypatch, settings
):
    settings.TIME_ZONE = "Europe/Berlin"
    monkeypatch.setattr("apps.diagnosis.domain.groups.where_else.PAGE_SIZE", 4)
    summer = datetime(2026, 7, 1, 10, 30, tzinfo=UTC)
    Job.objects.update(ended_at=summer)
    DirtyHour.objects.create(hour=summer.replace(minute=0), counts="lines")
    DirtyHour.objects.create(hour=at, counts="lines")
    recount_dirty_hours()
    client.force_login(shifter())
    url = reverse("diagnosis:where-else")
    shown = []
    with time_machine.travel(summer + timedelta(hours=1), tick=False):
        query = {"line": "flux capacitor <b>3</b> cannot align"}
        for _ in range(2):
            page = client.get(url, query)
            shown += [hit.job.pk for hit in page.context["hits"]]
            query["before"] = page.context["more"]
    assert shown == [job.pk for job in reversed(jobs[:6])]
    assert query["before"] == ""


def test_line_of_cancelled_jobs_alone_is_said_to_be_one(make_job, at, client):
    job = make_job(1, stage="reco", state="cancelled", log="slurmstepd: CANCELLED\n")
    read_all([job], at)
    client.force_login(shifter())
    with time_machine.travel(at + timedelta(minutes=5), tick=False):
        page = client.get(reverse("diagnosis:where-else"), {"line": "slurmstepd: CANCELLED"})
    assert "Only cancelled jobs have this line." in page.content.decode()
