"""Debug re-runs: what they change, that they count for nothing, who may,
and the bundle for other jobs.
"""

import subprocess
from datetime import timedelta

import pytest
from django.core.exceptions import ValidationError

from apps.clusters.schedulers.environment import pack
from apps.core.errors import DomainError, InvalidTransition, NotAllowed
from apps.diagnosis.domain.groups.triage import group_for
from apps.jobs.models import Job
from apps.production.domain.lifecycle.moves import make_move
from apps.production.enums import Verb
from apps.submission.domain.arrays.assignment import assign_request, choose_cluster
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.submissions import stage_submissions_of
from apps.submission.domain.debugging.bundle import debug_bundle
from apps.submission.domain.debugging.rerun import (
    TRACE,
    debug_runs_of,
    debugged_by,
    preview,
    profiles_for,
    start_debug_run,
)
from apps.submission.domain.dispatch import dispatch
from apps.submission.models import DebugProfile, Submission
from tests.factories import archive, jobs, people
from tests.factories.bundles import unpack
from tests.factories.requests import AT
from tests.factories.verdicts import judge

LATER = AT + timedelta(minutes=10)


@pytest.fixture
def failed(make, cluster, approver, end_jobs) -> Job:
    """Task 2 of the first array of a request in production, which failed."""
    running = choose_cluster(request=make("running"), cluster=cluster, by=approver, at=AT)
    plan_next(assignment=running, at=AT)
    sent = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    found = end_jobs(sent, failed={2})
    dispatch.refresh_progress(cluster=cluster, at=LATER)
    return next(job for job in found if job.state == "failed")


@pytest.fixture
def profile(nova):
    return DebugProfile.objects.create(
        experiment=nova,
        name="verbose",
        environment="MESSAGELEVEL=debug $(touch evil)",
        arguments="--verbose 'level 3'",
        memory_factor=2,
        most_events=5,
        host="other",
    )


def test_debug_run_is_the_same_job_with_the_changes_of_the_profile(failed, profile, shifter, fake):
    run = start_debug_run(job=failed, profile=profile, by=shifter, at=LATER)
    lines = run.script.splitlines()
    assert "index=${indices[$task]}" in lines
    assert "indices=(2)" in lines
    assert lines[-1].endswith("--verbose 'level 3'")
    assert {
        "export MESSAGELEVEL='debug $(touch evil)'",
        "export OPSPORTAL_MOST_EVENTS=5",
        "set -x",
    } <= set(lines)
    sent = dispatch.send(submission=dispatch.claim_next(cluster=run.cluster, at=LATER), at=LATER)
    options = (fake.directory / f"options.{sent.spool_id}").read_text().split("\0")
    assert f"--exclude={failed.host}" in options
    assert (
        run.asked["memory_bytes"]
        == 2 * Submission.objects.get(purpose="production").asked["memory_bytes"]
    )
    environment = (fake.directory / f"environment.{sent.spool_id}").read_text()
    assert "OPSPORTAL_STAGE=one.debug" in environment


def test_debug_run_of_a_test_has_the_events_of_the_test(
    make, cluster, approver, shifter, end_jobs, fake
):
    cluster.submission = {**cluster.submission, "test_events": 3}
    cluster.save()
    testing = assign_request(
        request=make("queued"), cluster=cluster, by=approver, at=AT, verb=Verb.TEST
    )
    plan_next(assignment=testing, at=AT)
    sent = dispatch.send(submission=dispatch.claim_next(cluster=cluster, at=AT), at=AT)
    [failed] = end_jobs(sent, failed={0})
    assert "OPSPORTAL_EVENTS_PER_JOB=$((3 + " in sent.script

    profile = DebugProfile.objects.create(name="same")
    shown = preview(job=failed, profile=profile, by=shifter, at=LATER)
    assert "OPSPORTAL_EVENTS_PER_JOB=$((3 + " in shown.submission.script
    assert "export OPSPORTAL_TEST=1" in shown.submission.script
    assert "export OPSPORTAL_STAGE=one.debug" in shown.submission.script


def test_preview_shows_what_would_change_and_changes_nothing(failed, profile, shifter):
    shown = preview(job=failed, profile=profile, by=shifter, at=LATER)
    changed = {row.right_text for row in shown.rows if row.kind != "equal"}
    assert "set -x" in changed
    assert not any("OPSPORTAL_SUBMISSION" in text for text in changed)
    assert [name for name, _, _ in shown.options] == ["Memory", "Not on host"]
    assert Submission.objects.filter(purpose="debug").count() == 0


def test_debug_run_counts_for_nothing_and_goes_first_even_on_hold(
    failed, profile, shifter, approver, end_jobs
):
    request = Submission.objects.get().request
    make_move(verb=Verb.HOLD, request=request, by=approver, at=LATER, reason="Wait.")
    before = [
        (stage_row.completed, stage_row.to_retry, stage_row.sent)
        for stage_row in stage_submissions_of(request)
    ]
    run = start_debug_run(job=failed, profile=profile, by=shifter, at=LATER)
    sent = dispatch.send(submission=dispatch.claim_next(cluster=run.cluster, at=LATER), at=LATER)
    (made,) = end_jobs(sent, at=LATER + timedelta(minutes=5))
    Job.objects.filter(pk=made.pk).update(stage="one.debug")
    made.refresh_from_db()
    dispatch.refresh_progress(cluster=run.cluster, at=LATER + timedelta(hours=1))
    assert [
        (stage_row.completed, stage_row.to_retry, stage_row.sent)
        for stage_row in stage_submissions_of(request)
    ] == before
    assert debug_runs_of(failed)[0][1] == made
    assert debugged_by(made) == failed
    assert debugged_by(failed) is None


