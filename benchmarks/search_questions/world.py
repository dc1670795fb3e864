"""A database with logs and scripts for the questions, and what stands in it, in memory."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import zstandard

from benchmarks.search import store_logs
from benchmarks.search_questions.lines import log_lines, script_lines
from benchmarks.where_else import JOBS, job_values

DAYS = 70
#: One script for so many logs, each of which is submitted so many times.
LOGS_A_SCRIPT, TIMES_SUBMITTED = 50, 5
STORED_AT_ONCE = 500
#: Several jobs end at one time, and belong to two experiments or to none.
VARIED = """
UPDATE jobs_job SET
    ended_at = date_trunc('hour', ended_at) + interval '10 minutes' * (raw_id %% 6),
    state = CASE WHEN raw_id %% 17 = 3 THEN 'timeout' ELSE state END,
    experiment_id = CASE WHEN raw_id %% 19 = 0 THEN NULL
        WHEN raw_id %% 3 = 0 THEN %(other)s ELSE experiment_id END
"""


@dataclass(frozen=True)
class Text:
    """A text that can be a hit, and what the fields of a query ask for.

    `order` is the place of its hit: time, source and primary key.
    """

    order: tuple[datetime, str, int]
    data: bytes
    lowered: str
    experiment: str
    state: str
    stage: str
    host: str = ""
    site: str = ""


def fill(logs: int, *, seed: int, samples: Sequence[bytes]) -> None:
    """Store jobs with logs, and submissions with scripts, and index the scripts."""
    from django.db import connection

    from apps.accounts.models import Experiment

    chance = random.Random(seed)

    def texts_of(job: Any) -> dict[str, bytes]:
        failed = job.state != "completed"
        text = log_lines(chance, number=job.raw_id, failed=failed, samples=samples)
        if chance.random() < 0.8:
            return {"stderr": text}
        other = log_lines(chance, number=1, failed=False, samples=samples)
        return {"stderr": text, "stdout": other}

    other = Experiment.objects.create(key="DUNE", name="DUNE").pk
    with connection.cursor() as cursor:
        cursor.execute(JOBS, job_values(logs) | {"days": DAYS})
        cursor.execute(VARIED, {"other": other})
    store_logs(texts_of)
    _store_scripts(max(1, logs // LOGS_A_SCRIPT), chance)


def _store_scripts(scripts: int, chance: random.Random) -> None:
    from apps.accounts.models import Experiment
    from apps.archive.domain.search import word_index
    from apps.archive.models import ArchivedJob
    from tests.factories.archive import captured_job, store

    experiments = list(Experiment.objects.order_by("pk"))
    contents = [script_lines(chance) for _ in range(scripts)]
    submissions = []
    for number in range(1, scripts * TIMES_SUBMITTED + 1):
        script = chance.choice(contents)
        minutes = -chance.randrange(DAYS * 1440)
        submissions.append(captured_job(number, minutes=minutes, script=script))
        if len(submissions) == STORED_AT_ONCE or number == scripts * TIMES_SUBMITTED:
            store(*submissions)
            submissions = []
    rows = list(ArchivedJob.objects.order_by("pk"))
    for row in rows:
        row.experiment = chance.choice(experiments)
        row.state = chance.choice(["failed", "completed"])
        row.stage = chance.choice(["stage1", "stage2"])
    ArchivedJob.objects.bulk_update(rows, ["experiment", "state", "stage"], batch_size=1_000)
    while word_index.jobs_waiting(at_most=1):
        word_index.index_batch(at=datetime.now(UTC))


def read_texts() -> list[Text]:
    """Return all texts, newest hit first, as they are kept: secrets in logs are starred."""
    texts = [*_logs(), *_scripts()]
    return sorted(texts, key=lambda text: text.order, reverse=True)


def _logs() -> Iterator[Text]:
    from apps.diagnosis.models import LogExcerpt
    from apps.jobs.models import Job

    decompressor = zstandard.ZstdDecompressor()
    by_job: dict[int, list[bytes]] = {}
    rows = LogExcerpt.objects.order_by("harvest__job", "stream")
    for job, compressed in rows.values_list("harvest__job", "compressed").iterator():
        by_job.setdefault(job, []).append(decompressor.decompress(bytes(compressed)))
    for job in Job.objects.select_related("experiment", "site"):
        data = b"\n".join(by_job.pop(job.pk))
        yield Text(
            (job.ended_at, "log", job.pk),
            data,
            in_lower_case(data.decode("utf-8", "backslashreplace")),
            job.experiment.key if job.experiment else "",
            job.state,
            job.stage,
            job.host,
            job.site.name if job.site else "",
        )


def _scripts() -> Iterator[Text]:
    from apps.archive.domain.store.contents import read_blob
    from apps.archive.models import ArchivedJob

    contents: dict[int, bytes] = {}
    for row in ArchivedJob.objects.select_related("experiment", "script"):
        if row.script_id not in contents:
            contents[row.script_id] = read_blob(row.script)
        data = contents[row.script_id]
        yield Text(
            (row.submitted_at, "script", row.pk),
            data,
            in_lower_case(data.decode("utf-8", "backslashreplace")),
            row.experiment.key if row.experiment else "",
            row.state,
            row.stage,
        )


def in_lower_case(text: str) -> str:
    """Return a text in lower case, letter by letter, and with one sigma and one micro sign."""
    if text.isascii():
        return text.lower()
    return "".join(letter.lower() for letter in text).replace("ς", "σ").replace("µ", "μ")
