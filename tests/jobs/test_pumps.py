"""No text of a job or of a post keeps a process busy: parsers with 200 kB of their worst input."""

import pytest

from apps.core.errors import InvalidFields
from apps.datasets.domain.output_files import NamedFile
from apps.jobs.domain.collection.accounting import store_records
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.records.conversion import columns_of
from apps.jobs.filters import JobFilter
from apps.jobs.models import Collection, Job
from apps.production.models import Stage
from apps.quality.checks import Histogram, Posted
from apps.quality.domain.posts import histogram_problems, name_files, post_result
from apps.submission.domain.arrays.scripts import (
    StagePlan,
    _command_words,
    _plain,
    _word,
    write_script,
)
from apps.submission.domain.arrays.submissions import read_ranges, write_ranges
from apps.submission.web.templatetags.sent_jobs import numbers_of_jobs
from tests.factories.jobs import AT, record, store
from tests.factories.requests import request_in
from tests.pumps import MOST_SECONDS, seconds_of
from tests.worst_inputs import SIZE

#: Texts that keep searches with backtracking busy: assignments, quotes, URLs and tokens that never
#: end.
HOSTILE = (
    "A=",
    "A='",
    "a://b:",
    "eyJaaaaaaaa.",
    "-----BEGIN ",
    "TOKEN=a,",
    "=",
    "'\"",
    " ",
    "a",
    "\0",
    "\ud800",
)


def pumped(part: str) -> str:
    return (part * (SIZE // len(part) + 1))[:SIZE]


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_record_is_stored_in_no_time(alps, part):
    hostile = record(
        1, submit_line=pumped(part), comment=pumped(part), name=pumped(part), work_dir=pumped(part)
    )
    assert seconds_of(lambda: columns_of([hostile])) < MOST_SECONDS
    Collection.objects.create(cluster=alps, collected_until=AT)
    assert seconds_of(lambda: store_records(cluster=alps, records=[hostile], at=AT)) < MOST_SECONDS


def test_known_records_are_neither_masked_nor_compared_again(alps, monkeypatch):
    hostile = record(1, submit_line=f"sbatch --export=DB_PASSWORD=x {pumped('A=')}")
    (job,) = store(alps, hostile)
    asked = []
    monkeypatch.setattr("apps.jobs.domain.collection.accounting.columns_of", asked.append)
    assert store_records(cluster=alps, records=[hostile], at=AT) == (0, 0)
    assert asked == []
    assert "DB_PASSWORD=x" not in Job.objects.get(pk=job.pk).submit_line


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_request_key_and_stage_are_read_in_no_time(alps, part):
    (job,) = store(alps, record(1))
    assert (
        seconds_of(lambda: attach_origin(origins={job.pk: ("NOVA-1", pumped(part))}, at=AT))
        < MOST_SECONDS
    )
    assert (
        seconds_of(lambda: attach_origin(origins={job.pk: (pumped(part), "x")}, at=AT))
        < MOST_SECONDS
    )


def test_ranges_are_read_and_written_in_no_time():
    every_other = range(0, 60_000, 2)
    text = write_ranges(every_other)
    assert len(text) > SIZE * 0.8
    assert seconds_of(lambda: write_ranges(every_other)) < MOST_SECONDS
    assert seconds_of(lambda: list(read_ranges(text))) < MOST_SECONDS
    assert seconds_of(lambda: numbers_of_jobs(text)) < MOST_SECONDS


@pytest.mark.parametrize("part", ["{seed}", "{output_dataset}", "{{", "a'", "$(", "{seed}'"])
def test_words_of_a_command_are_quoted_in_no_time(part):
    word, texts = pumped(part)[: SIZE // len(part) * len(part)], {"output_dataset": "a'b"}

    def quote():
        _command_words((word, (word, word)), texts)
        _word(word, texts)
        _plain(word, texts)

    assert seconds_of(quote) < MOST_SECONDS


def test_script_with_many_files_is_written_in_no_time():
    plan = StagePlan(
        request_key="NOVA-1", position=0, name="s", words=("a", "'b'" * 60_000), jobs=1, events=1, first_seed=1,
        memory_bytes=1, wall_seconds=1,
    )  # fmt: skip
    files = {number: [pumped("a'")[:2_000]] for number in range(100)}
    assert seconds_of(lambda: write_script(plan, indices=range(20_000), files=files)) < MOST_SECONDS


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_posts_are_refused_in_no_time(part, db, nova, liaison, approver):
    request = request_in("running", by=liaison, experiment=nova, approver=approver)
    stage, text = (
        Stage.objects.select_related("request__experiment").get(request=request, position=0),
        pumped(part),
    )
    by_and_at = {"by": liaison, "at": AT}

    def post():
        with pytest.raises(InvalidFields):
            name_files(stage=stage, key=text, files=[NamedFile(text, 1)] * 1_000, **by_and_at)
        posted = Posted(name=text, outcome=text, why=text, link=f"https://{text}")
        with pytest.raises(InvalidFields):
            post_result(request=request, posted=posted, **by_and_at)

    assert seconds_of(post) < MOST_SECONDS


def test_hostile_histogram_is_refused_in_no_time():
    many = list(range(SIZE))
    posted = Histogram(name="x", edges=many, reference=many, observed=many)
    assert seconds_of(lambda: histogram_problems(posted)) < MOST_SECONDS


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_filters_are_refused_in_no_time(part, db):
    values = dict.fromkeys(JobFilter.base_filters, pumped(part))
    assert (
        seconds_of(lambda: JobFilter(values, queryset=Job.objects.all()).is_valid()) < MOST_SECONDS
    )
