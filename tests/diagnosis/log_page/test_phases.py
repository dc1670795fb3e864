"""Phases in logs enter the totals of `/jobs/phases/`: once,
and not beside what the job reported.
"""

from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from apps.accounts.enums import Role
from apps.diagnosis.domain.verdicts.harvest import harvest_batch, queue_harvests, reanalyse_log
from apps.diagnosis.domain.verdicts.phases import phases_in_logs
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.formats.markers import NO_MARKERS, Markers
from apps.jobs.domain.collection.origin import claim_jobs, map_account
from apps.jobs.domain.phases.logs import mark_log_phases
from apps.jobs.domain.phases.reports import store_phases
from apps.jobs.domain.phases.tokens import new_phase_token, read_phase_token
from apps.jobs.domain.phases.totals import phase_sums, recount_phases
from apps.jobs.models import DirtyHour, Job, LogPhase, PhaseTotals
from tests.factories import people

LOG = """==> 2026-11-20T11:00:00Z phase 1/3: setup
<== 2026-11-20T11:01:40Z phase setup done, wall 100 s, cpu 3.0 s
==> 2026-11-20T11:01:40Z phase 2/3: fetch input
==> 2026-11-20T11:05:00Z phase 3/3: reco
[FATAL] Auth failed
"""
REPORTED = {"name": "reco", "exit_code": 1, "cpu_seconds": 50}


def harvest(*jobs: Job, at) -> None:
    queue_harvests(job_pks=[job.pk for job in jobs], at=at)
    harvest_batch(at=at)
    recount_phases()


def report(job: Job, at) -> None:
    """Report one phase of a job with a token, as the job does, and count it."""
    belongs = {
        "experiment_id": job.experiment_id,
        "request_key": job.request_key,
        "stage": job.stage,
    }
    token = new_phase_token(cluster_id=job.cluster_id, at=at, label=f"of {job.job_id}", **belongs)
    start = job.started_at.timestamp()
    phases = [REPORTED | {"started_at": start, "ended_at": start + 60}]
    store_phases(
        token=read_phase_token(token, at=at), job_id=job.job_id, host="n", phases=phases, at=at
    )
    recount_phases()


def sums(user, since) -> dict[str, tuple[float, ...]]:
    """Return number, number from logs, failed, wall time and longest by name of the phase."""
    return {
        row.name: (row.phases, row.from_logs, row.failed, row.wall_seconds, row.longest_seconds)
        for row in phase_sums(user, since=since)
    }


@pytest.fixture
def since(at):
    return at - timedelta(days=1)


@pytest.fixture
def reader(nova):
    return people.person("lena", (Role.LIAISON, nova))


def test_phases_in_logs_are_summed_beside_reported_ones(client, make_job, reader, at, since):
    jobs = [make_job(number, log=LOG, request_key="NOVA-1", stage="reco") for number in (1, 2)]
    with_report = make_job(3, log=LOG, request_key="NOVA-1", stage="reco")
    report(with_report, at)
    harvest(*jobs, with_report, at=at)

    expected = {
        "setup": (2, 2, 0, 200, 100),
        "fetch input": (2, 2, 0, 400, 200),
        "reco": (3, 2, 3, 6660, 3300),
    }
    assert sums(reader, since) == expected
    assert sum(PhaseTotals.objects.filter(source="reported").values_list("phases", flat=True)) == 1
    assert sums(people.person("stranger"), since) == {}

    client.force_login(reader)
    page = client.get("/jobs/phases/?days=90&request=NOVA-1").content.decode()
    assert "fetch input" in page
    assert "2 from logs" in page


def test_logs_of_completed_jobs_are_not_summed(make_job, reader, at, since, approver):
    """A sample of them would look like a sum: also if a user has the log of one analysed again, or
    if accounting corrects the state of a job.
    """
    completed = make_job(1, log=LOG, state="completed", exit_code=0)
    reanalyse_log(job=completed, by=approver, at=at)
    harvest_batch(at=at)
    recount_phases()
    assert sums(reader, since) == {}

    corrected = make_job(2, log=LOG)
    harvest(corrected, at=at)
    assert "setup" in sums(reader, since)
    Job.objects.filter(pk=corrected.pk).update(state="completed")
    mark_log_phases(Job.objects.filter(pk=corrected.pk))
    recount_phases()
    assert sums(reader, since) == {}


