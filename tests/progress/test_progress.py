"""The figures of a request equal a recount of its jobs, and never contradict each other."""

import csv
import re
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest

from apps.clusters.schedulers.base import JobState
from apps.core.tasks import deliver_waiting
from apps.core.web.templatetags.formatting import core_hours, percent, size
from apps.jobs.models import Job, QueueCount, QueueReading
from apps.production.domain.campaigns import campaigns_of
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS
from apps.production.enums import PORTAL, Verb
from apps.production.models import Request
from apps.progress.domain.progress import progress_now
from apps.progress.domain.stage_history import count_changed
from tests.database import rolled_back
from tests.factories.jobs import ran as jobs_ran
from tests.factories.jobs import record
from tests.factories.requests import pass_quality, request_in, stage
from tests.progress.test_transitions import SENT, ran

MINUTE = timedelta(minutes=1)
STATES = [JobState.COMPLETED] * 4 + [
    JobState.FAILED,
    JobState.TIMEOUT,
    JobState.CANCELLED,
    JobState.NODE_FAIL,
]


@pytest.fixture
def tested(nova, liaison, approver):
    """A request whose test, of three minutes, ended two minutes before its production started."""
    stages = (stage("generation", jobs=20), stage("simulation", jobs=10))
    request = request_in("testing", by=liaison, experiment=nova, approver=approver, stages=stages)
    MOVE_FUNCTIONS[Verb.START](request=request, by=PORTAL, at=SENT + 5 * MINUTE)
    return Request.objects.get(pk=request.pk)


def test_a_test_that_ended_shortly_before_the_start_is_not_production(alps, tested):
    ran(
        alps,
        tested,
        "generation",
        record(1, submitted_at=SENT + MINUTE, ended_at=SENT + 4 * MINUTE),
    )
    ran(
        alps,
        tested,
        "generation",
        record(2, submitted_at=SENT + MINUTE, ended_at=SENT + 40 * MINUTE),
    )
    row = progress_now(tested, at=SENT + timedelta(hours=1)).stages[0].progress
    assert (row.completed, row.outside_production.tests) == (1, 1), (
        "the clock of the cluster may be slow: the second is production"
    )


def test_a_job_that_ended_in_the_second_of_the_start_is_production(alps, nova, liaison, approver):
    request = request_in("testing", by=liaison, experiment=nova, approver=approver)
    MOVE_FUNCTIONS[Verb.START](request=request, by=PORTAL, at=SENT + timedelta(milliseconds=400))
    name = request.stages.get(position=0).name
    ran(alps, request, name, record(1, submitted_at=SENT, started_at=SENT, ended_at=SENT))
    row = progress_now(Request.objects.get(pk=request.pk), at=SENT + MINUTE).stages[0].progress
    assert (row.completed, row.outside_production.tests) == (1, 0)


def test_jobs_that_finished_after_the_queue_was_read_do_not_run_any_more(alps, tested):
    begun = SENT + 10 * MINUTE
    read = begun + 20 * MINUTE
    QueueReading.objects.create(cluster=alps, at=read)
    count = {"cluster": alps, "request": tested, "newest_submitted_at": begun}
    QueueCount.objects.create(**count, stage="generation", running=12, queued=8)
    for numbers, at in ((range(1, 11), read - MINUTE), (range(21, 29), read + 9 * MINUTE)):
        finished = (record(n, submitted_at=begun, ended_at=begun + n * MINUTE) for n in numbers)
        jobs_ran(alps, tested.key, "generation", *finished, at=at)
    one = progress_now(tested, at=read + 10 * MINUTE).stages[0]
    assert (one.progress.completed, one.waiting.running, one.waiting.queued, one.surplus) == (
        18,
        4,
        8,
        10,
    )


def test_figures_equal_a_recount_and_agree_with_each_other(alps, tested):
    for seed in range(8):
        with rolled_back():
            _check_figures(alps, tested, seed)


def _check_figures(alps, tested, seed):
    random, begun = Random(seed), SENT + timedelta(hours=1)
    for name, number in (("generation", 20), ("simulation", 10)):
        records = []
        for job in range(random.randrange(number + 4)):
            ended = begun + random.randrange(1, 200) * MINUTE
            for attempt in range(1, random.choice((2, 2, 2, 3))):
                state = random.choice(STATES)
                values = {
                    "submitted_at": begun,
                    "ended_at": ended + attempt * MINUTE,
                    "attempt": attempt,
                }
                records.append(record(100 * number + job, state=state, **values))
        ran(alps, tested, name, *records)
    for one in progress_now(tested, at=begun + timedelta(hours=9)).stages:
        last = {}
        for job in Job.objects.filter(request=tested, stage=one.progress.stage).order_by("attempt"):
            last[job.job_id] = job.state
        states = Counter(last.values())
        assert (one.progress.completed, one.progress.ended) == (states["completed"], len(last))
        assert (
            one.progress.sums.jobs
            == one.progress.sums.completed
            + one.progress.sums.failed
            + one.progress.sums.interrupted
        )
        shown = percent(one.progress.completed, one.progress.requested_jobs)
        assert (shown == "0 %") == (one.progress.completed == 0)
        assert (shown == "100 %") == (one.progress.completed == one.progress.requested_jobs)
        assert (one.surplus > 0) == (one.progress.completed > one.progress.requested_jobs)


