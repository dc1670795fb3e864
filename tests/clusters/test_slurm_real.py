"""The Slurm adapter on a real Slurm: jobs that end in every way come through it as they were."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.clusters.schedulers.base import JobRecord, JobState, SpooledJob, SpoolEntry
from apps.clusters.schedulers.slurm.log_paths import work_out_paths
from apps.clusters.schedulers.slurm.scheduler import Slurm
from tests.contracts.scheduler import Job, SchedulerContract
from tests.programs.slurm_server import SlurmServer

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm"), pytest.mark.timeout(900)]

SLEEP = "#!/bin/sh\necho started\nsleep 300\n"
ODD_NAME = "a|b\nc\x1fd"


@dataclass
class SlurmHarness:
    slurm: SlurmServer
    scheduler: Slurm
    spool_directory: Path

    def submit(self, job: Job) -> str:
        options = [f"--array=0-{job.tasks - 1}"] if job.tasks else []
        job_id = self.slurm.submit(
            job.script, *options, *([] if job.started else ["--hold"]), env=job.environment
        )
        if job.state == JobState.CANCELLED:
            if job.started:
                self.slurm.wait_state(job_id, "RUNNING")
            self.slurm.run("scancel", job_id)
        return job_id

    def wait_ended(self, spool_ids: Iterable[str]) -> None:
        self.slurm.wait_ended(spool_ids)

    def half_written(self, directory: Path) -> SpoolEntry:
        entry = SpoolEntry("31", directory / "hash.1" / "job.31")
        entry.path.mkdir(parents=True)
        (entry.path / "environment").write_bytes(b"\x02\x00\x00\x00A=1\0B=2\0")
        (entry.path / "script").write_bytes(b"#!/bin/sh\n")
        return entry


class TestSlurm(SchedulerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls, slurm: SlurmServer) -> SlurmHarness:
        return SlurmHarness(slurm, Slurm(slurm.cluster, {"conf": str(slurm.conf)}), slurm.state_dir)


@dataclass
class Jobs:
    """Jobs after their end, by the name that the test gives them."""

    slurm: SlurmServer
    scheduler: Slurm
    since: datetime
    ids: dict[str, str] = field(default_factory=dict)
    submitted: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    spooled: dict[str, SpooledJob] = field(default_factory=dict)
    records: list[JobRecord] = field(default_factory=list)

    def submit(
        self, name: str, script: str | bytes, *options: str, env: dict[str, str] | None = None
    ) -> str:
        script = script if isinstance(script, bytes) else script.encode()
        self.ids[name] = job_id = self.slurm.submit(script, *options, env=env)
        self.submitted[name] = (script, env or {})
        self.spooled[name] = self.scheduler.spool(self.slurm.state_dir).read(
            SpoolEntry(job_id, self.slurm.job_dir(job_id))
        )
        return job_id

    def collect(self) -> list[JobRecord]:
        return list(
            self.scheduler.finished_jobs(
                since=self.since, until=datetime.now(UTC) + timedelta(seconds=5)
            )
        )

    def of(self, name: str) -> list[JobRecord]:
        return [record for record in self.records if record.spool_id == self.ids[name]]

    def one(self, name: str) -> JobRecord:
        (record,) = self.of(name)
        return record


@pytest.fixture(scope="module")
def jobs(slurm: SlurmServer) -> Jobs:
    """Run the jobs: all are submitted, then what is to happen to each is done,
    then all have ended.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    jobs = Jobs(slurm, Slurm(slurm.cluster, {"conf": str(slurm.conf)}), now)
    for run in (submit_jobs_that_end, submit_jobs_that_are_ended, requeue_a_job):
        run(jobs)
    slurm.wait_ended(jobs.ids.values())  # before a node fails: it may run some of them
    fail_a_node(jobs)
    slurm.wait_ended(jobs.ids.values())
    jobs.records = jobs.collect()
    return jobs


