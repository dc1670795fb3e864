"""How fast the ledger of files is: `python -m benchmarks.files [--files N]`.

Fills the database with requests of a million input files each, and as many output files for the
first one, and visits the pages and lists of files, and those of datasets, as a shifter. Then stores
reports of 100 output files, and the ends of arrays of 1,000 jobs that read one file each. The
outputs of the first request are merged by its second stage: reports that are passed on to it are
timed, and a look that groups what they added. Prints one JSON object last: p95 of all visits in
milliseconds, and for each address the median and the slowest; the median time of a report, and of
one that is passed on; the time of that look; and how many files a second were brought up to date.
With `--directory` the database is kept, and used again.
"""

import argparse
import json
import statistics
import time
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.database import database, set_up_django
from benchmarks.page_visits import visit_pages

FILES_A_REQUEST = 1_000_000
JOBS_AN_ARRAY = 1_000
ARRAYS = 10
#: Requests that only make and read datasets, for the pages of datasets.
DATASET_REQUESTS = 20_000
REPORTS = 100
#: Of a thousand files 970 are done, 10 failed, 10 in a job and 10 waiting; one in 10,000 was done
#: twice.
INPUTS = """
INSERT INTO datasets_inputfile (stage_id, name, run, events, size_bytes, number, state, job_key,
    is_doubled, reason, decided_by, changed_at)
SELECT stage.id, format('raw_%%s_r%%s_%%s.root', stage.id, file / 100, file), file / 100, 50000,
    2900000000, file,
    CASE WHEN file %% 1000 < 970 THEN 'done' WHEN file %% 1000 < 980 THEN 'failed'
        WHEN file %% 1000 < 990 THEN 'taken' ELSE 'waiting' END,
    CASE WHEN file %% 1000 < 980 THEN file END, file %% 10000 = 0, '', '', %(at)s
FROM production_stage stage, generate_series(0, %(files)s - 1) file WHERE stage.position = 0
"""
#: Twenty files a group, all of them merged.
MERGE_INPUTS = """
INSERT INTO datasets_inputfile (stage_id, name, events, size_bytes, number, state, source_number,
    is_doubled, reason, decided_by, changed_at)
SELECT merge.id, output.name, output.events, output.size_bytes, output.number / 20, 'done',
    output.number, false, '', '', %(at)s
FROM datasets_outputfile output, production_stage merge WHERE merge.position = 1
"""
MERGE_SOURCE = """
UPDATE datasets_filetotals SET source_id = %(first)s
WHERE stage_id = (SELECT id FROM production_stage WHERE position = 1)
"""
TOTALS = """
INSERT INTO datasets_filetotals (stage_id, files, waiting, taken, done, failed, given_up, doubled,
    listed_at)
SELECT stage_id, count(*), count(*) FILTER (WHERE state = 'waiting'),
    count(*) FILTER (WHERE state = 'taken'), count(*) FILTER (WHERE state = 'done'),
    count(*) FILTER (WHERE state = 'failed'), 0, count(*) FILTER (WHERE is_doubled), %(at)s
FROM datasets_inputfile GROUP BY stage_id
"""
OUTPUTS = """
INSERT INTO datasets_outputfile (stage_id, key, name, size_bytes, events, checksum, number, counts,
    at, by)
SELECT stage_id, '1_' || number, 'reco_' || number, 2900000000, 50000, 'adler32:0a1b2c3d', number,
    true, %(at)s, 'x'
FROM datasets_inputfile WHERE stage_id = %(first)s AND state = 'done'
"""
OUTPUT_TOTALS = """
INSERT INTO datasets_outputtotals (stage_id, files, counting_files, counting_events, counting_bytes,
    revision)
SELECT stage_id, count(*), count(*), sum(events), sum(size_bytes), 1
FROM datasets_outputfile GROUP BY stage_id
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000_000)
    parser.add_argument("--visits", type=int, default=10, help="of each page")
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with database(options.directory) as (base, url):
        set_up_django(base, url, STATIC_DIR=str(base / "static"), LOG_LEVEL="ERROR")
        from django.core.management import call_command

        from apps.datasets.models import InputFile

        call_command("collectstatic", verbosity=0, interactive=False)
        if not InputFile.objects.exists():
            fill(options.files)
        figures = {
            "files": InputFile.objects.count(),
            **visit_pages(addresses(), options.visits),
            **measure_reports(),
            **measure_merges(),
            **measure_ends(),
        }
        print(json.dumps(figures))


def fill(files: int) -> None:
    from django.db import connection

    from apps.accounts.enums import Role
    from apps.accounts.models import Experiment, Membership, User
    from apps.production.models import Stage
    from tests.factories import requests

    at = datetime.now(UTC)
    nova = Experiment.objects.create(key="NOVA", name="NOvA")
    liaison = User.objects.create(username="liaison")
    Membership.objects.create(user=liaison, role=Role.LIAISON, experiment=nova)
    requests_needed = max(1, files // FILES_A_REQUEST)
    stage = requests.stage("reco", input_dataset="raw", jobs=FILES_A_REQUEST)
    merge = requests.stage("merge", jobs=None)
    requests.draft(liaison, nova, stages=(stage, merge))
    for _ in range(requests_needed - 1):
        requests.draft(liaison, nova, stages=(stage,))
    first = Stage.objects.order_by("pk").values_list("pk", flat=True)[0]
    values = {"at": at, "files": min(files, FILES_A_REQUEST), "first": first}
    fill_datasets(Stage.objects.latest("pk"))
    with connection.cursor() as cursor:
        for statement in (INPUTS, OUTPUTS, MERGE_INPUTS, TOTALS, OUTPUT_TOTALS, MERGE_SOURCE):
            cursor.execute(statement, values)
        cursor.execute("VACUUM ANALYZE")


def fill_datasets(stage: Any) -> None:
    """Copy a stage and its request, each with datasets of its own: ten read each output."""
    from apps.production.models import Request, Stage

    requests = []
    for number in range(DATASET_REQUESTS):
        request = Request.objects.get(pk=stage.request_id) if not requests else copy(requests[0])
        request.pk = None
        request.key = f"NOVA-B{number}"
        requests.append(request)
    Request.objects.bulk_create(requests, batch_size=2_000)
    stages = []
    for number, request in enumerate(requests):
        copied = copy(stage)
        copied.pk = None
        copied.request = request
        # They have no ledger: `INPUTS` fills the stages at the first position.
        copied.position = 2
        copied.input_dataset = f"made_{number // 10}" if number else "raw"
        copied.output_dataset = f"made_{number}"
        stages.append(copied)
    Stage.objects.bulk_create(stages, batch_size=2_000)


def addresses() -> list[str]:
    """Return the pages and lists of the first request, with their filters, and of datasets."""
    from apps.production.models import Stage

    stage = Stage.objects.select_related("request").earliest("pk")
    base = f"/submissions/{stage.request.key}/files/"
    return [
        base,
        f"{base}list/?stage=1",
        f"{base}list/?stage=1&state=done",
        f"{base}list/?stage=1&state=failed",
        f"{base}list/?stage=1&state=missing",
        f"{base}list/?stage=1&state=twice",
        f"{base}list/?stage=1&q=raw_{stage.pk}_r77_",
        f"{base}list/?stage=1&q=nothing",
        f"{base}outputs/?stage=1",
        f"{base}outputs/?stage=1&q=reco_4711",
        f"{base}give-up/?stage=1",
        f"{base}?stage=2",
        f"{base}list/?stage=2",
        f"{base}list/?stage=2&state=withdrawn",
        f"{base}download/?stage=1&what=copies",
        "/datasets/",
        "/datasets/?sort=name",
        "/datasets/?q=made_77",
        "/datasets/?q=nothing",
        "/datasets/?page=200",
        "/datasets/?made=no",
        "/datasets/dataset/?name=made_7",
        "/datasets/dataset/?name=made_7777",
    ]


def measure_reports() -> dict[str, float]:
    """Return the median time of a report of 100 files beside a million, in milliseconds."""
    from apps.datasets.domain.output_files import NamedFile
    from apps.production.models import Stage
    from apps.submission.domain.arrays.output_files import store_files

    stage = Stage.objects.select_related("request__experiment").earliest("pk")
    files = []
    for number in range(100):
        files.append(NamedFile(f"new_{number}.root", 10**9, 1_000, 7, "adler32:0a1b2c3d"))
    times = []
    at = datetime.now(UTC)
    for number in range(REPORTS):
        started = time.perf_counter()
        store_files(stage=stage, key=f"9999_{number}", files=files, by="x", at=at)
        times.append(1000 * (time.perf_counter() - started))
    return {"report_ms": round(statistics.median(times), 1)}


def measure_merges() -> dict[str, float]:
    """Return the times in milliseconds of reports that are passed on, and of grouping the files."""
    from django.db import transaction

    from apps.datasets.domain.output_files import NamedFile, store_output_files
    from apps.production.models import Stage
    from apps.submission.domain.arrays.merging import take_groups

    source = Stage.objects.select_related("request").earliest("pk")
    merge = source.request.stages.get(position=1)
    merge.arguments = {"split": "per N files", "files_per_job": 20}
    at = datetime.now(UTC)
    times = []
    for number in range(REPORTS):
        files = []
        for place in range(100):
            files.append(NamedFile(f"more_{number}_{place}.root", 10**9, 1_000, number))
        report = {"stage": source, "key": f"1_{number}", "number": number, "files": files}
        started = time.perf_counter()
        store_output_files(**report, by="x", at=at, replaces=False)
        times.append(1000 * (time.perf_counter() - started))
    started = time.perf_counter()
    with transaction.atomic():
        jobs = take_groups(
            merge, source=source, has_ended=False, first=FILES_A_REQUEST, most=1_000, at=at
        )
    look_ms = round(1000 * (time.perf_counter() - started), 1)
    return {
        "passed_on_ms": round(statistics.median(times), 1),
        "groups": jobs,
        "look_ms": look_ms,
    }


def measure_ends() -> dict[str, float]:
    """Return how many files of ended jobs are brought up to date in a second."""
    from apps.clusters.models import Cluster
    from apps.jobs.models import Job
    from apps.production.models import Stage
    from apps.submission.domain.arrays.files import follow_jobs
    from apps.submission.models import Submission

    stages = Stage.objects.filter(position=0)
    stage = stages.select_related("request").latest("pk")
    cluster, _ = Cluster.objects.get_or_create(name="farm", defaults={"scheduler": "slurm"})
    at = datetime.now(UTC)
    arrays = []
    start = stage.request.submissions.count()
    for number in range(start, start + ARRAYS):
        array = Submission.objects.create(
            request=stage.request, cluster=cluster, number=number + 1, position=0,
            stage_name="reco", first=number * JOBS_AN_ARRAY, tasks=JOBS_AN_ARRAY, state="sent",
            spool_id=str(10_000 + number), sent_at=at - timedelta(hours=3), due_at=at,
            created_at=at, created_by="x",
        )  # fmt: skip
        arrays.append(array)
        jobs = []
        for task in range(JOBS_AN_ARRAY):
            jobs.append(
                Job(
                    cluster=cluster, job_id=f"{array.spool_id}_{task}",
                    raw_id=int(array.spool_id) * JOBS_AN_ARRAY + task, spool_id=array.spool_id,
                    state="failed" if task % 10 == 0 else "completed", exit_code=0,
                    submitted_at=at - timedelta(hours=2), started_at=at - timedelta(hours=1),
                    ended_at=at, host="wn-1", wall_seconds=3600, collected_at=at,
                )
            )  # fmt: skip
        Job.objects.bulk_create(jobs)
    started = time.perf_counter()
    for array in arrays:
        follow_jobs(array, at=at)
    seconds = time.perf_counter() - started
    return {"files_per_second": round(ARRAYS * JOBS_AN_ARRAY / seconds)}


if __name__ == "__main__":
    main()
