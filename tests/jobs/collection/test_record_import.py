"""Job records sent to the portal: stored once, the bad ones kept as they came."""

import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from apps.jobs.domain.collection.record_import import import_records, lines_of
from apps.jobs.models import FlaggedRecord, Job
from tests.clusters.test_exports import EVENTS
from tests.factories.jobs import AT

GOOD = {
    "job_id": "4711_3",
    "state": "failed",
    "submitted_at": "2026-11-20T08:00:00+01:00",
    "started_at": "2026-11-20T07:10:00Z",
    "ended_at": int((AT - timedelta(hours=2)).timestamp()),
    "exit_code": "65",
    "cpus": 2,
    "cpu_seconds": 5000.5,
    "cpu_model": "EPYC 7543",
    "bytes_out": 3_000_000_000,
    "name": "a|b\nc",
}
BAD = {
    "state": {"state": "exploded"},
    "future": {"ended_at": "2027-01-01T00:00:00Z"},
    "before": {"ended_at": "2026-11-20T06:00:00Z"},
    "cpu_seconds": {"cpu_seconds": 5e9},
    "number": {"cpus": "NaN"},
    "Unknown": {"colour": "red"},
    "missing": {"job_id": ""},
    "offset": {"submitted_at": "2026-11-20 08:00"},
}


def test_batch_is_idempotent_and_bad_records_stop_no_others(alps, nova):
    texts = [
        json.dumps(GOOD),
        '{"job_id": "4712", "sta',
        *(json.dumps(GOOD | change) for change in BAD.values()),
    ]
    done = import_records(cluster=alps, records=lines_of(texts), at=AT)
    assert (done.new, done.rejected) == (1, 1 + len(BAD))
    assert all(word in reason for word, (_, reason) in zip(BAD, done.problems[1:], strict=True))
    job = Job.objects.get()
    assert (job.raw_id, job.wall_seconds, job.cpu_model, job.name) == (
        4711,
        10_200,
        "EPYC 7543",
        "a|b\nc",
    )
    again = import_records(cluster=alps, records=lines_of(texts), at=AT)
    assert (again.new, again.changed, again.unchanged) == (0, 0, 1)
    assert FlaggedRecord.objects.count() == 1 + len(BAD)
    assert FlaggedRecord.objects.filter(raw='{"job_id": "4712", "sta').exists()


def test_api_takes_json_and_ndjson_from_the_opg_alone(alps, nova, client, shifter, liaison):
    batch = {"cluster": "alps", "records": [GOOD, {"job_id": 7}]}
    client.force_login(liaison)
    assert (
        client.post("/api/v1/job-records/", batch, content_type="application/json").status_code
        == 403
    )
    client.force_login(shifter)
    answer = client.post("/api/v1/job-records/", batch, content_type="application/json")
    assert answer.json()["new"] == answer.json()["rejected"] == 1, answer.content
    assert answer.json()["problems"] == [{"record": 2, "reason": "state is missing."}]
    lines = json.dumps(GOOD) + "\nnot json\n"
    answer = client.post(
        "/api/v1/job-records/?cluster=alps", lines, content_type="application/x-ndjson"
    )
    assert (answer.json()["unchanged"], answer.json()["rejected"]) == (1, 1), answer.content


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.ndjson"])
def test_command_imports_a_file(alps, nova, tmp_path, capsys, name):
    path = tmp_path / name
    fields = {key: value for key, value in GOOD.items() if key != "name"}
    csv = ",".join(fields) + "\n" + ",".join(map(str, fields.values())) + "\n"
    path.write_text(csv if name.endswith("csv") else json.dumps(fields) + "\n")
    call_command("import_jobs", str(path), cluster="alps")
    assert capsys.readouterr().out == "1 records: 1 new, 0 changed, 0 unchanged, 0 rejected\n"
    assert Job.objects.get().exit_code == 65


def test_command_imports_what_a_scheduler_wrote(alps, nova, tmp_path, capsys):
    path = tmp_path / "events.log"
    path.write_text(EVENTS)
    call_command(
        "import_jobs",
        str(path),
        "--cluster=alps",
        "--format=condor-events",
        "--time-zone=Europe/Berlin",
    )
    assert capsys.readouterr().out == "1 records: 1 new, 0 changed, 0 unchanged, 0 rejected\n"
    assert Job.objects.get().ended_at.hour == 9
    with pytest.raises(CommandError, match="not a time zone"):
        call_command("import_jobs", str(path), "--cluster=alps", "--time-zone=Mars/Olympus")
