"""Lines that no successful job of the stage writes: templates, samples, evidence,
and marks in the log.
"""

import pytest
from django.urls import reverse

from apps.diagnosis.domain.causes.totals import recount_dirty_hours
from apps.diagnosis.domain.groups.example_log import list_example_lines
from apps.diagnosis.domain.reading.pattern_preview import preview_pattern
from apps.diagnosis.domain.reading.success_samples import baseline_for, sample_successes
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.domain.verdicts.quotes import quote_evidence
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.novelty import Templates, baseline_of, novel_lines, sample_of
from apps.diagnosis.models import FailureGroup, LogExcerpt, LogHarvest, SuccessSample, Verdict

GOOD = (
    "2026-11-20 11:0{0}:12 INFO reco: event {0}\nopen /pnfs/nova/raw/r{0}.root on "
    "wn-030{0}\nclosed, status 0\n"
)
BAD = GOOD.format(7) + "flux capacitor <b>not aligned</b>, gave up\nflux capacitor table 3 dumped\n"


def block(text):
    return Block(text.encode(), 0, len(text), 1)


def test_templates_leave_out_what_varies():
    hash_of = Templates().hash_of
    assert hash_of(b"at 12:03 open /a/b/c1.root 0xff 3.5e-7 wn-0306") == hash_of(
        b"at 1:59 open /x/y 0x0 12 wn-7"
    )
    assert hash_of(b"event 1") != hash_of(b"events 1")
    assert hash_of(b" 12 -- / ") == 0


def test_novel_lines_name_errors_first_and_count_in_the_log():
    baseline = baseline_of("reco", [sample_of([block(GOOD.format(n))]) for n in range(6)])
    text = BAD + "Cannot align\n" + "flux capacitor table 4 dumped\n"
    found = novel_lines(block(text), baseline, most=9)
    assert [(line.text, line.times) for line in found] == [
        ("Cannot align", 1),
        ("flux capacitor table 3 dumped", 2),
        ("flux capacitor <b>not aligned</b>, gave up", 1),
    ]
    assert all(text.encode()[line.offset :].startswith(line.text.encode()) for line in found)
    assert baseline_of("reco", [sample_of([block("a b\n")])] * 4) is None


@pytest.fixture
def successes(make_job, at):
    for number in range(8):
        make_job(number, state="completed", exit_code=0, stage="reco", log=GOOD.format(number))


def test_samples_are_taken_few_at_a_time_bounded_and_once(
    successes, make_job, at, monkeypatch, nova
):
    make_job(90, state="completed", exit_code=0, stage="reco")  # its log is gone
    monkeypatch.setattr("apps.diagnosis.domain.reading.success_samples.LOGS", 7)
    assert sample_successes(at=at) == 4
    assert sample_successes(at=at) == 4
    assert sample_successes(at=at) == 0
    assert SuccessSample.objects.count() == LogExcerpt.objects.count() == 7
    assert baseline_for(make_job(91, stage="reco")).logs == 7
    assert baseline_for(make_job(92, stage="reco", release="v2")).logs == 7
    assert baseline_for(make_job(93, stage="merge")) is None


def test_novel_lines_are_evidence_where_no_known_error_matched(
    client, successes, make_job, at, shifter
):
    for _ in range(2):
        sample_successes(at=at)
    job = make_job(20, stage="reco", log=BAD)
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
    verdict = Verdict.objects.get(job=job)
    novel = [reason for reason in verdict.reasons if reason["kind"] == "novel"]
    assert verdict.verdict == "unknown"
    assert novel[0]["text"].startswith(
        "Novel line, in 0 of 8 successful logs of reco: flux capacitor table"
    )
    client.force_login(shifter)
    html = client.get(reverse("diagnosis:log", args=[job.pk])).content.decode()
    assert html.count("<i>novel</i>") == 2
    assert "In 0 of 8 successful logs of reco." in html
    assert "Novel line" in client.get(reverse("diagnosis:verdict", args=[job.pk])).content.decode()
    preview = preview_pattern(regex="closed, status", experiment="", user=shifter)
    assert (preview.successful.matched, preview.successful.searched) == (8, 8)


def test_an_unexplained_group_is_titled_by_its_novel_line_not_by_the_exit_status_below(
    client, successes, make_job, at, shifter
):
    for _ in range(2):
        sample_successes(at=at)
    spill = "beam spill table has a hole after spill {}; stop\n"
    for number in (20, 21):
        log = GOOD.format(7) + spill.format(number) + "job script exit status 3: it failed\n"
        job = make_job(number, stage="reco", exit_code=3, log=log)
        queue_harvests(job_pks=[job.pk], at=at)
        harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)

    verdicts = Verdict.objects.order_by("job__raw_id")

    assert {(verdict.verdict, verdict.cause) for verdict in verdicts} == {("unknown", "")}
    assert (
        FailureGroup.objects.get().title
        == "Unexplained: beam spill table has a hole after spill <n>; stop"
    )
    novel = [reason["text"] for reason in verdicts[0].reasons if reason["kind"] == "novel"]
    assert [spill.format(20).strip() in novel[0], "exit status" in novel[1]] == [True, True]
    lines = list_example_lines(verdicts[0])
    assert [(line.number, line.text, line.role) for line in lines] == [
        (4, spill.format(20).strip(), ""),
        (5, "job script exit status 3: it failed", "consequence"),
    ]
    quotes = quote_evidence(verdicts[0].job, verdicts[0])
    assert [quote.line.text for quote in quotes.further] == [spill.format(20).strip()]
    recount_dirty_hours()
    client.force_login(shifter)
    html = client.get(FailureGroup.objects.get().get_absolute_url()).content.decode()
    assert "beam spill table" in html.partition('id="log"')[2].partition("</section>")[0]


def test_error_that_successful_jobs_write_too_did_not_matter(successes, make_job, at):
    for number in range(30, 36):
        log = "WARNING: 32 hits outside the window, ignored\n" + GOOD.format(number)
        make_job(number, state="completed", exit_code=0, stage="gen", log=log)
    for _ in range(4):
        sample_successes(at=at)
    log = "WARNING: 17 hits outside the window, ignored\n[FATAL] Auth failed\n"
    job = make_job(40, stage="gen", log=log)
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
    quotes = quote_evidence(job, Verdict.objects.get(job=job))
    assert quotes.decides.line.text == "[FATAL] Auth failed"
    assert [quote.line.text for quote in quotes.ignored] == [
        "WARNING: 17 hits outside the window, ignored"
    ]
    assert quotes.ignored[0].note == "It is in 6 of 6 successful logs of gen."