def submit_jobs_that_end(jobs: Jobs) -> None:
    logs = jobs.slurm.jobs_dir / "logs"
    logs.mkdir()
    hostile = {"MULTI": "a\nb", "OPSPORTAL_REQUEST": "R=1"}
    jobs.submit("ok", "#!/bin/sh\necho fine\n", env=hostile)
    jobs.submit(
        "exit",
        (
            f"#!/bin/sh\n#SBATCH --job-name=x1 -o {logs}/%x-%5j.out\n#SBATCH -e 'err %j'\necho "
            "no\nexit 1\n"
        ),
    )
    jobs.submit("segv", b"#!/bin/bash\n# caf\xe9\nkill -SEGV $$")
    jobs.submit("array", "#!/bin/sh\nexit $SLURM_ARRAY_TASK_ID\n", "--array=0,2-3")
    jobs.submit(
        "odd", "#!/bin/sh\ntrue\n", f"--job-name={ODD_NAME}", f"--comment={ODD_NAME}\n9|9|x"
    )
    jobs.submit(
        "environment option", "#!/bin/sh\n#SBATCH -o script\n", env={"SBATCH_OUTPUT": "variable-%j"}
    )
    jobs.submit("protected", "#!/bin/sh\ntrue\n", "--output=50\\%j")
    jobs.submit(
        "patterns",
        "#!/bin/sh\ntrue\n",
        "--output=%A_%a_%J_%n_%s_%t_%u_%4j_%12j_%%",
        "--error=%x.err",
    )
    jobs.submit("het", "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\necho both\n")
    jobs.submit("memory", "#!/bin/sh\nhead -c 300M /dev/zero | tail -c 250M | wc -c\n", "--mem=30")


def submit_jobs_that_are_ended(jobs: Jobs) -> None:
    running = [jobs.submit(name, SLEEP, "--time=5") for name in ("limit", "cancelled")]
    jobs.submit("pending", SLEEP, "--hold")
    jobs.submit("pending array", SLEEP, "--hold", "--array=1,4-8:2")
    failed = jobs.submit("failed first", "#!/bin/sh\nexit 9\n")
    jobs.submit("dependent", SLEEP, f"--dependency=afterok:{failed}", "--kill-on-invalid-dep=yes")
    for job_id in running:
        jobs.slurm.wait_state(job_id, "RUNNING")
    # A limit is whole minutes and looked at twice a minute; to move the end is the same to Slurm,
    # and quicker.
    jobs.slurm.scontrol("update", f"jobid={jobs.ids['limit']}", "endtime=now+3")
    for name in ("cancelled", "pending", "pending array"):
        jobs.slurm.run("scancel", jobs.ids[name])


def requeue_a_job(jobs: Jobs) -> None:
    script = '#!/bin/sh\n[ "$SLURM_RESTART_COUNT" = 1 ] && exit 4\nsleep 300\n'
    job_id = jobs.submit("requeued", script)
    jobs.slurm.wait_state(job_id, "RUNNING")
    jobs.slurm.scontrol("requeue", job_id)
    # The start is two minutes from now, unless it is changed.
    jobs.slurm.wait_state(job_id, "PENDING", reason="BeginTime")
    # A node refuses it in the second of its end.
    jobs.slurm.scontrol("update", f"jobid={job_id}", "starttime=now+3")


def fail_a_node(jobs: Jobs) -> None:
    node = jobs.slurm.nodes[-1]
    job_id = jobs.submit("node", SLEEP, f"--nodelist={node}", "--no-requeue")
    jobs.slurm.wait_state(job_id, "RUNNING")
    jobs.slurm.scontrol("update", f"nodename={node}", "state=down", "reason=test")
    jobs.slurm.wait_state(job_id, "NODE_FAIL")


def ending(record: JobRecord) -> tuple[JobState, int, int]:
    return record.state, record.exit_code, record.signal


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ok", (JobState.COMPLETED, 0, 0)),
        ("exit", (JobState.FAILED, 1, 0)),
        ("segv", (JobState.FAILED, 0, 11)),
        ("odd", (JobState.COMPLETED, 0, 0)),
        ("limit", (JobState.TIMEOUT, 0, 0)),
        ("cancelled", (JobState.CANCELLED, 0, 0)),
        ("pending", (JobState.CANCELLED, 0, 0)),
        ("dependent", (JobState.CANCELLED, 0, 0)),
        ("node", (JobState.NODE_FAIL, 0, 0)),
    ],
)
def test_job_ends_as_it_did(jobs: Jobs, name: str, expected: tuple[JobState, int, int]) -> None:
    assert ending(jobs.one(name)) == expected


