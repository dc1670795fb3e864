"""Lines of services' logs between those of a job, and the times of lines."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.models import User
from apps.diagnosis.domain.log_page.page import PageQuery, log_page
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.engine.formats.line_times import local_offset, times_in
from apps.diagnosis.models import LogHarvest
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.domain.incidents.notes import add_log
from apps.statusboard.enums import State
from tests.factories.statusboard import service

MINUTE = timedelta(minutes=1)
NEAR = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (b"2026-11-22 09:11:40 x", "2026-11-22T09:11:40"),
        (b"[2026-11-22T09:11:40.123Z] x", "2026-11-22T09:11:40+00:00"),
        (b"INFO 2026/11/22 09:11:40,5 +0100 x", "2026-11-22T08:11:40+00:00"),
        (b"%MSG-e x:  23-Nov-2026 09:11:40 UTC run: 1", "2026-11-23T09:11:40+00:00"),
        (b'1.2.3.4 - - [22/Nov/2026:09:11:40 -0600] "GET', "2026-11-22T15:11:40+00:00"),
        (b"Dec 31 23:59:59 host x", "2025-12-31T23:59:59"),
        (b"260102 03:04:05 12 XrdSched", "2026-01-02T03:04:05"),
        (b"2026-02-31 09:11:40 x", None),
        (b"took 09:11:40", None),
        (b"at 2026-13-45 99:99:99", None),
    ],
)
def test_times_of_lines(line, at):
    found = list(times_in(b"no time\n" + line + b"\nno time\n", 100, near=NEAR))
    assert [(time.offset, time.at.isoformat()) for time in found] == (
        [] if at is None else [(108, at)]
    )


@given(
    ahead=st.integers(-28, 28).map(lambda half: half * 30 * MINUTE),
    first=st.integers(0, 28).map(lambda minutes: minutes * MINUTE),
    length=st.integers(0, 600).map(lambda minutes: minutes * MINUTE),
)
def test_clock_of_a_log_is_found_from_its_first_time(ahead, first, length):
    start, end = NEAR, NEAR + first + length
    times = [(moment + ahead).replace(tzinfo=None) for moment in (start + first, end)]
    assert local_offset(times, start, end) == ahead


def test_clock_that_fits_no_zone_is_unknown():
    assert local_offset([], NEAR, NEAR + MINUTE) is None
    clock = NEAR.replace(tzinfo=None)
    assert local_offset([clock, clock + timedelta(days=3)], NEAR, NEAR + MINUTE) is None
    assert local_offset([clock - timedelta(days=9)], NEAR, NEAR + MINUTE) is None


@pytest.fixture
def job(make_job, at):
    """A job of an hour whose node is six hours behind UTC."""
    clock = [
        (at + minutes * MINUTE - timedelta(hours=6)).strftime("%Y-%m-%d %H:%M:%S")
        for minutes in (-60, -30, -1)
    ]
    log = f"{clock[0]} start\nno time\n{clock[1]} open\n{clock[2]} FATAL: no answer\n"
    job = make_job(1, log=log, started_at=at - 60 * MINUTE)
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
    return job


@pytest.fixture
def incident(at, shifter):
    samweb = service("samweb", at - timedelta(days=30))
    row = open_incident(
        service=samweb,
        state=State.DOWN,
        title="503",
        by=shifter,
        at=at,
        started_at=at - 40 * MINUTE,
    )
    return close_incident(
        incident=row, by=shifter, at=at, ended_at=at - 10 * MINUTE, reason="It answers."
    )


def shown(job, **query):
    page = log_page(job, user=User(pk=1), stream=None, query=PageQuery(**query))
    return [
        row.text
        if row.kind == "service"
        else "".join(piece.text for piece in row.pieces)[20:] or "no time"
        for section in page.sections
        for row in section.rows
    ]


def stamp(at):
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_lines_of_services_stand_between_those_of_the_job_by_time(job, incident, at, shifter):
    text = (
        "said before any time\n"
        f"{stamp(at - 90 * MINUTE)} too early\n"
        f"{stamp(at - 20 * MINUTE)} all workers busy\n  and more of it\n"
        f"{stamp(at - 45 * MINUTE)} proxy error\n"
        f"{stamp(at)} too late to be before a line\n"
        f"{stamp(at + MINUTE)} after the job\n"
    )
    add_log(incident=incident, text=text, by=shifter, at=at, origin="samweb-02")
    rows = [row.split("Z ")[-1] for row in shown(job)]
    assert rows == [
        "start",
        "no time",
        "proxy error",
        "open",
        "all workers busy",
        "  and more of it",
        "FATAL: no answer",
        "too late to be before a line",
    ]
    filtered = log_page(job, user=User(pk=1), stream=None, query=PageQuery(level="error"))
    assert [row.kind for section in filtered.sections for row in section.rows] == ["fold", "line"]


def test_other_incidents_and_notes_say_nothing(job, incident, at, shifter):
    add_log(incident=incident, text="no time at all", by=shifter, at=at)
    later = open_incident(
        service=incident.service,
        state=State.DOWN,
        title="again",
        by=shifter,
        at=at + MINUTE,
        started_at=at + MINUTE,
    )
    add_log(
        incident=later, text=f"{stamp(at - 20 * MINUTE)} of another incident", by=shifter, at=at
    )
    assert len(shown(job)) == 4


def test_page_escapes_them_and_links_to_the_incident(client, job, incident, at, shifter):
    add_log(
        incident=incident,
        text=f"{stamp(at - 20 * MINUTE)} <script>x</script>",
        by=shifter,
        at=at,
        origin="samweb-02",
    )
    client.force_login(shifter)
    html = client.get(f"/jobs/{job.pk}/log/").content.decode()
    assert "&lt;script&gt;x" in html
    assert "<script>x" not in html
    assert f'href="/services/incidents/{incident.pk}/"' in html
    assert f"Log of samweb-02, kept with incident {incident.pk}" in html
