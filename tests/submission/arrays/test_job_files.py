"""Output files that jobs themselves report, with the token in their environment."""

import pytest
from django.core.cache import cache
from django.utils import timezone

from apps.accounts.enums import Role
from apps.datasets.domain import output_files
from apps.datasets.models import InputFile, OutputFile
from apps.jobs.domain.phases.tokens import issue_phase_token, new_phase_token
from apps.production.models import Request
from apps.submission.domain.arrays import output_files as reports
from apps.submission.domain.arrays.files import follow_jobs
from apps.submission.domain.arrays.rows import batch_job
from apps.submission.models import Submission
from tests.factories import people
from tests.factories.requests import AT
from tests.submission.arrays.test_output_files import array
from tests.submission.test_keep_up import HOUR, detector, keep_up

__all__ = ["array", "detector", "keep_up"]  # fixtures


def token_of(submission) -> str:
    submission.refresh_from_db()
    return batch_job(submission).environment["OPSPORTAL_PHASE_TOKEN"]


def post(client, token, *names, job_id, **more):
    files = []
    for name in names:
        files.append({"name": name, "size_bytes": 7, **more})
    return send(client, token, {"job_id": job_id, "files": files})


def send(client, token, body):
    headers = {"Authorization": f"Bearer {token}"}
    return client.post("/api/v1/job-files/", body, content_type="application/json", headers=headers)


def listed() -> list[tuple[str, str, int | None, bool, str]]:
    rows = OutputFile.objects.order_by("key", "name")
    return list(rows.values_list("key", "name", "number", "counts", "by"))


def test_a_job_reports_its_files_one_by_one(array, client, end_jobs):
    token = token_of(array)
    job = f"{array.spool_id}_1"
    first = post(client, token, "x", job_id=job, parents=["b"], checksum="md5:" + 32 * "a")
    assert first.json() == {"stored": 1, "counts": False, "note": ""}
    for _ in range(2):
        assert post(client, token, "y", job_id=job).json()["stored"] == 1
    by = f"job {job}"
    assert listed() == [(job, "x", 1, False, by), (job, "y", 1, False, by)]
    end_jobs(array, at=AT + HOUR)
    follow_jobs(array, at=AT + 2 * HOUR)
    assert listed() == [(job, "x", 1, True, by), (job, "y", 1, True, by)]
    body = {"job_id": job, "replaces": True, "files": [{"name": "z", "size_bytes": 1}]}
    assert send(client, token, body).json() == {"stored": 1, "counts": True, "note": ""}
    assert listed() == [(job, "z", 1, True, by)]
    assert Request.objects.get(pk=array.request_id).work_began_at is not None


def test_a_token_is_of_one_array(array, client):
    token = token_of(array)
    assert post(client, token, "x", job_id="999_0").status_code == 403
    refused = post(client, token, "x", job_id=f"{array.spool_id}_3")
    assert (refused.status_code, list(refused.json())) == (400, ["job_id"])
    assert post(client, token[:-1] + "!", "x", job_id=f"{array.spool_id}_0").status_code == 401
    assert post(client, "", "x", job_id=f"{array.spool_id}_0").status_code == 401
    assert not OutputFile.objects.exists()


def test_faults_are_named_and_nothing_is_stored(array, client):
    token = token_of(array)
    job = f"{array.spool_id}_1"
    refused = post(client, token, "x", job_id=job, parents=["b", "a"], checksum="md5:1")
    assert refused.status_code == 400
    assert sorted(refused.json()) == ["files.0.checksum", "files.0.parents.1"]
    refused = post(client, token, "x", job_id=job, host="node01")
    assert (refused.status_code, list(refused.json())) == (400, ["files.0.host"])
    assert send(client, token, {"job_id": job, "files": []}).status_code == 400
    assert not OutputFile.objects.exists()


@pytest.mark.parametrize("purpose", ["test", "debug"])
def test_tests_and_debug_reruns_store_nothing_and_say_so(array, client, purpose):
    token = token_of(array)
    Submission.objects.filter(pk=array.pk).update(purpose=purpose)
    answer = post(client, token, "x", job_id=f"{array.spool_id}_0")
    assert answer.status_code == 200
    assert answer.json() == {
        "stored": 0,
        "counts": False,
        "note": "Files of tests and debug re-runs are not stored.",
    }
    assert not OutputFile.objects.exists()