def test_job_over_its_memory_ends_so_where_slurm_limits_it(jobs: Jobs) -> None:
    expected = (
        (JobState.OUT_OF_MEMORY, 0, 125) if jobs.slurm.limits_memory else (JobState.FAILED, 0, 9)
    )

    assert ending(jobs.one("memory")) == expected
    assert jobs.one("memory").requested_memory_bytes == 30 * 2**20


def test_scripts_and_environments_are_identical(jobs: Jobs) -> None:
    for name, (script, environment) in jobs.submitted.items():
        spooled = jobs.spooled[name]
        variables = {os.fsdecode(key): os.fsdecode(value) for key, value in spooled.variables}
        if name != "het":  # its first component gets the lines of its own alone
            assert spooled.script == script
        assert environment.items() <= variables.items()
        assert (
            spooled.environment == (jobs.slurm.job_dir(jobs.ids[name]) / "environment").read_bytes()
        )


def test_submission_in_spool_and_in_accounting_is_the_same_moment(jobs: Jobs) -> None:
    for name, spooled in jobs.spooled.items():
        for record in jobs.of(name):
            assert abs(record.submitted_at - spooled.submitted_at) < timedelta(seconds=2)


def test_array_tasks_are_records_of_their_own(jobs: Jobs) -> None:
    spool_id = jobs.ids["array"]

    assert {record.job_id: ending(record) for record in jobs.of("array")} == {
        f"{spool_id}_0": (JobState.COMPLETED, 0, 0),
        f"{spool_id}_2": (JobState.FAILED, 2, 0),
        f"{spool_id}_3": (JobState.FAILED, 3, 0),
    }


def test_array_cancelled_before_its_start_is_a_record_for_each_task(jobs: Jobs) -> None:
    records = jobs.of("pending array")

    assert [record.job_id.partition("_")[2] for record in records] == ["1", "4", "6", "8"]
    assert {ending(record) for record in records} == {(JobState.CANCELLED, 0, 0)}
    assert {record.started_at for record in records} == {None}


def test_heterogeneous_job_has_a_record_for_each_component(jobs: Jobs) -> None:
    leader = jobs.ids["het"]
    records = [record for record in jobs.records if record.job_id.startswith(f"{leader}+")]

    assert [(record.job_id, record.cpus) for record in records] == [
        (f"{leader}+0", 1),
        (f"{leader}+1", 2),
    ]
    assert records[1].spool_id == str(records[1].raw_id) != leader
    for record in records:
        paths = jobs.scheduler.log_paths(record, script=b"", environment={})
        assert paths
        assert paths.stdout.read_text() == "both\n"


def test_requeued_job_has_a_numbered_record_for_each_attempt(jobs: Jobs) -> None:
    first, second = jobs.of("requeued")

    assert (first.attempt, *ending(first)) == (1, JobState.REQUEUED, 0, 0)
    assert (second.attempt, *ending(second)) == (2, JobState.FAILED, 4, 0)
    assert first.submitted_at == second.submitted_at
    assert first.started_at
    assert second.started_at
    assert first.started_at <= first.ended_at < second.started_at <= second.ended_at


def test_attempt_keeps_its_number_when_the_first_is_out_of_the_interval(jobs: Jobs) -> None:
    _, second = jobs.of("requeued")

    finished = jobs.scheduler.finished_jobs(
        since=second.ended_at, until=second.ended_at + timedelta(seconds=1)
    )

    assert [record for record in finished if record.spool_id == second.spool_id] == [second]


def test_names_with_separators_come_whole(jobs: Jobs) -> None:
    record = jobs.one("odd")

    assert (record.name, record.comment) == (ODD_NAME, f"{ODD_NAME}\n9|9|x")


def test_facts_of_a_job_are_filled_in(jobs: Jobs) -> None:
    record = jobs.one("ok")

    assert (record.user, record.account, record.partition, record.cpus) == (
        "root",
        "ops",
        "batch",
        1,
    )
    assert (record.host, record.work_dir) == (jobs.slurm.nodes[0], str(jobs.slurm.jobs_dir))
    assert (record.time_limit_seconds, record.requested_memory_bytes) == (600, 64 * 2**20)
    assert record.submit_line.startswith("sbatch --parsable ")


def test_cancellation_names_who_did_it(jobs: Jobs) -> None:
    by = {name: jobs.one(name).cancelled_by for name in ("cancelled", "pending", "dependent", "ok")}

    assert by == {"cancelled": "root", "pending": "root", "dependent": "", "ok": ""}