def test_failure_of_a_debug_run_joins_no_group(failed):
    judge(Submission.objects.get(), {2: "code"}, at=LATER)
    assert group_for(failed.verdict, title="t", line="l", at=LATER) is not None
    failed.verdict.job.stage = "one.debug"
    assert group_for(failed.verdict, title="t", line="l", at=LATER) is None


def test_only_shifters_and_approvers_and_only_jobs_of_the_portal(
    failed, profile, liaison, shifter, cluster
):
    with pytest.raises(NotAllowed):
        start_debug_run(job=failed, profile=profile, by=liaison, at=LATER)
    (other,) = jobs.store(cluster, jobs.record(9999, state="failed"))
    with pytest.raises(InvalidTransition, match="did not submit"):
        start_debug_run(job=other, profile=profile, by=shifter, at=LATER)


def test_profiles_are_those_of_the_experiment_then_for_all(failed, profile):
    assert profiles_for(failed) == [profile]
    DebugProfile.objects.create(name="all")
    DebugProfile.objects.create(name="theirs", experiment=people.experiment("SBND"))
    assert [each.name for each in profiles_for(failed)] == ["verbose", "all"]
    DebugProfile.objects.all().delete()
    assert profiles_for(failed) == [TRACE]


@pytest.mark.parametrize(
    "values",
    [
        {"environment": "a b"},
        {"environment": "OPSPORTAL_STAGE=one"},
        {"arguments": "'open"},
        {"memory_factor": 0},
    ],
)
def test_profile_that_cannot_be_applied_is_refused(db, values):
    with pytest.raises(ValidationError) as refused:
        DebugProfile(name="p", **values).full_clean()
    assert list(refused.value.message_dict) == list(values)


def test_bundle_has_what_was_captured_with_the_changes(cluster, approver, profile, tmp_path):
    script = b"#!/bin/bash\n#SBATCH --time=1\necho $MESSAGELEVEL\n"
    variables = pack(
        [
            (b"HOME", b"/home/alice"),
            (b"TOKEN", b"<masked:0123456789abcdef>"),
            (b"SLURM_JOB_ID", b"77"),
        ]
    )
    captured = archive.captured_job(
        77, cluster=cluster.name, script=script, environment=variables, arguments="a; $(touch evil)"
    )
    archive.store(captured)
    (job,) = jobs.store(
        cluster,
        jobs.record(
            77, state="failed", submitted_at=captured.submitted_at, host="wn-1", job_id="77_3"
        ),
    )
    content = debug_bundle(job=job, profile=profile, by=approver, at=LATER)
    unpack(content, tmp_path)
    where = tmp_path / "debug-77_3"
    assert (
        where / "script.sh"
    ).read_text() == "#!/bin/bash\n#SBATCH --time=1\nset -x  # debug re-run\necho $MESSAGELEVEL\n"
    environment = (where / "environment").read_bytes().split(b"\0")
    assert {b"HOME=/home/alice", b"MESSAGELEVEL=debug $(touch evil)"} <= set(environment)
    assert not any(entry.startswith((b"TOKEN", b"SLURM_")) for entry in environment)
    assert "Set these first: TOKEN" in (where / "README").read_text()
    (tmp_path / "sbatch").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "sbatch").chmod(0o755)
    told = subprocess.run(
        [where / "submit.sh"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert {
        "--array=3",
        "--exclude=wn-1",
        "--export-file=environment",
        "a;",
        "$(touch",
        "evil)",
    } <= set(told)
    assert not (where / "evil").exists()


def test_bundle_is_for_those_who_may_see_environments(failed, profile, shifter):
    with pytest.raises(DomainError):
        debug_bundle(job=failed, profile=profile, by=shifter, at=LATER)


def test_page_shows_changes_submits_and_lists_the_run(failed, profile, shifter, client):
    client.force_login(shifter)
    url = f"/debug-runs/{failed.pk}/"
    shown = client.get(url).content.decode()
    assert "set -x" in shown
    assert "Submit debug re-run" in shown
    assert client.get(url, {"profile": "none"}).status_code == 400
    assert client.post(url, {"profile": "verbose"}).status_code == 302
    assert Submission.objects.get(purpose="debug").profile == "verbose"
    assert "verbose" in client.get(url).content.decode()
    before = Submission.objects.count()
    shown = client.post(url, {"profile": profile.name, "reason": "", "do": "preview"})
    assert (shown.status_code, Submission.objects.count()) == (200, before)
    page = client.get(failed.get_absolute_url()).content.decode()
    assert "Debug re-runs" in page
    api = client.post("/api/v1/debug-runs/", {"job": failed.pk}, content_type="application/json")
    assert (api.status_code, api.json()["job"], api.json()["is_test"]) == (201, failed.pk, False)
    bad = client.post(
        "/api/v1/debug-runs/", {"job": failed.pk, "profile": "x"}, content_type="application/json"
    )
    assert bad.status_code == 400
    assert "verbose" in str(bad.json())


def test_reader_of_the_experiment_sees_why_there_is_no_button(failed, profile, liaison, client):
    client.force_login(liaison)
    shown = client.get(f"/debug-runs/{failed.pk}/").content.decode()
    assert "Approvers and shifters re-run jobs of the portal" in shown
    assert "Submit debug re-run" not in shown