def test_a_job_reports_before_the_portal_knows_the_id_of_its_array(array, client):
    token = token_of(array)
    job = f"{array.spool_id}_2"
    Submission.objects.filter(pk=array.pk).update(state="sending", spool_id="", sent_at=None)
    assert post(client, token, "x", job_id=job, parents=["b"]).status_code == 400
    assert post(client, token, "x", job_id=job, parents=["c"]).status_code == 200
    assert listed() == [(job, "x", 2, False, f"job {job}")]


def test_a_request_that_has_no_jobs_refuses(array, client):
    token = token_of(array)
    Request.objects.filter(pk=array.request_id).update(state="cancelled", closed_at=AT)
    assert post(client, token, "x", job_id=f"{array.spool_id}_0").status_code == 409


def test_jobs_with_a_token_of_a_user(array, client, liaison, nova):
    array.refresh_from_db()
    token = issue_phase_token(
        user=liaison,
        cluster_id=array.cluster_id,
        experiment_id=nova.pk,
        request_key=array.request.key,
        stage="RECO",
        at=timezone.now(),
    )
    job = f"{array.spool_id}_0"
    assert post(client, token, "x", job_id=job).json()["stored"] == 1
    assert listed() == [(job, "x", 0, False, f"job {job}")]
    refused = post(client, token, "x", job_id="4711")
    assert (refused.status_code, list(refused.json())) == (400, ["job_id"])
    InputFile.objects.all().delete()
    array.request.stages.get(position=0).file_totals.delete()
    assert post(client, token, "x", job_id="86[3].server").json()["counts"] is True


def test_tokens_that_name_no_stage_to_count_for(array, client, nova, dune):
    values = {
        "cluster_id": array.cluster_id,
        "experiment_id": nova.pk,
        "request_key": array.request.key,
        "stage": "reco",
    }

    def post_with(**changes):
        token = new_phase_token(at=timezone.now(), **{**values, **changes})
        return post(client, token, "x", job_id="1_1")

    for stage in ("reco.test", "reco.debug"):
        answer = post_with(stage=stage)
        assert (answer.status_code, answer.json()["stored"]) == (200, 0)
    others = [{"stage": "none"}, {"request_key": ""}, {"experiment_id": dune.pk}, {"cluster_id": 0}]
    for changes in others:
        assert post_with(**changes).status_code == 403, changes
    assert not OutputFile.objects.exists()


def test_a_token_of_a_user_ends_with_the_role(array, client, nova):
    maker = people.person("liu", (Role.LIAISON, nova))
    token = issue_phase_token(
        user=maker, cluster_id=array.cluster_id, experiment_id=nova.pk,
        request_key=array.request.key, stage="reco", at=timezone.now(),
    )  # fmt: skip
    maker.memberships.all().delete()
    assert post(client, token, "x", job_id="1_1").status_code == 401


def test_files_of_a_job_and_of_a_day_are_limited(
    array, client, monkeypatch, django_capture_on_commit_callbacks
):
    cache.clear()
    token = token_of(array)
    monkeypatch.setattr(output_files, "FILES_A_JOB", 2)
    monkeypatch.setattr(reports, "FILES_A_DAY", 3)

    def report(task, *names):
        with django_capture_on_commit_callbacks(execute=True):
            return post(client, token, *names, job_id=f"{array.spool_id}_{task}")

    assert report(0, "a", "b").status_code == 200
    refused = report(0, "c")
    assert (refused.status_code, refused.json()) == (
        400,
        {"files": ["A job can list at most 2 files."]},
    )
    assert report(0, "b").status_code == 200
    assert report(1, "c").status_code == 200
    refused = report(2, "d")
    assert (refused.status_code, int(refused["Retry-After"]) > 0) == (429, True)
    assert "The jobs of this experiment have reported 3 files today" in refused.json()["detail"]
    assert OutputFile.objects.count() == 3
