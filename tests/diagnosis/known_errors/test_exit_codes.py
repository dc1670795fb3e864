"""What exit codes mean: the shipped table, the most specific meaning, evidence,
and where it is shown.
"""

import pytest
from django.urls import reverse

from apps.accounts.models import Experiment
from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.known_errors.exit_codes import (
    explanation_of,
    load_shipped_codes,
    words_of,
)
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.engine.base import ExitCode, JobFacts
from apps.diagnosis.engine.evidence.exit_codes import COLUMNS, meanings_of, read_exit_codes, shipped
from apps.diagnosis.engine.verdict import decide
from apps.diagnosis.enums import CodeKind, CodeScope
from apps.diagnosis.models import ExitCodeMeaning, LogHarvest, Verdict
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.totals.rollups import mark_dirty, recompute_dirty_hours
from tests.factories import clusters

FAILED = JobState.FAILED


@pytest.mark.parametrize(
    ("facts", "verdict", "title"),
    [
        (
            JobFacts(state=FAILED, exit_code=8031, experiment="CMS"),
            "resource",
            "exceeded maximum allowed RSS",
        ),
        (JobFacts(state=FAILED, exit_code=8031, experiment="NOVA"), "unknown", ""),
        (JobFacts(state=FAILED, exit_code=65, experiment="NOVA"), "unknown", "art, LArSoft"),
        (
            JobFacts(state=FAILED, exit_code=1377, experiment="atlas"),
            "service",
            "CVMFS is not responding",
        ),
        (
            JobFacts(
                state=FAILED, scheduler="torque", reason="Torque could not run it: Exit_status=-3"
            ),
            "service",
            "start",
        ),
        (JobFacts(state=FAILED, scheduler="slurm", reason="Exit_status=-3"), "unknown", ""),
        (
            JobFacts(state=FAILED, scheduler="htcondor", reason="34"),
            "resource",
            "resource limit exceeded",
        ),
    ],
)
def test_most_specific_meaning_decides_where_it_is_certain(facts, verdict, title):
    meaning = decide(facts)
    assert meaning.verdict == verdict
    meanings = meanings_of(facts, shipped())
    assert (title in meanings[0].title) if title else not meanings
    if verdict != "unknown":
        assert meaning.reasons[0].kind == "exit-code"


def test_a_meaning_that_is_not_certain_hides_a_wider_one():
    own = ExitCode(CodeKind.EXIT, CodeScope.EXPERIMENT, "nova", 127, "no events left")
    wider = next(
        code for code in shipped() if code.number == 127 and code.scope is CodeScope.CONVENTION
    )
    assert (
        decide(
            JobFacts(state=FAILED, exit_code=127, experiment="NOVA", exit_codes=(wider, own))
        ).verdict
        == "unknown"
    )
    assert (
        decide(
            JobFacts(state=FAILED, exit_code=127, experiment="DUNE", exit_codes=(wider, own))
        ).verdict
        == "code"
    )


def test_shipped_codes_name_their_source_and_faults_name_the_line():
    assert all(code.source and code.title and len(code.title) <= 100 for code in shipped())
    head = ",".join(COLUMNS)
    row = "exit,convention,,1,t,,unknown,no,s"
    with pytest.raises(ValueError, match=r"x\.csv, line 3: exit 1 appears twice"):
        read_exit_codes(f"{head}\n{row}\n{row}\n", "x.csv")
    with pytest.raises(ValueError, match=r"x\.csv, line 2"):
        read_exit_codes(f"{head}\nexit,convention,,1,t,,unknown,perhaps,s\n", "x.csv")


def test_edited_rows_stay_and_rows_no_longer_shipped_are_disabled(db):
    assert load_shipped_codes() == 0
    ExitCodeMeaning.objects.filter(number=127, scope="convention").update(title="edited here")
    rest = [code for code in shipped() if code.number not in {126, 127}]
    assert load_shipped_codes(codes=rest) == ExitCodeMeaning.objects.filter(number=126).count() + (
        ExitCodeMeaning.objects.filter(number=127).count() - 1
    )
    assert set(ExitCodeMeaning.objects.filter(number=126).values_list("enabled", flat=True)) == {
        False
    }
    assert ExitCodeMeaning.objects.get(number=127, scope="convention").enabled