def test_states_never_add_up_to_more_than_the_jobs(alps, tested):
    for seed in range(12):
        with rolled_back():
            _check_states(alps, tested, seed)


def _check_states(alps, tested, seed):
    """Random attempts and requeues; queues listed some minutes late, with jobs collected before,
    between and after.
    """
    random, begun = Random(seed), SENT + timedelta(hours=1)
    read = begun + random.randrange(60, 200) * MINUTE
    listed = read - random.randrange(5) * MINUTE
    collected = [read + random.choice((-30, -3, -1)) * MINUTE, read + random.randrange(60) * MINUTE]
    count = QueueCount(cluster=alps, request=tested, stage="generation", newest_submitted_at=begun)
    records = []
    for job in range(20):
        started, attempts = begun + random.randrange(200) * MINUTE, random.choice((1, 1, 1, 2, 3))
        count.queued += started > listed
        for attempt in range(1, attempts + 1):
            ended = started + random.randrange(1, 60) * MINUTE
            state = random.choice(STATES) if attempt == attempts else JobState.NODE_FAIL
            count.running += started <= listed < ended
            times = {"submitted_at": begun, "started_at": started, "ended_at": ended}
            records.append(record(job, state=state, attempt=attempt, **times))
            started = ended
    QueueReading.objects.create(cluster=alps, at=read)
    count.save()
    for since, until in pairwise([begun, *collected]):
        mine = [one for one in records if since < one.ended_at <= until]
        jobs_ran(alps, tested.key, "generation", *mine, at=until)
    one = progress_now(tested, at=max(collected)).stages[0]
    shown = (one.progress.completed, one.waiting.queued, one.waiting.running, one.failed_now)
    assert min(shown) >= 0
    assert sum(shown) <= 20, shown
    assert one.surplus == 0


@pytest.mark.parametrize("closing", [Verb.DONE_PARTIAL, Verb.CANCEL])
def test_closed_request_keeps_its_progress_and_counts_jobs_found_later(
    alps, nova, liaison, approver, closing, browse
):
    stages = (stage("generation", jobs=20), stage("simulation", jobs=10))
    about = {
        "by": liaison,
        "experiment": nova,
        "approver": approver,
        "stages": stages,
        "campaign": "MC",
    }
    state = "data_quality" if closing == Verb.DONE_PARTIAL else "running"
    request = request_in(state, **about)
    if closing == Verb.DONE_PARTIAL:
        pass_quality(request, approver)
    begun, client = SENT + timedelta(hours=1), browse(liaison)

    def end(*numbers):
        ran(
            alps,
            request,
            "generation",
            *(record(n, submitted_at=begun, ended_at=begun + MINUTE) for n in numbers),
        )
        count_changed(at=begun + 2 * MINUTE)

    def shown():
        """Return the part of the jobs that have completed on the page, in the list, its file,
        campaigns and API.
        """
        page = re.search(r"([0-9.]+ %) of the jobs", client.get(f"/requests/{request.key}/").text)[
            1
        ]
        row = re.search(r'<td class="number wide">([^<]*%)</td>', client.get("/requests/").text)[1]
        file = next(
            csv.DictReader(b"".join(client.get("/requests/?format=csv")).decode().splitlines())
        )
        api = client.get(f"/api/v1/requests/{request.key}/").json()["part_done"]
        of_campaign = (
            campaigns_of(Request.objects.all())[0].part_done
            if closing == Verb.DONE_PARTIAL
            else api
        )
        return {page, row, file["Progress"], percent(api, 1), percent(of_campaign, 1)}

    end(*range(1, 7))
    assert shown() == {"20 %"}
    MOVE_FUNCTIONS[closing](
        request=Request.objects.get(pk=request.pk),
        by=approver,
        at=begun,
        reason="The release is withdrawn.",
    )
    assert shown() == {"20 %"}
    deliver_waiting()
    assert shown() == {"20 %"}
    end(7, 8, 9)
    assert shown() == {"30 %"}


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 4000, "0 %"), (1, 4000, "<0.1 %"), (3999, 4000, ">99.9 %"), (5, 5, "100 %")],
)
def test_only_nothing_and_everything_are_rounded_to_the_end(part, whole, text):
    assert percent(part, whole) == text


def test_small_figures_are_not_shown_as_nothing():
    assert [core_hours(hours) for hours in (0, 0.48, 80, 1204.4)] == ["0", "0.48", "80", "1,204"]
    assert [size(count) for count in (3e9, 3_145_728_000, 999_960_000)] == [
        "3 GB",
        "3.1 GB",
        "1 GB",
    ]
