"""Event logs of HTCondor: what they say of a job's end counts where accounting is silent."""

import pytest

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.engine.base import Block, JobFacts
from apps.diagnosis.engine.diagnose import diagnose
from apps.diagnosis.engine.formats.condor_events import with_events
from apps.diagnosis.engine.registry import classifiers
from apps.diagnosis.enums import Category, VerdictKind

BEGUN = """000 (27.{0}.000) 2026-03-06 13:00:00 Job submitted from host: <10.0.0.1:9618>
...
001 (27.{0}.000) 03/06 13:00:10 Job executing on host: <10.0.0.2:9618>
...
"""
ENDED = """005 (27.000.000) 2026-03-06 13:10:00 Job terminated.
\t{}
\t\tUsr 0 00:00:05, Sys 0 00:00:00  -  Run Remote Usage
...
"""
HELD = """012 (27.000.000) 2026-03-06T13:05:00.123Z Job was held.
\tError from slot1@wn: something odd
\tCode {} Subcode 0
...
"""
RELEASED = """013 (27.000.000) 2026-03-06 13:06:00 Job was released.
\tvia condor_release (by user alice)
...
"""


def block(*events):
    data = "".join(events).encode()
    return Block(data=data, offset=0, file_bytes=len(data), first_line=1)


def told(*events, **facts):
    return with_events(JobFacts(**facts), [block(*events)])


@pytest.mark.parametrize(
    ("words", "state", "exit_code", "signal"),
    [
        ("(1) Normal termination (return value 0)", JobState.COMPLETED, 0, None),
        ("(1) Normal termination (return value 65)", JobState.FAILED, 65, None),
        ("(0) Abnormal termination (signal 11)", JobState.FAILED, None, 11),
    ],
)
def test_end_of_a_job(words, state, exit_code, signal):
    found = told(BEGUN.format("000"), ENDED.format(words))
    assert (found.state, found.exit_code, found.signal) == (state, exit_code, signal)


def test_accounting_knows_better():
    facts = JobFacts(state=JobState.TIMEOUT)
    assert (
        with_events(facts, [block(BEGUN.format("000"), ENDED.format("(return value 1)"))]) == facts
    )


def test_job_that_goes_on_has_no_end():
    assert told(BEGUN.format("000")) == JobFacts()
    assert told(BEGUN.format("000"), HELD.format(34), RELEASED) == JobFacts()
    released = told(
        BEGUN.format("000"), HELD.format(34), RELEASED, ENDED.format("(return value 0)")
    )
    assert (released.state, released.reason) == (JobState.COMPLETED, "")


def test_jobs_of_one_submission_are_not_taken_for_each_other():
    assert (
        told(BEGUN.format("000"), BEGUN.format("001"), ENDED.format("(return value 1)"))
        == JobFacts()
    )


def test_job_of_the_last_submission_counts():
    """Its log is appended to that of the earlier one."""
    earlier = (BEGUN.format("000"), ENDED.format("(return value 1)"))
    later = [
        text.replace("(27.", "(28.")
        for text in (BEGUN.format("000"), ENDED.format("(return value 0)"))
    ]
    assert told(*earlier, *later).exit_code == 0
    assert told(*earlier, later[0]) == JobFacts()


@pytest.mark.parametrize(
    ("code", "verdict", "category"),
    [
        (34, VerdictKind.RESOURCE, Category.RESOURCE),
        (4, VerdictKind.SERVICE, Category.SERVICE),
        (14, VerdictKind.CODE, Category.CONFIGURATION),
        (1, VerdictKind.USER, Category.USER),
    ],
)
def test_hold_code_says_more_than_a_word_of_its_reason(code, verdict, category):
    diagnosis = diagnose(
        JobFacts(), [block(BEGUN.format("000"), HELD.format(code))], classifiers=classifiers()
    ).verdict
    assert (diagnosis.verdict, diagnosis.category) == (verdict, category)


def test_other_logs_tell_nothing():
    text = "005 (27.000.000) 2026-03-06 13:10:00 Job terminated.\n\t(return value 1)\n"
    assert told(text) == told("Step 5 done, return value 1\n") == JobFacts()