def test_words_of_statistics_take_one_query_and_odd_values(db, django_assert_num_queries):
    Experiment.objects.create(key="CMS", name="CMS")
    odd = {
        "exit_code": ["127", "8031", "1305", "0", "no data", "", "99999999999"],
        "signal": ["11"],
        "site": ["127"],
    }
    with django_assert_num_queries(1):
        assert words_of(odd) == {
            ("exit_code", "127"): "command not found",
            ("exit_code", "8031"): "cms: exceeded maximum allowed RSS (ExceededResourceRSS)",
            ("signal", "11"): "segmentation fault (SIGSEGV)",
        }


def test_pages_of_job_log_statistics_and_exit_codes_explain_it(
    client, make_job, shifter, at, time_machine
):
    time_machine.move_to(at)
    job = make_job(7, exit_code=127, log="run.sh: line 3: reco\n")
    make_job(8, exit_code=0, signal=9, cluster=clusters.cluster("other"))
    mark_dirty([hour_of(job.ended_at)])
    recompute_dirty_hours(at=at)
    client.force_login(shifter)
    ExitCodeMeaning.objects.create(
        kind="exit",
        scope="experiment",
        name="nova",
        number=127,
        title="<i>reco missing</i>",
        source="NOvA",
    )
    for name in ("portal:job", "diagnosis:log"):
        html = client.get(reverse(name, args=[job.pk])).content.decode()
        assert "&lt;i&gt;reco missing" in html
        assert "other meaning" in html
    html = client.get(reverse("diagnosis:exit-codes")).content.decode()
    assert "killed (SIGKILL)" in html.partition('id="codes"')[0]
    assert "exit_code=127" in html
    assert (
        "Invalid filter"
        in client.get(reverse("diagnosis:exit-codes"), {"number": "x"}).content.decode()
    )
    html = client.get(
        reverse("jobs:statistics"), {"by": "exit_code", "measure": "jobs"}
    ).content.decode()
    assert "command not found" in html


LOGS = {
    "spill table has a hole; stop\n": (3, ""),
    "java.lang.OutOfMemoryError\n\tat a.b.C.run(C.java:7)\n": (3, "out of memory"),
    "java -XX:+ExitOnOutOfMemoryError -jar reco.jar\n": (3, "out of memory"),
    "Art has completed and will exit with status 68.\n": (68, "art: out of memory"),
    "state of the art\n": (88, ""),
    "curl https://data.example.org/a.root\n": (28, "curl: timeout"),
    "mkdir curly\n": (28, ""),
    "see out.root and /home/root/x\n": (11, ""),
}


@pytest.mark.parametrize(("log", "code", "title"), [(log, *row) for log, row in LOGS.items()])
def test_what_a_program_means_by_a_code_is_shown_only_where_it_ran(
    client, make_job, shifter, at, log, code, title
):
    job = make_job(7, exit_code=code, log=log)
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
    client.force_login(shifter)

    html = client.get(reverse("portal:job", args=[job.pk])).content.decode()

    assert ("if it comes from" in html, title in html) == (bool(title), True)


@pytest.mark.parametrize(("category", "is_shown"), [("service", False), ("resource", True)])
def test_meaning_of_a_code_gives_way_to_another_cause_in_the_log(
    client, make_job, shifter, at, category, is_shown
):
    job = make_job(7, exit_code=3, log="java.lang.OutOfMemoryError\n\tat a.b.C.run(C.java:7)\n")
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
    Verdict.objects.filter(job=job).update(cause="SAMWEB-TIMEOUT", category=category)
    client.force_login(shifter)
    for name in ("portal:job", "diagnosis:log"):
        html = client.get(reverse(name, args=[job.pk])).content.decode()
        assert ("if it comes from" in html) == is_shown, name


def test_the_captured_script_shows_which_programs_ran(make_job):
    java = ExitCode(CodeKind.EXIT, CodeScope.PROGRAM, "Java", 3, "out of memory")
    facts = JobFacts(state=FAILED, exit_code=3, exit_codes=(java,))

    assert (
        explanation_of(facts, read_text=lambda: "#!/bin/sh\njava -jar reco.jar\n").meaning == java
    )
    assert explanation_of(facts, read_text=lambda: "#!/bin/sh\nreco\n") is None


def test_statistics_name_no_program_for_jobs_that_may_have_run_others(db):
    assert words_of({"exit_code": ["3"]}) == {}
