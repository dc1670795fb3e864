"""Files are divided among jobs, and the ledger follows what the jobs came to."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.base import JobState
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.datasets.domain.ledger import recount, totals_of
from apps.datasets.models import FileTotals, InputFile, OutputFile, RepeatedResult
from apps.jobs.models import Job
from apps.production.domain.lifecycle.moves import make_move
from apps.production.enums import RequestState, Verb
from apps.production.models import Request
from apps.submission.domain.arrays.assignment import assign_request, choose_cluster
from apps.submission.domain.arrays.files import check_ledger, follow_jobs, ledgers_to_check
from apps.submission.domain.arrays.plan import lock_request, plan_next, plan_retry
from apps.submission.domain.arrays.submissions import indices_of, read_ranges
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.files.decisions import give_up, take_back
from apps.submission.domain.retries.by_stage import retry_failed as retry_stage
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission
from tests.factories.jobs import row
from tests.factories.people import person
from tests.factories.requests import AT
from tests.submission.conftest import NAMES

HOUR = timedelta(hours=1)


def send(assignment, at=AT):
    plan_next(assignment=assignment, at=at)
    claimed = dispatch.claim_next(cluster=assignment.cluster, at=at)
    return dispatch.send(submission=claimed, at=at) if claimed else None


def cancel(request, by):
    make_move(verb=Verb.CANCEL, request=request, by=by, at=AT, reason="Not needed.")


def states(request, position=0):
    """Return the state of each file by name, having checked that the totals are right."""
    stage = request.stages.all()[position]
    totals = totals_of(request)[position]
    counted = recount(stage)
    assert counted == {column: getattr(totals, column) for column in counted}
    assert totals.files == sum(
        (totals.waiting, totals.taken, totals.done, totals.failed, totals.given_up)
    )
    return dict(InputFile.objects.filter(stage=stage).values_list("name", "state"))


def counts(request):
    return dict(Counter(states(request).values()))


def test_files_are_divided_among_the_jobs_and_each_job_gets_its_own(started, catalogue):
    array = send(started)
    assert "0) files=(raw_0.root raw_1.root raw_2.root);;" in array.script
    assert "1) files=(raw_3.root raw_4.root);;" in array.script
    assert "3) files=(raw_8.root raw_9.root);;" in array.script
    assert counts(started.request) == {"taken": 10}
    first = InputFile.objects.get(name="raw_0.root")
    assert (first.events, first.size_bytes, first.number) == (100, 2_000, 0)
    catalogue(*NAMES, "late.root")
    send(started)
    assert not InputFile.objects.filter(name="late.root").exists(), "the list is of the start"


def test_fewer_files_than_jobs_is_said_before_anything_starts(reading, cluster, approver):
    request = reading(jobs=11)
    with pytest.raises(InvalidFields) as refused:
        assign_request(request=request, cluster=cluster, by=approver, at=AT, verb=Verb.START)
    message = "raw has 10 files, too few for 11 jobs."
    assert refused.value.problems == {"stages.0.jobs": [message]}


def test_a_stage_waits_while_its_files_cannot_be_listed_and_says_why(
    started, catalogue, settings, tmp_path
):
    (tmp_path / "datasets.json").write_text("{")
    assert send(started) is None
    assert "is not a catalogue" in started.listing_error
    assert started.listing_failed_since == AT
    catalogue(*NAMES)
    assert send(started, AT + HOUR / 60) is None, "it is left alone for some minutes"
    assert send(started, AT + HOUR / 6).tasks == 4
    started.refresh_from_db()
    assert (started.listing_error, started.listing_failed_since) == ("", None)


def test_a_stage_without_files_in_its_command_has_no_ledger(make, cluster, approver):
    assignment = choose_cluster(request=make("running"), cluster=cluster, by=approver, at=AT)
    send(assignment)
    assert not FileTotals.objects.exists()


def test_done_failed_and_done_after_a_retry(started, end_jobs, approver):
    array = send(started)
    end_jobs(array, failed={1})
    dispatch.refresh_progress(cluster=array.cluster, at=AT + HOUR)
    assert counts(started.request) == {"done": 8, "failed": 2}
    retry_stage(request=started.request, position=0, by=approver, at=AT + HOUR)
    assert counts(started.request) == {"done": 8, "taken": 2}
    again = send(started, AT + HOUR)
    assert "1) files=(raw_3.root raw_4.root);;" in again.script
    jobs = end_jobs(again, at=AT + 2 * HOUR)
    dispatch.refresh_progress(cluster=array.cluster, at=AT + 2 * HOUR)
    assert counts(started.request) == {"done": 10}
    assert InputFile.objects.get(name="raw_4.root").job_key == jobs[0].pk


def test_a_job_that_completed_late_makes_its_files_done_twice(started, end_jobs, approver):
    array = send(started)
    jobs = end_jobs(array, failed={0})
    stage = started.request.stages.all()[0]
    for job in jobs:
        OutputFile.objects.create(
            stage=stage, key=job.job_id, name=f"reco_{job.job_id}", size_bytes=1, at=AT
        )
    dispatch.refresh_progress(cluster=array.cluster, at=AT + HOUR)
    retry_stage(request=started.request, position=0, by=approver, at=AT + HOUR)
    again = send(started, AT + HOUR)
    retried = end_jobs(again, at=AT + 2 * HOUR)[0]
    OutputFile.objects.create(
        stage=stage, key=retried.job_id, name="reco_again", size_bytes=1, at=AT
    )
    dispatch.refresh_progress(cluster=array.cluster, at=AT + 2 * HOUR)
    assert not OutputFile.objects.get(key=jobs[0].job_id).counts
    assert OutputFile.objects.get(name="reco_again").counts

    jobs[0].state = JobState.COMPLETED
    jobs[0].save(update_fields=["state"])
    assert check_ledger(stage, at=AT + 3 * HOUR)
    file = InputFile.objects.get(name="raw_0.root")
    assert (file.state, file.is_doubled) == ("done", True)
    assert file.job_key == retried.pk, "what counted before still does"
    assert [repeat.job_key for repeat in file.repeated_results.all()] == [jobs[0].pk]
    assert totals_of(started.request)[0].doubled == 3
    assert not OutputFile.objects.get(key=jobs[0].job_id).counts
    assert set(OutputFile.objects.filter(counts=True).values_list("number", flat=True)) == {
        0,
        1,
        2,
        3,
    }


def test_a_job_of_another_array_with_the_same_id_changes_nothing(started, end_jobs):
    array = send(started)
    end_jobs(array, failed={1})
    dispatch.refresh_progress(cluster=array.cluster, at=AT + HOUR)
    month_later = AT + timedelta(days=30)
    for task, state in ((0, "failed"), (1, "completed")):
        row(
            array.cluster,
            900 + task,
            at=month_later,
            job_id=f"{array.spool_id}_{task}",
            spool_id=array.spool_id,
            state=state,
            submitted_at=month_later - HOUR,
        )
    check_ledger(started.request.stages.all()[0], at=month_later)
    assert counts(started.request) == {"done": 8, "failed": 2}


def test_give_up_and_take_back(started, end_jobs, approver, liaison):
    array = send(started)
    end_jobs(array, failed={1, 2})
    dispatch.refresh_progress(cluster=array.cluster, at=AT + HOUR)
    how = {"request": started.request, "position": 0, "by": liaison, "at": AT + HOUR}
    with pytest.raises(InvalidFields, match="Enter a reason"):
        give_up(**how, names=["raw_3.root"], reason=" ")
    with pytest.raises(InvalidFields, match=r"raw_0\.root is no longer waiting or failed"):
        give_up(**how, names=["raw_0.root"], reason="Unreadable.")
    assert give_up(**how, names=["raw_3.root"], reason="Unreadable.") == 1
    assert counts(started.request) == {"done": 5, "failed": 4, "given_up": 1}
    retries = retry_stage(request=started.request, position=0, by=approver, at=AT + HOUR)
    again = retries.submissions[0]
    assert "1) files=(raw_4.root);;" in again.script
    assert list(indices_of(again)) == [1, 2]
    sent = send(started, AT + HOUR)
    end_jobs(sent, failed={0, 1}, at=AT + 2 * HOUR)
    dispatch.refresh_progress(cluster=array.cluster, at=AT + 2 * HOUR)

    assert give_up(**how, names=["raw_4.root"], reason="Unreadable.") == 1
    retries = retry_stage(request=started.request, position=0, by=approver, at=AT + 2 * HOUR)
    rest = retries.submissions[0]
    assert list(indices_of(rest)) == [2], "a job without files is not retried"
    assert take_back(**how, names=[], reason="") == 2
    assert counts(started.request) == {"done": 5, "failed": 2, "taken": 3}
    file = InputFile.objects.get(name="raw_3.root")
    assert (file.reason, file.decided_by) == ("", liaison.username)


def test_who_may_give_up(started, shifter, dune):
    dune_liaison = person("dune-liaison", ("liaison", dune))
    how = {"request": started.request, "position": 0, "names": [], "at": AT, "reason": "Lost."}
    with pytest.raises(NotAllowed):
        give_up(**how, by=dune_liaison)
    with pytest.raises(InvalidTransition, match="no such stage"):
        give_up(**{**how, "position": 3}, by=shifter)


def test_jobs_that_end_after_their_request_was_cancelled_still_count(started, end_jobs, approver):
    array = send(started)
    cancel(started.request, approver)
    end_jobs(array, failed={3})
    dispatch.refresh_progress(cluster=array.cluster, at=AT + HOUR)
    assert counts(started.request) == {"done": 8, "failed": 2}


def test_arrays_of_a_cancelled_request_that_were_never_sent_take_nothing(started, approver):
    plan_next(assignment=started, at=AT)
    assert counts(started.request) == {"taken": 10}
    cancel(started.request, approver)
    (stage,) = ledgers_to_check(AT)
    check_ledger(stage, at=AT)
    assert counts(started.request) == {"waiting": 10}
    assert not ledgers_to_check(AT + timedelta(days=1)).exists()


def test_files_keep_their_states_when_the_rows_of_their_jobs_are_moved_away(
    started, end_jobs, approver
):
    array = send(started)
    jobs = end_jobs(array, failed={1, 2})
    stage = started.request.stages.all()[0]
    for job in jobs:
        OutputFile.objects.create(
            stage=stage, key=job.job_id, name=f"reco_{job.job_id}", size_bytes=1, at=AT
        )
    dispatch.refresh_progress(cluster=array.cluster, at=AT + HOUR)
    before = states(started.request)
    columns = ("name", "state", "job_key", "is_doubled")
    rows = set(InputFile.objects.values_list(*columns))
    outputs = set(OutputFile.objects.values_list("name", "counts"))
    Job.objects.all().delete()
    assert check_ledger(stage, at=AT + 2 * HOUR)
    assert states(started.request) == before
    assert set(InputFile.objects.values_list(*columns)) == rows
    assert set(OutputFile.objects.values_list("name", "counts")) == outputs

    array.refresh_from_db()
    plan_retry(
        submission=array, request=started.request, indices=[1, 2], by=approver, at=AT, reason=""
    )
    assert counts(started.request) == {"done": 5, "taken": 5}
    again = send(started, AT + 2 * HOUR)
    end_jobs(again, at=AT + 3 * HOUR)
    dispatch.refresh_progress(cluster=array.cluster, at=AT + 3 * HOUR)
    assert counts(started.request) == {"done": 10}
    Job.objects.all().delete()
    assert check_ledger(stage, at=AT + 4 * HOUR)
    assert counts(started.request) == {"done": 10}


def test_a_ledger_is_locked_before_its_jobs_are_read(started, end_jobs):
    array = send(started)
    end_jobs(array)
    with CaptureQueriesContext(connection) as queries:
        follow_jobs(array, at=AT + HOUR)
    statements = [query["sql"] for query in queries.captured_queries]
    locks = [place for place, sql in enumerate(statements) if "FOR UPDATE" in sql]
    reads = [place for place, sql in enumerate(statements) if 'FROM "jobs_job"' in sql]
    assert min(locks) < min(reads)


def test_progress_locks_ledgers_in_order_and_lets_retries_refer_to_arrays(started, end_jobs):
    array = send(started)
    end_jobs(array)
    with CaptureQueriesContext(connection) as queries:
        dispatch.refresh_progress(cluster=array.cluster, at=AT + HOUR)
    locks = [query["sql"] for query in queries.captured_queries if " FOR " in query["sql"]]
    assert "FOR NO KEY UPDATE" in locks[0]
    order = locks[0].partition("ORDER BY")[2]
    assert 0 <= order.find('"request_id"') < order.find('"position"')


def test_a_check_corrects_totals_and_says_so(started, caplog):
    send(started)
    FileTotals.objects.update(taken=9, done=1)
    (stage,) = ledgers_to_check(AT)
    assert not check_ledger(stage, at=AT)
    assert counts(started.request) == {"taken": 10}
    assert "done is 1, counted 0" in caplog.text


def test_a_check_corrects_totals_that_would_fall_below_zero(started, end_jobs):
    end_jobs(send(started))
    FileTotals.objects.update(taken=4, done=6)
    (stage,) = ledgers_to_check(AT)
    assert not check_ledger(stage, at=AT + HOUR)
    assert counts(started.request) == {"done": 10}
    assert check_ledger(stage, at=AT + HOUR)


@dataclass
class Life:
    """A request and what really happened to its jobs, by number: completions and failures."""

    request: Request
    arrays: list[Submission] = field(default_factory=list)
    truth: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    given_up: set[str] = field(default_factory=set)
    spool_id: int = 0

    def send(self, array):
        """Note that the array is in the scheduler, as `dispatch.send` does."""
        self.spool_id += 1
        Submission.objects.filter(pk=array.pk).update(
            state=SubmissionState.SENT, spool_id=str(self.spool_id), sent_at=AT
        )
        array.refresh_from_db()
        self.arrays.append(array)


steps = st.one_of(
    st.tuples(st.just("plan"), st.none(), st.none()),
    st.tuples(st.just("end"), st.integers(0, 5), st.lists(st.booleans(), min_size=4, max_size=4)),
    st.tuples(st.just("end some"), st.integers(0, 5), st.integers(0, 3)),
    st.tuples(st.just("retry"), st.integers(0, 5), st.none()),
    st.tuples(st.just("late"), st.integers(0, 40), st.none()),
    st.tuples(st.just("give up"), st.integers(0, 9), st.none()),
    st.tuples(st.just("take back"), st.integers(0, 9), st.none()),
    st.tuples(st.just("cancel"), st.none(), st.none()),
    st.tuples(st.just("repeat"), st.integers(0, 5), st.none()),
)


@given(script=st.lists(steps, max_size=25))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_ledger_is_the_truth_over_whole_lives(started, approver, script):
    with transaction.atomic():
        life = Life(started.request)
        for kind, first, second in script:
            _play(life, started, approver, kind, first, second)
            if totals_of(life.request):
                states(life.request)
        _compare(life, started)
        transaction.set_rollback(True)


def _play(life, assignment, approver, kind, first, second):
    if kind == "plan":
        planned = plan_next(assignment=assignment, at=AT)
        if planned is not None:
            life.send(planned)
    elif kind == "cancel":
        life.request.refresh_from_db()
        if life.request.state == RequestState.RUNNING:
            cancel(life.request, approver)
    elif kind in {"give up", "take back"}:
        _decide(life, approver, kind, NAMES[first])
    elif life.arrays:
        _play_array(life, life.arrays[first % len(life.arrays)], approver, kind, second)


def _play_array(life, sent, approver, kind, second):
    match kind:
        case "end":
            for task in range(sent.tasks):
                _end(life, sent, task, completes=second[task])
        case "end some":
            _end(life, sent, second % sent.tasks, completes=True)
        case "retry":
            _retry(life, sent, approver)
        case "late":
            _complete_late(life, sent)
        case "repeat":
            follow_jobs(sent, at=AT + HOUR)
    dispatch.refresh_progress(cluster=sent.cluster, at=AT + HOUR)


def _end(life, sent, task, *, completes):
    job_id = f"{sent.spool_id}_{task}"
    state = "completed" if completes else "failed"
    number = indices_of(sent)[task]
    known = sent.cluster.jobs.filter(job_id=job_id)
    if not known.exists():
        row(
            sent.cluster,
            int(sent.spool_id) * 100 + task,
            at=AT + HOUR,
            job_id=job_id,
            spool_id=sent.spool_id,
            state=state,
            submitted_at=AT,
        )
        life.truth[number].append(state)


def _complete_late(life, sent):
    """A job that counted as failed completed after all; its files are found at the next check."""
    job = sent.cluster.jobs.filter(spool_id=sent.spool_id, state="failed").first()
    if job is None:
        return
    number = indices_of(sent)[int(job.job_id.partition("_")[2])]
    sent.cluster.jobs.filter(pk=job.pk).update(state="completed")
    life.truth[number].remove("failed")
    life.truth[number].append("completed")
    check_ledger(life.request.stages.all()[0], at=AT + HOUR)


def _retry(life, sent, approver):
    sent.refresh_from_db()
    failed = set(read_ranges(sent.failed_indices))
    for retry in sent.retries.all():
        failed -= set(read_ranges(retry.indices))
    if failed:
        planned = plan_retry(
            submission=sent,
            request=lock_request(life.request),
            indices=sorted(failed),
            by=approver,
            at=AT + HOUR,
            reason="Again.",
        )
        life.send(planned)


def _decide(life, approver, kind, name):
    how = {"request": life.request, "position": 0, "names": [name], "by": approver, "at": AT}
    try:
        if kind == "give up":
            give_up(**how, reason="Lost.")
            life.given_up.add(name)
        else:
            take_back(**how, reason="")
            life.given_up.discard(name)
    except (InvalidFields, InvalidTransition):
        return


def _compare(life, assignment):
    if life.request.pk not in FileTotals.objects.values_list("stage__request", flat=True):
        assert not life.arrays
        return
    stage = life.request.stages.all()[0]
    check_ledger(stage, at=AT + HOUR)
    numbers_in_arrays = defaultdict(int)
    for array in life.arrays:
        for number in indices_of(array):
            numbers_in_arrays[number] += 1
    for file in InputFile.objects.filter(stage=stage):
        ends = life.truth[file.number]
        if "completed" in ends:
            expected = "done"
        elif file.name in life.given_up:
            expected = "given_up"
        elif len(ends) < numbers_in_arrays[file.number]:
            expected = "taken"
        else:
            expected = "failed" if ends else "waiting"
        assert file.state == expected, (file.name, ends)
        assert file.is_doubled == (ends.count("completed") > 1)
        repeats = RepeatedResult.objects.filter(file=file).count()
        assert repeats == max(0, ends.count("completed") - 1)
    assert set(states(life.request)) == set(NAMES), "no file is lost"