@pytest.fixture(params=["asked of slurmctld", "derived"])
def stdout_and_stderr(
    request: pytest.FixtureRequest, jobs: Jobs
) -> Callable[[str], tuple[Path, Path]]:
    """Return the paths of a job, in both ways that this version of Slurm leaves."""

    def paths(name: str) -> tuple[Path, Path]:
        spooled, record = jobs.spooled[name], jobs.of(name)[0]
        environment = {os.fsdecode(key): os.fsdecode(value) for key, value in spooled.variables}
        if request.param == "derived":
            log_paths = work_out_paths(record, script=spooled.script, environment=environment)
        else:
            log_paths = jobs.scheduler.log_paths(
                record, script=spooled.script, environment=environment
            )
        assert log_paths
        return log_paths.stdout, log_paths.stderr

    return paths


@pytest.mark.parametrize(
    ("name", "stdout", "stderr"),
    [
        ("ok", "slurm-{id}.out", "slurm-{id}.out"),
        ("exit", "logs/x1-{id:05}.out", "err {id}"),
        ("limit", "slurm-{id}.out", "slurm-{id}.out"),
        ("cancelled", "slurm-{id}.out", "slurm-{id}.out"),
        ("array", "slurm-{id}_0.out", "slurm-{id}_0.out"),
        ("environment option", "variable-{id}", "variable-{id}"),
        ("protected", "50%j", "50%j"),
        ("patterns", "{id}_4294967294_{id}_0_batch_0_root_{id:04}_{id:010}_%", "script-"),
    ],
)
def test_log_paths_are_those_that_slurm_wrote(
    jobs: Jobs,
    stdout_and_stderr: Callable[[str], tuple[Path, Path]],
    name: str,
    stdout: str,
    stderr: str,
) -> None:
    log_paths = stdout_and_stderr(name)
    job_id, directory = int(jobs.ids[name]), jobs.slurm.jobs_dir

    assert log_paths[0] == directory / stdout.format(id=job_id)
    assert log_paths[0].is_file()
    assert log_paths[1].is_file()
    assert log_paths[1].relative_to(directory).as_posix().startswith(stderr.format(id=job_id))


def test_hosts_have_their_cores_memory_and_the_cpu_model_of_a_feature(slurm: SlurmServer) -> None:
    first, *others = slurm.nodes
    slurm.run(
        "scontrol",
        "update",
        f"NodeName={first}",
        "AvailableFeatures=ib,rome",
        "ActiveFeatures=ib,rome",
    )
    scheduler = Slurm(slurm.cluster, {"conf": str(slurm.conf), "cpu_models": "rome=AMD EPYC 7702"})
    hosts = {host.name: host for host in scheduler.hosts()}
    slurm.run("scontrol", "update", f"NodeName={first}", "AvailableFeatures=", "ActiveFeatures=")

    assert hosts.keys() == {first, *others}
    assert [hosts[name].cpu_model for name in (first, *others)] == ["AMD EPYC 7702"] + [""] * len(
        others
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert {(host.address, host.memory_bytes) for host in hosts.values()} == {
        ("127.0.0.1", memory // 2**20 * 2**20)
    }
    assert all(host.cores for host in hosts.values())


def test_drained_host_has_its_state_reason_and_boot(slurm: SlurmServer) -> None:
    first, other, *_ = slurm.nodes
    scheduler = Slurm(slurm.cluster, {"conf": str(slurm.conf)})
    node = f"NodeName={first}"
    reason = "bad disk [a@b] State=IDLE"
    slurm.run("scontrol", "update", node, "State=DRAIN", f"Reason={reason}")
    hosts = {host.name: host for host in scheduler.hosts()}
    slurm.run("scontrol", "update", node, "State=RESUME")

    assert hosts[first].state in {"drained", "draining"}
    assert "DRAIN" in hosts[first].state_words
    assert hosts[first].reason == reason
    assert (hosts[other].state, hosts[other].reason) == ("up", "")
    assert hosts[first].booted_at is not None


@pytest.mark.parametrize("option", ["rome", "rome=", "=AMD EPYC 7702, icelake=Xeon"])
def test_cpu_model_without_its_feature_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match="is not FEATURE=MODEL"):
        Slurm("alps", {"cpu_models": option})