def test_another_harvest_changes_nothing(make_job, reader, at, since):
    job = make_job(log=LOG)
    harvest(job, at=at)
    before, rows = sums(reader, since), list(LogPhase.objects.values())

    harvest(job, at=at)
    assert (sums(reader, since), list(LogPhase.objects.values())) == (before, rows)
    assert not DirtyHour.objects.filter(counts="phases").exists()


def test_phases_stay_when_the_log_is_gone(make_job, roots, reader, at, since):
    job = make_job(log=LOG)
    harvest(job, at=at)
    before = sums(reader, since)
    (roots / "1.out").unlink()
    harvest(job, at=at + timedelta(minutes=5))
    assert sums(reader, since) == before != {}


def test_report_after_the_log_replaces_its_phases(make_job, reader, at, since):
    job = make_job(log=LOG)
    harvest(job, at=at)
    assert sums(reader, since)["reco"][:2] == (1, 1)
    report(job, at)
    assert sums(reader, since) == {"reco": (1, 0, 1, 60, 60)}
    harvest(job, at=at)
    assert sums(reader, since) == {"reco": (1, 0, 1, 60, 60)}


def test_phases_follow_a_job_to_its_experiment(make_job, nova, reader, at, since):
    harvest(make_job(log=LOG, experiment=None, account="nova2"), at=at)
    assert sums(reader, since) == {}
    map_account(account="nova2", experiment=nova, cluster=None, by="test", at=at)
    claim_jobs(experiment=nova, at=at)
    recount_phases()
    assert sums(reader, since)["setup"] == (1, 1, 0, 100, 100)


def test_phases_of_another_attempt_of_the_same_id_count(make_job, reader, at, since):
    """Schedulers use an ID again: what an older job of this ID reported is not of this one."""
    day = timedelta(days=2)
    report(
        make_job(
            1,
            submitted_at=at - 2 * day,
            started_at=at - day,
            ended_at=at - day + timedelta(hours=1),
        ),
        at,
    )
    harvest(make_job(1, log=LOG), at=at)
    assert sums(reader, since)["setup"] == (1, 1, 0, 100, 100)


def test_markers_of_the_experiment_count(make_job, at):
    job = make_job()
    text = b">>> 2026-11-20T11:00:00 step fetch\n<<< step done in 40 s\n"
    markers = Markers(
        (r"^>>> (?P<at>\S+) step (?P<name>.+)$",), (r"^<<< step done in (?P<wall>\d+) s",)
    )
    block = Block(text, 0, len(text), 1)
    assert phases_in_logs(job, [block], NO_MARKERS) == []
    assert [
        (phase.name, phase.wall_seconds) for phase in phases_in_logs(job, [block], markers)
    ] == [("fetch", 40)]


@given(
    st.lists(st.tuples(st.integers(0, 4000), st.booleans()), max_size=6),
    st.sampled_from(["failed", "completed"]),
)
def test_no_phase_is_longer_than_its_job(phases, state):
    """Whatever a log says: it is the job's own text."""
    now = timezone.now()
    lines, clock = [], now
    for number, (seconds, is_closed) in enumerate(phases):
        lines.append(f"==> {clock:%Y-%m-%dT%H:%M:%S}Z phase {number + 1}: part {number}")
        clock += timedelta(seconds=seconds)
        if is_closed:
            lines.append(
                f"<== {clock:%Y-%m-%dT%H:%M:%S}Z phase part {number} done, wall {seconds} s"
            )
    text = "".join(f"{line}\n" for line in lines).encode()

    job = Job(state=state, wall_seconds=3600)
    marked = phases_in_logs(job, [Block(text, 0, len(text), 1)], NO_MARKERS)
    assert all(0 <= phase.wall_seconds <= 3600 for phase in marked)
    assert sum(phase.failed for phase in marked) <= (state == "failed")
    assert [phase.name for phase in marked] == sorted({phase.name for phase in marked})
