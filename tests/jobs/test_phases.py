"""Phases that jobs report: token, API, page, and the program `ops-phase` against a running
portal.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.cache import cache
from django.core.signing import Signer
from django.db import connection
from django.utils import timezone

from apps.accounts.enums import Role
from apps.core.domain import quotas
from apps.core.models import Event
from apps.jobs.domain.phases import reports
from apps.jobs.domain.phases.reports import array_of, phases_of
from apps.jobs.domain.phases.stuck import find_stuck_phases, stuck_phases
from apps.jobs.domain.phases.tokens import LIFETIME, new_phase_token, read_phase_token
from apps.jobs.domain.phases.totals import phase_sums, recount_phases
from apps.jobs.models import DirtyHour, Job, JobPhase
from apps.jobs.tasks import recount_phase_totals
from tests.factories import jobs, people

PROGRAM = Path(__file__).parents[2] / "clients/ops-phase/ops-phase"


@pytest.fixture
def nova(db):
    return people.experiment("NOVA")


def token_of(cluster, experiment, **more):
    return new_phase_token(
        cluster_id=cluster.pk,
        experiment_id=experiment.pk,
        **{"at": timezone.now(), "label": "one", **more},
    )


def post(client, token, phases, job_id="4711_3"):
    body = json.dumps({"job_id": job_id, "host": "node01", "phases": phases})
    return client.post(
        "/api/v1/phases/",
        body,
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}"},
    )


def test_a_report_is_stored_once_and_an_end_stays(client, alps, nova):
    token, now = token_of(alps, nova, request_key="NOVA-1", stage="reco"), int(time.time())
    begun = {"name": "fetch  input", "started_at": now - 60}
    ended = begun | {"ended_at": now - 30, "exit_code": 0, "cpu_seconds": 12.5}
    assert post(client, token, [begun]).json()["new"] == 1
    assert post(client, token, [ended]).json()["changed"] == 1
    for late in (begun, ended, begun | {"ended_at": now}):
        assert post(client, token, [late]).json()["unchanged"] == 1
    row = JobPhase.objects.get()
    assert (row.name, row.request_key, row.stage, row.array_id) == (
        "fetch input",
        "NOVA-1",
        "reco",
        "4711",
    )
    assert (row.ended_at - row.started_at, row.cpu_seconds) == (timedelta(seconds=30), 12.5)


def test_cpu_model_that_a_job_reports_is_that_of_its_record(client, alps, nova, time_machine):
    """Whether the phase comes before the record of the job, or after it."""
    time_machine.move_to(jobs.AT)  # phases are taken for 90 days
    other = people.experiment("DUNE")
    early, late, foreign, known = (
        jobs.record(1),
        jobs.record(2),
        jobs.record(3),
        jobs.record(4, cpu_model="EPYC 7543"),
    )

    def report(number, experiment, model):
        token = token_of(alps, experiment, label=f"of {number}")
        start = jobs.record(number).started_at.timestamp()
        phase = {"name": "reco", "started_at": start + 1}
        body = json.dumps(
            {"job_id": str(number), "host": "n", "cpu_model": model, "phases": [phase]}
        )
        answer = client.post(
            "/api/v1/phases/",
            body,
            content_type="application/json",
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.json()["new"] == 1, answer.content

    report(1, nova, "Xeon 6248R")
    report(3, other, "forged")
    jobs.store(alps, early, late, foreign, known)
    DirtyHour.objects.all().delete()
    report(2, nova, "Xeon 6330")
    report(4, nova, "another")
    assert DirtyHour.objects.filter(counts="jobs").count() == 1
    models = dict(Job.objects.values_list("job_id", "cpu_model"))
    assert models == {"1": "Xeon 6248R", "2": "Xeon 6330", "3": "", "4": "EPYC 7543"}


def test_bad_phases_are_named_and_stop_no_other(client, alps, nova):
    now = int(time.time())
    good = {"name": "reco", "started_at": now}
    bad = [
        "no object",
        {"name": "x"},
        {"name": ["x"], "started_at": now},
        {"name": " ", "started_at": now},
        good | {"wall": 3},
        good | {"started_at": "2026-11-22 09:14"},
        good | {"started_at": now + 900},
        good | {"started_at": 1},
        good | {"ended_at": now - 1},
        good | {"cpu_seconds": "NaN"},
        good | {"cpu_seconds": -1},
        good | {"cpu_seconds": 1e308},
        good | {"exit_code": 10**12},
    ]
    answer = post(client, token_of(alps, nova), [*bad, good])
    assert answer.status_code == 200
    assert (answer.json()["new"], answer.json()["rejected"]) == (1, len(bad))
    assert answer.json()["problems"][-1]["reason"] == "exit_code is out of range."


def test_a_token_is_of_one_array_and_of_the_portal_and_expires(client, alps, nova):
    token, phase = token_of(alps, nova), {"name": "reco", "started_at": int(time.time())}
    assert [
        post(client, token, [phase], job_id=job).status_code for job in ("4711_3", "4711_4", "4712")
    ] == [
        200,
        200,
        403,
    ]
    assert post(client, token[:-1] + "!", [phase]).status_code == 401
    assert post(client, "", [phase]).status_code == 401
    old = token_of(alps, nova, at=timezone.now() - LIFETIME)
    assert read_phase_token(old, at=timezone.now()) is None
    assert [array_of(job) for job in ("86_3", "86[3].server", "86.0", "86", "x1")] == [
        "86",
        "86",
        "86",
        "86",
        "x1",
    ]


def test_a_token_of_a_deleted_experiment_or_unknown_fields_are_refused(client, alps, nova):
    token, phase = token_of(alps, nova), {"name": "reco", "started_at": int(time.time())}
    body = {"job_id": "1", "hosts": "node01", "phases": [phase]}
    answer = client.post(
        "/api/v1/phases/",
        body,
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}"},
    )
    assert (answer.status_code, list(answer.json())) == (400, ["hosts"])
    nova.delete()
    answer = post(client, token, [phase])
    assert (answer.status_code, "no longer exists" in answer.json()["detail"]) == (403, True)


def test_a_wrong_period_is_named(client, alps, shifter):
    client.force_login(shifter)
    for days, wrong in (("x", True), ("30", False)):
        page = client.get(f"/jobs/phases/?days={days}").content.decode()
        assert ("is not a valid value of “days”: expected 1, 7, 30 or 90" in page) == wrong


def test_tokens_are_given_to_members_of_the_experiment(client, alps, nova):
    body = {"cluster": "alps", "experiment": "NOVA"}
    client.force_login(people.person("stranger"))
    assert (
        client.post("/api/v1/phases/tokens/", body, content_type="application/json").status_code
        == 400
    )
    client.force_login(people.person("liu", (Role.LIAISON, nova)))
    answer = client.post("/api/v1/phases/tokens/", body, content_type="application/json")
    assert answer.status_code == 201
    client.logout()
    assert (
        post(
            client, answer.json()["token"], [{"name": "reco", "started_at": int(time.time())}]
        ).status_code
        == 200
    )
    client.force_login(people.person("mara", (Role.LIAISON, nova)))
    unknown = body | {"request": "NOVA-9"}
    assert (
        client.post("/api/v1/phases/tokens/", unknown, content_type="application/json").status_code
        == 400
    )


def test_phases_of_an_experiment_are_limited_by_the_day(
    client, alps, nova, time_machine, monkeypatch, django_capture_on_commit_callbacks
):
    cache.clear()
    monkeypatch.setattr(reports, "MOST_A_DAY", 2)
    time_machine.move_to("2026-11-22T09:20:00+00:00", tick=False)
    phases = [{"name": name, "started_at": int(time.time()) - 60} for name in "ab"]

    def report(job, experiment):
        token = token_of(alps, experiment, label=f"{experiment.key} {job}")
        with django_capture_on_commit_callbacks(execute=True):
            return post(client, token, phases, job_id=str(job))

    assert report(1, nova).json()["new"] == 2
    refused = report(2, nova)
    assert (refused.status_code, refused["Retry-After"]) == (429, str(14 * 3600 + 40 * 60))
    assert "The jobs of this experiment have reported 2 phases today" in refused.json()["detail"]
    assert report(3, people.experiment("DUNE")).json()["new"] == 2
    time_machine.move_to("2026-11-23T00:00:00+00:00", tick=False)
    assert report(2, nova).json()["new"] == 2


@pytest.mark.django_db(transaction=True)
def test_the_quota_is_counted_while_the_token_is_not_locked(client, alps, nova, monkeypatch):
    locks = []

    def count_locks(*_, **__):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = "
                "pg_backend_pid()"
            )
            locks.append(cursor.fetchone()[0])
        return 0

    monkeypatch.setattr(quotas.Quota, "add", count_locks)
    phase = {"name": "reco", "started_at": int(time.time())}
    assert post(client, token_of(alps, nova), [phase]).status_code == 200
    assert locks == [0, 0]


def test_tokens_of_a_user_are_limited_by_the_hour(client, alps, nova, time_machine, settings):
    cache.clear()
    settings.MAX_PHASE_TOKENS_PER_HOUR = 2
    body = {"cluster": "alps", "experiment": "NOVA"}

    def create():
        return client.post("/api/v1/phases/tokens/", body, content_type="application/json")

    time_machine.move_to("2026-11-22T09:20:00+00:00", tick=False)
    liu, mara = (people.person(name, (Role.LIAISON, nova)) for name in ("liu", "mara"))
    client.force_login(liu)
    assert [create().status_code for _ in range(3)] == [201, 201, 429]
    refused = create()
    assert refused["Retry-After"] == "2400"
    assert "You have created 2 tokens since 09:00 UTC" in refused.json()["detail"]
    assert "Try again after 10:00 UTC" in refused.json()["detail"]
    client.force_login(mara)
    assert create().status_code == 201
    time_machine.move_to("2026-11-22T10:00:00+00:00", tick=False)
    client.force_login(liu)
    assert create().status_code == 201


def test_a_token_ends_with_the_role_of_its_maker(client, alps, nova):
    liu = people.person("liu", (Role.LIAISON, nova))
    client.force_login(liu)
    body = {"cluster": "alps", "experiment": "NOVA"}
    token = client.post("/api/v1/phases/tokens/", body, content_type="application/json").json()[
        "token"
    ]
    client.logout()
    phase = {"name": "reco", "started_at": int(time.time())}
    assert post(client, token, [phase]).status_code == 200
    liu.is_active = False
    liu.save()
    assert post(client, token, [phase]).status_code == 401
    liu.is_active = True
    liu.save()
    assert post(client, token, [phase]).status_code == 200
    liu.memberships.all().delete()
    answer = post(client, token, [phase])
    assert (answer.status_code, "no longer has a role" in answer.json()["detail"]) == (401, True)


def test_a_token_of_an_earlier_version_is_still_read(alps, nova):
    content = (alps.pk, nova.pk, "NOVA-1", "reco", "label", int(time.time()))
    token = read_phase_token(
        Signer(salt="opsportal.phases").sign_object(content), at=timezone.now()
    )
    assert (token.label, token.maker) == ("label", 0)


def test_phases_of_one_array_are_limited_but_their_ends_are_stored(client, alps, nova, monkeypatch):
    monkeypatch.setattr(reports, "MOST_OF_AN_ARRAY", 3)
    token, now = token_of(alps, nova), int(time.time())
    phases = [{"name": f"p{number}", "started_at": now - 60} for number in range(4)]
    assert post(client, token, phases[:2], job_id="4711_1").json()["new"] == 2
    answer = post(client, token, phases, job_id="4711_2").json()
    assert (answer["new"], answer["rejected"]) == (1, 3)
    assert (
        answer["problems"][0]["reason"] == "The jobs of this array have reported 3 phases already."
    )
    assert (
        post(client, token, [phases[0] | {"ended_at": now}], job_id="4711_1").json()["changed"] == 1
    )


def test_the_page_of_a_job_shows_its_phases_and_where_it_failed(client, alps, nova):
    [job] = jobs.store(alps, jobs.failed(7))
    start = job.started_at

    def phase(name, minute, **more):
        return JobPhase(
            cluster=alps, job_id="7", array_id="7", name=name, started_at=start + timedelta(minutes=minute),
            received_at=start, **{"experiment": nova, "token_label": "one", **more},
        )  # fmt: skip

    JobPhase.objects.bulk_create(
        [
            phase("setup", 0, ended_at=start + timedelta(minutes=1), cpu_seconds=3),
            phase("reco", 1),  # ended by the next one
            phase("store output", 50),  # open when the job failed
            phase("forged", 2, experiment=people.experiment("SBND"), token_label="two"),
            phase("of another run", 600),
        ]
    )
    shown = phases_of(job)
    assert [(one.name, one.seconds // 60, one.kind) for one in shown] == [
        ("queued", 5, "q"),
        ("setup", 1, "p1"),
        ("reco", 49, "p2"),
        ("store output", 10, "bad"),
    ]
    assert abs(shown[-1].right - 100) < 1e-6
    client.force_login(people.person("okafor", (Role.SHIFTER, None)))
    assert "✕ store output" in client.get(job.get_absolute_url()).content.decode()


@pytest.fixture
def run(tmp_path, live_server, alps, nova):
    """Run the program under dash as a job's script does;
    `send_by` keeps only that program on the path.
    """
    tools = tmp_path / "bin"

    def path_with(send_by):
        tools.mkdir(exist_ok=True)
        for name in (
            "awk",
            "cat",
            "cut",
            "date",
            "find",
            "getconf",
            "grep",
            "head",
            "id",
            "ls",
            "mkdir",
            "mv",
            "rm",
            "rmdir",
            "sed",
            "sh",
            "sleep",
            "sort",
            "tail",
            "tr",
            "uname",
            send_by,
        ):
            (tools / name).unlink(missing_ok=True)
            (tools / name).symlink_to(shutil.which(name))
        return str(tools)

    def execute(*arguments, send_by="curl", **more):
        environment = {
            "PATH": path_with(send_by),
            "TMPDIR": str(tmp_path),
            "SLURM_JOB_ID": "4711",
            "OPSPORTAL_URL": live_server.url,
            "OPSPORTAL_PHASE_TOKEN": token_of(alps, nova),
        }
        return subprocess.Popen(
            [shutil.which("dash"), PROGRAM, *arguments],
            env=environment | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return execute


def finished(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("send_by", ["curl", "wget"])
def test_program_reports_offline_and_online_and_never_fails_a_job(run, send_by):
    away = {"OPSPORTAL_URL": "http://127.0.0.1:1", "send_by": send_by}
    code, out, err = finished(run("start", 'fetch "input"\n', **away))
    assert (code, err) == (0, "")
    assert out.endswith("Z start fetch _input__\n")
    assert not JobPhase.objects.exists()
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; exit 7"
    assert finished(run("run", "reco", "--", "sh", "-c", burn, **away))[0] == 7
    assert finished(run("flush", send_by=send_by))[0] == 0
    fetch, reco = JobPhase.objects.order_by("pk")
    assert (fetch.name, reco.name, reco.exit_code) == ("fetch _input__", "reco", 7)
    assert fetch.ended_at <= reco.ended_at
    assert reco.cpu_seconds > 0.02
    wrong = finished(
        run("run", "reco", "sh", "-c", "exit 3", OPSPORTAL_PHASE_TOKEN="no", send_by=send_by)
    )
    assert wrong[0] == 3
    assert "refused the phases (HTTP 401)" in wrong[2]
    for arguments in (("x",), ("x", "--"), ("--",)):
        for directory in ({}, {"TMPDIR": "/proc/none"}):
            assert (
                finished(run("run", *arguments, "sh", "-c", "exit 4", **away | directory))[0] == 4
            )
    assert finished(run("run", TMPDIR="/proc/none"))[0] == 0


@pytest.mark.django_db(transaction=True)
def test_a_killed_program_loses_nothing_that_was_kept(run, tmp_path):
    killed = run("run", "reco", "sleep", "60")
    while not list(tmp_path.glob("ops-phase.*/lock")) and not JobPhase.objects.exists():
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    [kept] = tmp_path.glob("ops-phase.*")
    (kept / "lock").mkdir(exist_ok=True)  # as if it had died while it was sending
    os.utime(kept / "lock", (0, 0))
    assert finished(run("start", "store output"))[0] == 0
    assert finished(run("end", "0"))[0] == 0
    assert set(JobPhase.objects.values_list("name", flat=True)) == {"reco", "store output"}
    assert not [left for left in kept.iterdir() if left.name.startswith(("q.", "lock"))]


@pytest.mark.django_db(transaction=True)
def test_python_twin_reports_what_failed(tmp_path, live_server, alps, nova):
    script = (
        "from ops_phase import phase\nwith phase('setup'):\n    pass\nwith phase('reco'):\n    1 "
        "/ 0\n"
    )
    environment = {
        "PYTHONPATH": str(PROGRAM.parent),
        "_CONDOR_JOB_AD": str(tmp_path / "ad"),
        "OPSPORTAL_URL": live_server.url,
        "OPSPORTAL_PHASE_TOKEN": token_of(alps, nova),
    }
    (tmp_path / "ad").write_text('ClusterId = 86\nArgs = ""\nProcId = 3\n')
    process = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert "ZeroDivisionError" in process.stderr
    assert process.stdout.count("==> ops-phase ") == 4
    rows = (
        JobPhase.objects.exclude(ended_at=None)
        .order_by("pk")
        .values_list("job_id", "name", "exit_code")
    )
    assert list(rows) == [("86.3", "setup", 0), ("86.3", "reco", 1)]


def test_totals_equal_a_recount_and_lead_from_stage_to_phase(client, alps, nova):
    token, now = token_of(alps, nova, request_key="NOVA-1", stage="reco"), int(time.time())
    phases = [
        {
            "name": "fetch",
            "started_at": now - 7200 + n,
            "ended_at": now - 7000 + n,
            "exit_code": n % 2,
        }
        | ({"cpu_seconds": 50} if n else {})
        for n in range(3)
    ]
    post(client, token, [phases[0], *phases, {"name": "open", "started_at": now}])
    post(client, token, phases)
    recount_phase_totals()
    assert recount_phases() == 0
    user = people.person("liu", (Role.LIAISON, nova))
    [row] = phase_sums(
        user, since=timezone.now() - timedelta(days=1), request_key="NOVA-1", stage="RECO"
    )
    assert (row.phases, row.failed, row.wall_seconds, row.longest_seconds) == (3, 1, 600, 200)
    assert (row.cpu_seconds, row.cpu_wall_seconds, row.mean_seconds) == (100, 400, 200)
    assert phase_sums(people.person("stranger"), since=timezone.now() - timedelta(days=1)) == []
    client.force_login(user)
    page = client.get("/jobs/phases/?request=NOVA-1&days=x").content.decode()
    assert "fetch" in page
    assert "No phases" in client.get("/jobs/phases/?stage=none").content.decode()


def test_a_phase_far_beyond_its_usual_time_is_reported_once(world, alps):
    request, at = world.request, timezone.now()
    base = {
        "cluster": alps,
        "array_id": "1",
        "experiment": request.experiment,
        "received_at": at,
        "stage": "reco",
    }
    base |= {"request_key": request.key, "name": "reco"}
    usual = [
        JobPhase(
            job_id=f"1_{n}",
            started_at=at - timedelta(hours=9),
            ended_at=at - timedelta(hours=8),
            **base,
        )
        for n in range(20)
    ]
    stuck, slow, ended, went_on = (
        JobPhase(job_id=name, started_at=at - timedelta(hours=hours), **base)
        for name, hours in (("stuck", 4), ("slow", 2), ("ended", 4), ("went on", 5))
    )
    next_one = JobPhase(
        job_id="went on", started_at=at - timedelta(hours=1), **base | {"name": "store"}
    )
    JobPhase.objects.bulk_create([*usual, stuck, slow, ended, went_on, next_one])
    jobs.row(alps, 7, at=at - timedelta(hours=3), job_id="ended")
    assert [find_stuck_phases(at=at) for _ in range(2)] == [1, 0]
    [event] = Event.objects.filter(kind="request.jobs_stuck")
    assert (event.target_label, event.data["jobs"]) == (request.key, 1)
    shifter = people.person("okafor", (Role.SHIFTER, None))
    assert [phase.job_id for phase in stuck_phases(shifter, at=at)] == ["stuck"]
