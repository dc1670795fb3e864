"""Windows into a log: from the kept excerpt where it reaches, from the file where it does not."""

import pytest

from apps.diagnosis.domain.reading.log_windows import log_view
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.enums import Stream
from apps.diagnosis.models import LogExcerpt, LogHarvest

LINES = [f"line {n} " + "x" * 90 for n in range(1, 3001)]


@pytest.fixture
def read(make_job, at):
    """Make a job with this log, harvested."""

    def make(log: str, number: int = 1, **fields):
        job = make_job(number, log=log, **fields)
        queue_harvests(job_pks=[job.pk], at=at)
        harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
        return job

    return make


def texts(view):
    return [shown.line.text for shown in view.lines]


@pytest.mark.parametrize("count", [10, 50, 500])
def test_last_lines_have_their_numbers(read, count):
    view = log_view(read("\n".join(LINES) + "\n"), lines=count)
    assert texts(view) == LINES[-count:]
    assert [shown.line.number for shown in view.lines] == list(range(3001 - count, 3001))


def test_last_lines_come_from_the_excerpt_when_the_log_is_gone(read, roots):
    job = read("\n".join(LINES) + "\n")
    (roots / "1.out").unlink()
    assert texts(log_view(job, lines=500)) == LINES[-500:]
    gone = log_view(job, lines=50, before=0 + len("\n".join(LINES[:1000])) + 1)
    assert "no such file" in gone.problem
    assert (gone.lines, gone.earlier) == ((), None)


def test_earlier_lines_of_a_log_that_is_gone_end_with_the_reason(client, shifter, read, roots):
    job = read("\n".join(LINES) + "\n")
    (roots / "1.out").unlink()
    client.force_login(shifter)
    before = LogExcerpt.objects.get().first_offset
    address = f"/jobs/{job.pk}/log/?lines=50&before={before}"
    html = client.get(address, headers={"HX-Request": "true"}).content.decode()
    assert "no such file. Showing the stored excerpt." in html
    assert "Show earlier lines" not in html


def test_earlier_lines_lead_to_the_start_of_the_log(read):
    view = log_view(read("\n".join(LINES) + "\n"), lines=500)
    seen = texts(view)
    while view.earlier is not None:
        view = log_view(view.job, lines=500, before=view.earlier)
        seen = texts(view) + seen
    assert seen == LINES


def test_lines_around_a_place_are_found_far_from_the_end(read):
    log = "\n".join([*LINES[:20], "[FATAL] Auth failed", *LINES[20:]]) + "\n"
    view = log_view(read(log), lines=10, offset=log.index("[FATAL]"))
    assert "[FATAL] Auth failed" in texts(view)
    assert len(view.lines) in (10, 11)
    assert [shown.line.number for shown in view.lines][5] == 21


def test_known_errors_are_marked_and_noise_is_not(read):
    view = log_view(read("TLS: Unable to create TLS context\n[FATAL] Auth failed\nfine\n"))
    assert [(shown.role, shown.pattern) for shown in view.lines] == [
        (None, ""),
        ("cause", "XRD-AUTH"),
        (None, ""),
    ]


def test_short_log_is_whole_and_has_nothing_earlier(read):
    view = log_view(read("one\ntwo"))
    assert (texts(view), view.earlier, view.size_bytes) == (["one", "two"], None, 7)


def test_empty_log_is_empty(read):
    view = log_view(read(""))
    assert (view.lines, view.problem, view.size_bytes) == ((), "", 0)


@pytest.mark.parametrize(
    "query", [{"before": 10**15}, {"offset": 10**15}, {"before": 0}, {"offset": 0}, {"before": 3}]
)
def test_places_that_make_no_sense_do_no_harm(read, query):
    log_view(read("one\ntwo\n"), **query)


def test_stream_with_the_cause_is_shown_first(read):
    job = read("[FATAL] Auth failed\n", error_log="fine\n")
    assert log_view(job).stream is Stream.STDOUT
    assert log_view(job, stream=Stream.STDERR).lines[0].line.text == "fine"
    other = read("fine\n", 2, error_log="fine too\n")
    assert log_view(other).stream is Stream.STDERR


def test_job_that_never_ran_has_no_log_to_look_for(make_job):
    assert log_view(make_job(started_at=None)).problem == "The job never ran, so it wrote no log."


def test_path_outside_of_the_roots_is_not_read(make_job):
    view = log_view(make_job(log_path="/etc/passwd"))
    assert view.lines == ()
    assert "outside the allowed log directories" in view.problem
