"""Merge stages: each output file that counts is merged once, runs stay whole, groups close."""

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.db import transaction
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from apps.clusters.schedulers.base import JobState
from apps.core.errors import InvalidFields, InvalidTransition
from apps.datasets.domain.ledger import recount, totals_of
from apps.datasets.domain.output_files import NamedFile
from apps.datasets.models import FileTotals, InputFile, OutputFile
from apps.jobs.models import Job
from apps.production.domain.types.versions import newest_version, workflow_of
from apps.production.enums import Verb
from apps.production.models import Request, Stage
from apps.submission.domain.arrays.assignment import assign_request, choose_cluster
from apps.submission.domain.arrays.files import check_ledger
from apps.submission.domain.arrays.merging import ended_stages
from apps.submission.domain.arrays.output_files import store_files
from apps.submission.domain.arrays.plan import lock_request, plan_next, plan_retry
from apps.submission.domain.arrays.shortfalls import accept_stage, shortfalls_of
from apps.submission.domain.arrays.submissions import (
    indices_of,
    read_ranges,
    stage_submissions_of,
)
from apps.submission.domain.arrays.trials import complete_processed_requests
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.files.decisions import count_result, give_up, take_back
from apps.submission.domain.files.recovery import request_missing
from apps.submission.domain.retries.by_stage import retry_failed as retry_stage
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission
from tests.factories import requests
from tests.factories.jobs import unsaved_row
from tests.factories.requests import AT
from tests.factories.workflows import workflow
from tests.submission.test_keep_up import ARGUMENTS, detector

__all__ = ["detector"]  # fixture

HOUR = timedelta(hours=1)
DECLARATION = """
title: Making, reading and merging
stages:
  generation:
    title: Generation
    arguments: [name, release, configuration, output_dataset, jobs, memory_bytes, wall_seconds]
    command: ["/usr/bin/printf", "%s", "{configuration}"]
  reading:
    title: Reading
    arguments:
      [name, release, configuration, input_dataset, output_dataset, jobs, memory_bytes, wall_seconds]
    command: ["/usr/bin/printf", "%s", "{files}"]
  merge:
    title: Merge
    merges: true
    arguments:
      - name
      - release
      - configuration
      - input_dataset
      - output_dataset
      - memory_bytes
      - wall_seconds
      - {name: split, type: choice, choices: [per run, per N files, by size]}
      - {name: files_per_job, type: count}
      - {name: group_bytes, type: size}
      - {name: close_after, type: duration}
      - {name: whole_runs, type: yes_no}
    command: ["/usr/bin/printf", "%s", "{files}"]
"""
#: The run of each input file; eight jobs read two each.
RUNS = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
NAMES = [f"raw_{number:02}.root" for number in range(len(RUNS))]
JOBS = 8


@pytest.fixture
def catalogue(tmp_path, settings):
    path = tmp_path / "datasets.json"
    settings.DATASET_CATALOGUE = f"file:{path}"
    files = []
    for name, run in zip(NAMES, RUNS, strict=True):
        files.append({"name": name, "run": run, "events": 100, "size_bytes": 2_000})
    path.write_text(json.dumps({"datasets": [{"name": "raw", "file_list": files}]}))


@pytest.fixture
def merging(db, catalogue, liaison, nova, approver, cluster):
    """Return a function that starts a request whose last stage merges the files of the one before."""
    declared = workflow("merging", DECLARATION)
    cluster.submission = {**cluster.submission, "array_size": JOBS}
    cluster.save(update_fields=["submission"])

    def make(*, kind="reading", state="running", **arguments):
        dataset = {"input_dataset": "raw"} if kind == "reading" else {}
        first = requests.stage("reco", kind=kind, jobs=JOBS, events=None, **dataset)
        merge = requests.stage("merge", kind="merge", jobs=None, events=None, arguments=arguments)
        request = requests.request_in(
            state,
            by=liaison,
            experiment=nova,
            approver=approver,
            workflow=declared,
            stages=(first, merge),
            later=AT,
        )
        return choose_cluster(request=request, cluster=cluster, by=approver, at=AT)

    return make


def send(assignment, at=AT):
    plan_next(assignment=assignment, at=at)
    claimed = dispatch.claim_next(cluster=assignment.cluster, at=at)
    return dispatch.send(submission=claimed, at=at) if claimed else None


def end(array, end_jobs, at=AT + HOUR, **how):
    end_jobs(array, at=at, **how)
    dispatch.refresh_progress(cluster=array.cluster, at=at)


def stage_of(request, position) -> Stage:
    return Stage.objects.select_related("request__experiment").get(
        request=request, position=position
    )


def report(array, task, *files, run=None, at=AT + HOUR):
    """Report files of a job; without names its number is in the name of one."""
    names = files or (f"reco_{indices_of(array)[task]}_of_{array.spool_id}.root",)
    written = [NamedFile(name, 1_000, events=10, run=run) for name in names]
    stage = stage_of(array.request_id, array.position)
    return store_files(
        stage=stage, key=f"{array.spool_id}_{task}", files=written, by="liaison", at=at
    )


def report_all(array, **how):
    for task in range(array.tasks):
        report(array, task, **how)


def to_merge(request) -> dict[str, tuple[str, int | None]]:
    """Return the state and the number of each file of the merge stage, by name."""
    stage = request.stages.get(position=1)
    totals = totals_of(request)[1]
    counts = recount(stage)
    assert counts == {column: getattr(totals, column) for column in counts}
    rows = InputFile.objects.filter(stage=stage).order_by("pk")
    return {
        name: (state, number) for name, state, number in rows.values_list("name", "state", "number")
    }


def groups_in(array) -> list[list[str]]:
    """Return the files of each job of an array, by its script."""
    return [files.split() for files in re.findall(r"\d\) files=\((.*)\);;", array.script)]


def test_files_that_count_are_merged_in_groups_as_jobs_end(merging, end_jobs):
    assignment = merging(split="per N files", files_per_job=3)
    reco = send(assignment)
    report_all(reco)
    assert to_merge(assignment.request) == {}, "no job has completed yet"
    end(reco, end_jobs, tasks=range(4))
    assert Counter(to_merge(assignment.request).values()) == {("waiting", None): 4}
    merged = send(assignment, AT + HOUR)
    assert (merged.stage_name, merged.indices) == ("merge", "0")
    assert groups_in(merged) == [[f"reco_{n}_of_{reco.spool_id}.root" for n in range(3)]]
    assert send(assignment, AT + HOUR) is None, "one file waits for two others"
    end(reco, end_jobs, tasks=range(4, 8), at=AT + 2 * HOUR)
    rest = send(assignment, AT + 2 * HOUR)
    assert [len(group) for group in groups_in(rest)] == [3, 2], "nothing comes any more"
    assert rest.indices == "1-2"
    file = InputFile.objects.get(stage__position=1, name=f"reco_0_of_{reco.spool_id}.root")
    assert (file.size_bytes, file.events, file.run, file.source_number) == (1_000, 10, 1, 0)
    end(merged, end_jobs)
    end(rest, end_jobs, at=AT + 3 * HOUR)
    assert set(to_merge(assignment.request).values()) == {("done", 0), ("done", 1), ("done", 2)}
    assert complete_processed_requests(cluster=reco.cluster, at=AT + 3 * HOUR) == [
        assignment.request
    ]


def test_a_request_is_not_complete_while_files_wait_or_a_group_failed(merging, end_jobs, approver):
    assignment = merging(split="per N files", files_per_job=4)
    request = assignment.request
    reco = send(assignment)
    report_all(reco)
    end(reco, end_jobs)
    assert complete_processed_requests(cluster=reco.cluster, at=AT + HOUR) == []
    merged = send(assignment, AT + HOUR)
    assert merged.tasks == 2
    end(merged, end_jobs, failed={1}, at=AT + 2 * HOUR)
    assert complete_processed_requests(cluster=reco.cluster, at=AT + 2 * HOUR) == []
    shortfall = shortfalls_of(request, AT + 2 * HOUR)[1]
    assert (shortfall.requested, shortfall.completed, shortfall.obstacle) == (2, 1, "")
    (retry,) = retry_stage(request=request, position=1, by=approver, at=AT + 2 * HOUR).submissions
    assert groups_in(retry) == [groups_in(merged)[1]], "a retry reads the same group"
    with transaction.atomic():
        sent = send(assignment, AT + 2 * HOUR)
        end(sent, end_jobs, at=AT + 3 * HOUR)
        assert complete_processed_requests(cluster=reco.cluster, at=AT + 3 * HOUR) == [request]
        transaction.set_rollback(True)
    end(send(assignment, AT + 2 * HOUR), end_jobs, failed={0}, at=AT + 3 * HOUR)
    accept_stage(request=request, position=1, by=approver, at=AT + 3 * HOUR, reason="Unreadable.")
    assert complete_processed_requests(cluster=reco.cluster, at=AT + 3 * HOUR) == [request]


def test_a_group_closes_on_time(merging, end_jobs):
    assignment = merging(split="by size", group_bytes=10_000, close_after=7200)
    reco = send(assignment)
    report_all(reco)
    end(reco, end_jobs, tasks=[0, 1])
    assert send(assignment, AT + 2 * HOUR) is None
    closed = send(assignment, AT + 3 * HOUR)
    assert [len(group) for group in groups_in(closed)] == [2]


def test_runs_are_never_split(merging, end_jobs):
    assignment = merging(split="per N files", files_per_job=2, whole_runs=True, close_after=300)
    reco = send(assignment)
    report_all(reco)
    end(reco, end_jobs, tasks=[0, 2, 3, 4])
    merged = send(assignment, AT + 5 * HOUR)
    runs = InputFile.objects.filter(stage__position=1, number__isnull=False)
    assert set(runs.values_list("run", flat=True)) == {2}, "only its jobs have all ended"
    assert merged.tasks == 1
    end(reco, end_jobs, tasks=[1, 5, 6, 7], at=AT + 6 * HOUR)
    assert send(assignment, AT + 6 * HOUR).tasks == 3

    report(reco, 2, "late.root", at=AT + 7 * HOUR, run=2)
    assert to_merge(assignment.request)["late.root"] == ("waiting", None)
    plan_next(assignment=assignment, at=AT + 7 * HOUR)
    file = InputFile.objects.get(name="late.root")
    assert (file.state, file.number, file.decided_by) == ("given_up", None, "opsportal")


def test_each_run_has_its_own_group(merging, end_jobs):
    assignment = merging(split="per run")
    reco = send(assignment)
    report_all(reco)
    end(reco, end_jobs, tasks=range(5))
    assert [len(group) for group in groups_in(send(assignment, AT + HOUR))] == [2, 2]
    end(reco, end_jobs, tasks=range(5, 8), at=AT + HOUR)
    assert [len(group) for group in groups_in(send(assignment, AT + HOUR))] == [2, 2]


def test_a_file_that_stops_to_count_is_not_merged_or_is_marked(merging, end_jobs, approver):
    assignment = merging(split="per N files", files_per_job=6)
    request = assignment.request
    reco = send(assignment)
    report_all(reco)
    end(reco, end_jobs, failed={0, 1, 2})
    lost = list(Job.objects.filter(state="failed").order_by("job_id"))
    retry_stage(request=request, position=0, by=approver, at=AT + HOUR)
    retried = send(assignment, AT + HOUR)
    assert retried.position == 0
    report(retried, 0, "again_0.root")
    end(retried, end_jobs, tasks=[0], at=AT + 2 * HOUR)
    merged = send(assignment, AT + 2 * HOUR)
    assert merged.tasks == 1, "six files"
    assert to_merge(request)["again_0.root"][0] == "taken"

    lost[0].state = JobState.COMPLETED
    lost[0].save(update_fields=["state"])
    check_ledger(stage_of(request, 0), at=AT + 3 * HOUR)
    doubled = InputFile.objects.get(name="raw_00.root")
    count_result(
        request=request, position=0, file=doubled.pk, job=lost[0].pk, by=approver,
        at=AT + 3 * HOUR, reason="",
    )  # fmt: skip
    taken = InputFile.objects.get(name="again_0.root")
    assert (taken.state, taken.is_withdrawn) == ("taken", True)
    first = f"reco_0_of_{reco.spool_id}.root"
    assert to_merge(request)[first] == ("waiting", None)
    assert send(assignment, AT + 3 * HOUR) is None
    late = InputFile.objects.get(name=first)
    assert late.state == "given_up"
    assert "no longer count" in late.reason

    count_result(
        request=request, position=0, file=doubled.pk, job=taken_job(retried).pk, by=approver,
        at=AT + 3 * HOUR, reason="",
    )  # fmt: skip
    taken.refresh_from_db()
    assert not taken.is_withdrawn
    assert first not in to_merge(request)


def taken_job(array) -> Job:
    return Job.objects.get(job_id=f"{array.spool_id}_0")


def test_a_file_that_was_given_up_as_late_is_merged_if_a_person_says_so(
    merging, end_jobs, approver
):
    assignment = merging(split="per run")
    reco = send(assignment)
    report_all(reco)
    end(reco, end_jobs)
    send(assignment, AT + HOUR)
    report(reco, 0, "late.root", f"reco_0_of_{reco.spool_id}.root")
    plan_next(assignment=assignment, at=AT + HOUR)
    assert to_merge(assignment.request)["late.root"] == ("given_up", None)
    take_back(
        request=assignment.request, position=1, names=["late.root"], by=approver,
        at=AT + 2 * HOUR, reason="",
    )  # fmt: skip
    assert groups_in(send(assignment, AT + 2 * HOUR)) == [["late.root"]]


def test_outputs_of_a_stage_without_input_files_count_once_their_jobs_completed(
    merging, end_jobs, approver
):
    assignment = merging(kind="generation", split="per N files", files_per_job=3)
    request = assignment.request
    made = send(assignment)
    assert report(made, 0).counts is False
    report(made, 1)
    end(made, end_jobs, failed={1}, tasks=range(3))
    assert set(to_merge(request)) == {f"reco_0_of_{made.spool_id}.root"}
    assert report(made, 2).counts is True, "a late report of a completed job"
    assert report(made, 3).counts is False
    retry_stage(request=request, position=0, by=approver, at=AT + HOUR)
    retried = send(assignment, AT + HOUR)
    report(retried, 0)
    end(retried, end_jobs, at=AT + 2 * HOUR)
    Job.objects.filter(job_id=f"{made.spool_id}_1").update(state="completed")
    check_ledger(stage_of(request, 0), at=AT + 3 * HOUR)
    names = set(to_merge(request))
    assert f"reco_1_of_{retried.spool_id}.root" in names, "what counted first still does"
    assert f"reco_1_of_{made.spool_id}.root" not in names
    assert send(assignment, AT + 3 * HOUR).tasks == 1


def test_the_same_name_of_two_jobs_is_merged_once(merging, end_jobs):
    assignment = merging(split="per N files", files_per_job=1)
    reco = send(assignment)
    report(reco, 0, "same.root")
    report(reco, 1, "same.root")
    end(reco, end_jobs, tasks=[0, 1])
    assert groups_in(send(assignment, AT + HOUR)) == [["same.root"]]
    report(reco, 0, "other.root")
    assert set(to_merge(assignment.request)) == {"same.root", "other.root"}
    assert not InputFile.objects.filter(is_withdrawn=True).exists(), "the second still writes it"


def become(array, task, state):
    """Let accounting correct the state of a job."""
    Job.objects.filter(job_id=f"{array.spool_id}_{task}").update(state=state)
    check_ledger(stage_of(array.request_id, array.position), at=AT + 2 * HOUR)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_name_of_two_jobs_counts_while_one_of_them_does(merging, end_jobs, is_taken):
    assignment = merging(split="per N files", files_per_job=1 if is_taken else 9)
    reco = send(assignment)
    report(reco, 0, "same.root")
    report(reco, 1, "same.root")
    end(reco, end_jobs, tasks=[0, 1])
    assert (send(assignment, AT + HOUR) is not None) == is_taken

    def source_number():
        file = InputFile.objects.get(name="same.root")
        return None if file.is_withdrawn else file.source_number

    assert source_number() == 0
    become(reco, 0, "failed")
    assert source_number() == 1
    become(reco, 1, "failed")
    if is_taken:
        assert source_number() is None
    else:
        assert to_merge(assignment.request) == {}
    become(reco, 0, "completed")
    assert source_number() == 0


def test_a_file_that_a_person_gave_up_stays_given_up_if_it_counts_again(
    merging, end_jobs, approver
):
    assignment = merging(split="per N files", files_per_job=9)
    how = {"request": assignment.request, "position": 1, "by": approver, "at": AT, "reason": "Bad."}
    reco = send(assignment)
    report(reco, 0, "bad.root")
    end(reco, end_jobs, tasks=[0])
    give_up(**how, names=["bad.root"])
    for state in ("failed", "completed"):
        become(reco, 0, state)
        assert to_merge(assignment.request) == {"bad.root": ("given_up", None)}
    assert InputFile.objects.get(name="bad.root").reason == "Bad."
    take_back(**how, names=["bad.root"])
    assert to_merge(assignment.request) == {"bad.root": ("waiting", None)}
    give_up(**how, names=["bad.root"])
    become(reco, 0, "failed")
    take_back(**how, names=["bad.root"])
    assert to_merge(assignment.request) == {}, "it does not count"


def test_names_given_up_in_the_first_stage_are_not_those_of_the_merge(merging, end_jobs, approver):
    assignment = merging(split="per N files", files_per_job=9)
    reco = send(assignment)
    report(reco, 1, NAMES[0])
    end(reco, end_jobs, failed={0}, tasks=[0, 1])
    give_up(
        request=assignment.request, position=0, names=[NAMES[0]], by=approver, at=AT + HOUR,
        reason="Unreadable.",
    )  # fmt: skip
    assert to_merge(assignment.request) == {NAMES[0]: ("waiting", None)}


def test_missing_files_of_a_merge_are_not_requested_elsewhere(merging, end_jobs, approver):
    assignment = merging(split="per N files", files_per_job=9)
    reco = send(assignment)
    report_all(reco)
    end(reco, end_jobs, failed={0})
    with pytest.raises(InvalidTransition, match="Retry its jobs instead"):
        request_missing(request=assignment.request, position=1, by=approver, at=AT + HOUR)
    made = request_missing(request=assignment.request, position=0, by=approver, at=AT + HOUR)
    assert [stage.name for stage in made.stages.all()] == ["reco", "merge"]


def test_a_merge_stage_has_no_test(merging):
    assignment = merging(split="per N files", files_per_job=9, state="testing")
    test = send(assignment)
    assert (test.is_test, test.position) == (True, 0)
    Submission.objects.filter(pk=test.pk).update(settled_at=AT, completed=1, ended=1)
    assert send(assignment) is None
    assert not FileTotals.objects.exists()


def test_a_merge_stage_needs_an_earlier_stage(merging, liaison, nova, approver, cluster):
    merging()
    merge = requests.stage("merge", kind="merge", jobs=None, input_dataset="elsewhere")
    reco = requests.stage("reco", kind="reading", jobs=JOBS, input_dataset="raw")
    declared = Request.objects.get().workflow
    request = requests.request_in(
        "queued", by=liaison, experiment=nova, approver=approver,
        workflow=workflow_of(declared), stages=(reco, merge), later=AT,
    )  # fmt: skip
    with pytest.raises(InvalidFields, match="output of an earlier stage"):
        assign_request(request=request, cluster=cluster, by=approver, at=AT, verb=Verb.START)


@dataclass
class Life:
    """A request that merges, and what really happened to its jobs."""

    assignment: object
    keeps_runs: bool = False
    at: object = AT
    arrays: list[Submission] = field(default_factory=list)
    #: The run of each file, as reported.
    run_of_name: dict[str, int | None] = field(default_factory=dict)
    taken_back: set[str] = field(default_factory=set)
    spool_id: int = 0
    names: int = 0

    @property
    def request(self):
        return self.assignment.request

    def send(self, array):
        """Note that an array is in the scheduler, as `dispatch.send` does."""
        self.spool_id += 1
        Submission.objects.filter(pk=array.pk).update(
            state=SubmissionState.SENT, spool_id=str(self.spool_id), sent_at=AT
        )
        array.refresh_from_db()
        self.arrays.append(array)

    def plan(self):
        planned = plan_next(assignment=self.assignment, at=self.at)
        if planned is not None:
            self.send(planned)
            if planned.position and self.keeps_runs and 0 not in _ended(self):
                self.check_runs(planned)
        return planned

    def check_runs(self, planned):
        """Check that no job is to write more files of the runs of these groups."""
        numbers = indices_of(planned)
        files = InputFile.objects.filter(stage__position=1, number__in=numbers, decided_by="")
        runs = set(files.values_list("run", flat=True))
        inputs = InputFile.objects.filter(stage__position=0, run__in=runs)
        assert runs == set(inputs.values_list("run", flat=True))
        assert not inputs.exclude(state__in=["done", "given_up"]).exists()

    def of_stage(self, position):
        return [array for array in self.arrays if array.position == position]


arrays = st.integers(0, 3)
tasks = st.integers(0, JOBS - 1)
#: The jobs of an array that report and complete, by bits.
chosen_tasks = st.integers(1, 2**JOBS - 1)
steps = st.one_of(
    st.tuples(st.just("plan"), st.just(0), st.just(0)),
    st.tuples(st.just("work"), arrays, chosen_tasks),
    st.tuples(st.just("report others"), arrays, tasks),
    st.tuples(st.just("report more"), arrays, tasks),
    st.tuples(st.just("fail"), arrays, tasks),
    st.tuples(st.just("late"), arrays, tasks),
    st.tuples(st.just("lost"), arrays, tasks),
    st.tuples(st.just("retry"), arrays, st.just(0)),
    st.tuples(st.just("count"), st.just(0), tasks),
    st.tuples(st.just("give up"), st.integers(0, 1), tasks),
    st.tuples(st.just("take back"), st.integers(0, 1), tasks),
    st.tuples(st.just("wait"), st.just(0), st.just(0)),
    st.tuples(st.just("check"), st.integers(0, 1), st.just(0)),
)
ALL = 2**JOBS - 1
#: A job that failed is done again and merged; then its first attempt completed and is to count.
ANOTHER_RESULT = [
    ("fail", 0, 0), ("work", 0, ALL - 1), ("plan", 0, 0), ("retry", 0, 0), ("work", 2, 1),
    ("report others", 0, 0), ("plan", 0, 0), ("late", 0, 0), ("count", 0, 0), ("plan", 0, 0),
]  # fmt: skip
#: A job reports another file after its run was merged.
LATE_IN_RUN = [("work", 0, ALL), ("plan", 0, 0), ("report more", 0, 0), ("plan", 0, 0)]
#: Half of the files of each run are there.
HALF_A_RUN = [("work", 0, 0b01010101), ("plan", 0, 0), ("wait", 0, 0), ("plan", 0, 0)]
#: A file stops to count before a job is to read it.
STOPS_TO_COUNT = [("work", 0, 1), ("lost", 0, 0), ("plan", 0, 0)]
#: A file stops to count after a job was to read it, and counts again.
COUNTS_AGAIN = [("work", 0, ALL), ("plan", 0, 0), ("lost", 0, 0), ("late", 0, 0)]
ONE_EACH = {"split": "per N files", "files_per_job": 1, "whole_runs": False}
PER_RUN = {"split": "per run"}
groupings = st.one_of(
    st.fixed_dictionaries(
        {
            "split": st.just("per N files"),
            "files_per_job": st.integers(1, 4),
            "whole_runs": st.booleans(),
        },
        optional={"close_after": st.just(3600)},
    ),
    st.fixed_dictionaries(
        {
            "split": st.just("by size"),
            "group_bytes": st.integers(1, 4_000),
            "whole_runs": st.booleans(),
        },
        optional={"close_after": st.just(3600)},
    ),
    st.just({"split": "per run"}),
)


@example(script=ANOTHER_RESULT, arguments=ONE_EACH, kind="reading")
@example(script=LATE_IN_RUN, arguments=PER_RUN, kind="reading")
@example(script=HALF_A_RUN, arguments=PER_RUN, kind="reading")
@example(script=HALF_A_RUN, arguments=PER_RUN, kind="generation")
@example(script=COUNTS_AGAIN, arguments=ONE_EACH, kind="reading")
@example(script=STOPS_TO_COUNT, arguments={**ONE_EACH, "files_per_job": 9}, kind="reading")
@given(
    script=st.lists(steps, max_size=25),
    arguments=groupings,
    kind=st.sampled_from(["reading", "generation"]),
)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_file_is_merged_twice_or_lost_over_whole_lives(
    merging, approver, script, arguments, kind
):
    with transaction.atomic():
        keeps_runs = arguments.get("whole_runs") or arguments["split"] == "per run"
        life = Life(merging(kind=kind, **arguments), keeps_runs)
        life.plan()
        for step, first, second in script:
            _play(life, approver, step, first, second)
            _compare(life, arguments)
        _finish(life, arguments, approver)
        transaction.set_rollback(True)


def _play(life, approver, step, first, second):
    life.at += timedelta(minutes=1)
    match step:
        case "plan":
            life.plan()
        case "wait":
            life.at += HOUR
        case "check":
            check_ledger(stage_of(life.request, first), at=life.at)
        case "give up" | "take back":
            _decide(life, approver, step, first, second)
        case "count":
            _count(life, approver, second)
        case "work":
            array = life.arrays[first % len(life.arrays)]
            chosen = [task for task in range(array.tasks) if second >> task & 1]
            for task in chosen:
                _report(life, array, task)
            _end(life, array, chosen, "completed")
        case _:
            array = life.arrays[first % len(life.arrays)]
            _play_job(life, approver, step, array, second % array.tasks)
    dispatch.refresh_progress(cluster=life.assignment.cluster, at=life.at)


def _play_job(life, approver, step, array, task):
    match step:
        case "report others":
            _report(life, array, task, kept=1, more=1)
        case "report more":
            _report(life, array, task, more=1)
        case "fail":
            _end(life, array, [task], "failed")
        case "late" | "lost":
            old, new = ("failed", "completed") if step == "late" else ("completed", "failed")
            jobs = Job.objects.filter(job_id=f"{array.spool_id}_{task}", state=old)
            if jobs.update(state=new):
                check_ledger(stage_of(life.request, array.position), at=life.at)
        case "retry":
            _retry(life, approver, array)


def _report(life, array, task, *, kept=2, more=0):
    """Report the first `kept` of two files of a job, and `more` others; two jobs write a run."""
    if array.position:
        return
    number = indices_of(array)[task]
    names = [f"out_{number}_{array.spool_id}_a", f"out_{number}_{array.spool_id}_b"][:kept]
    for _ in range(more):
        life.names += 1
        names.append(f"out_{number}_{array.spool_id}_{life.names}")
    run = RUNS[2 * number]
    report(array, task, *names, run=run, at=life.at)
    for name in names:
        life.run_of_name[name] = run


def _end(life, array, tasks, state):
    """Let those of these jobs end that have not yet."""
    jobs = Job.objects.filter(spool_id=array.spool_id)
    ended = set(jobs.values_list("job_id", flat=True))
    rows = []
    for task in tasks:
        job_id = f"{array.spool_id}_{task}"
        if job_id in ended:
            continue
        job = unsaved_row(
            array.cluster,
            int(array.spool_id) * 100 + task,
            at=life.at,
            job_id=job_id,
            spool_id=array.spool_id,
            state=state,
            submitted_at=AT,
        )
        rows.append(job)
    Job.objects.bulk_create(rows)


def _retry(life, approver, array):
    array.refresh_from_db()
    failed = set(read_ranges(array.failed_indices))
    for retry in array.retries.all():
        failed -= set(read_ranges(retry.indices))
    if failed:
        planned = plan_retry(
            submission=array,
            request=lock_request(life.request),
            indices=sorted(failed),
            by=approver,
            at=life.at,
            reason="Again.",
        )
        life.send(planned)


def _decide(life, approver, step, position, place):
    files = InputFile.objects.filter(stage=stage_of(life.request, position)).order_by("pk")
    if not files:
        return
    name = files[place % len(files)].name
    how = {"request": life.request, "position": position, "names": [name], "by": approver}
    try:
        if step == "give up":
            give_up(**how, at=life.at, reason="Unreadable.")
        else:
            take_back(**how, at=life.at, reason="")
            if position:
                life.taken_back.add(name)
    except (InvalidFields, InvalidTransition):
        return


def _count(life, approver, place):
    doubled = InputFile.objects.filter(stage__request=life.request, is_doubled=True).order_by("pk")
    if not doubled:
        return
    file = doubled[place % len(doubled)]
    other = file.repeated_results.order_by("pk").first()
    count_result(
        request=life.request, position=file.stage.position, file=file.pk, job=other.job_key,
        by=approver, at=life.at, reason="",
    )  # fmt: skip


def _compare(life, arguments):
    """The ledger has each file that counts once; no job has files of two results or half a run."""
    outputs = OutputFile.objects.filter(stage__request=life.request, stage__position=0, counts=True)
    counting = set(outputs.values_list("name", flat=True))
    states = to_merge(life.request)
    assert counting <= set(states), "no file is lost"
    files = list(InputFile.objects.filter(stage__request=life.request, stage__position=1))
    for file in files:
        assert file.is_withdrawn == (file.number is not None and file.name not in counting)
        if file.number is None and file.name not in counting:
            assert file.state == "given_up"
            assert file.decided_by != "opsportal", "a person gave it up"
        assert file.state != "given_up" or file.reason
        if life.run_of_name.get(file.name) is not None:
            assert file.run == life.run_of_name[file.name]

    numbers_of_name = defaultdict(set)
    for array in life.of_stage(1):
        for number, group in zip(indices_of(array), groups_in(array), strict=True):
            for name in group:
                numbers_of_name[name].add(number)
    assert all(len(numbers) == 1 for numbers in numbers_of_name.values()), "merged twice"
    for file in files:
        if file.number is not None:
            assert numbers_of_name[file.name] <= {file.number}
    _compare_groups(life, arguments, [file for file in files if file.number is not None])


def _compare_groups(life, arguments, files):
    jobs_of_number = defaultdict(set)
    groups_of_run = defaultdict(set)
    files_of_group = defaultdict(list)
    for file in files:
        files_of_group[file.number].append(file)
        if file.name not in life.taken_back:
            jobs_of_number[file.source_number].add(file.name.split("_")[2])
            groups_of_run[file.run].add(file.number)
    assert all(len(jobs) == 1 for jobs in jobs_of_number.values()), "two results of one job"
    if life.keeps_runs:
        assert all(len(groups) == 1 for groups in groups_of_run.values()), "a run is split"
        return
    for group in files_of_group.values():
        size = sum(file.size_bytes for file in group)
        assert len(group) <= arguments.get("files_per_job", len(group))
        assert size <= arguments.get("group_bytes", size) or len(group) == 1


def _finish(life, arguments, approver):
    """Let all jobs complete: then every file that counts is merged, or given up with a reason."""
    if arguments.get("close_after") and not arguments["whole_runs"]:
        life.at += 2 * HOUR
        while life.plan():
            pass
        assert ("waiting", None) not in to_merge(life.request).values(), "groups close on time"
    for _ in range(30):
        for array in life.arrays:
            _end(life, array, range(array.tasks), "completed")
        dispatch.refresh_progress(cluster=life.assignment.cluster, at=life.at)
        for array in list(life.arrays):
            _retry(life, approver, array)
        if not life.plan() and not Submission.objects.filter(settled_at=None).exists():
            break
    for position in (0, 1):
        check_ledger(stage_of(life.request, position), at=life.at)
    _compare(life, arguments)
    if 0 in _ended(life):
        left = {state for state, _ in to_merge(life.request).values()}
        assert left <= {"done", "given_up"}, "no file waits once its source has ended"


def _ended(life):
    return ended_stages(life.request, stage_submissions_of(life.request), life.at)


def test_the_page_shows_the_merge_and_what_no_longer_counts(
    merging, end_jobs, approver, liaison, client, api
):
    assignment = merging(split="by size", group_bytes=2_000, close_after=7200, whole_runs=True)
    request = assignment.request
    reco = send(assignment)
    client.force_login(liaison)
    url = f"/submissions/{request.key}/files/"

    def text(address):
        return " ".join(client.get(address).content.decode().split())

    assert "No file to merge yet" in text(f"{url}?stage=2")
    report_all(reco)
    end(reco, end_jobs)
    assert "Waiting for their group" in text(f"{url}?stage=2")
    assert send(assignment, AT + HOUR).tasks == 4
    page = text(f"{url}?stage=2")
    assert "Groups of up to 2 kB, closed after 2 h, runs kept together." in page
    assert "stage 1 reco" in page
    assert "Request what is missing" not in page
    assert "No longer count" not in page
    assert "Merged by" in text(f"{url}?stage=1")

    Job.objects.filter(job_id=f"{reco.spool_id}_0").update(state="failed")
    check_ledger(stage_of(request, 0), at=AT + 2 * HOUR)
    assert "No longer count" in text(f"{url}?stage=2")
    rows = text(f"{url}list/?stage=2&state=withdrawn")
    assert f"reco_0_of_{reco.spool_id}.root" in rows
    assert f"reco_1_of_{reco.spool_id}.root" not in rows
    call = api(liaison)
    first, second = call.get(f"/api/v1/files/{request.key}/").json()
    assert (first["merges"], second["merges"], second["taken"]) == (None, 1, 8)
    inputs = call.get(f"/api/v1/files/{request.key}/inputs/?stage=2").json()["results"]
    assert [row["source_number"] for row in inputs if row["is_withdrawn"]] == [0]


def test_the_page_of_a_stage_without_input_files_shows_its_outputs(
    merging, end_jobs, liaison, client
):
    assignment = merging(kind="generation", split="per N files", files_per_job=2)
    made = send(assignment)
    report_all(made)
    end(made, end_jobs)
    client.force_login(liaison)
    answer = client.get(f"/submissions/{assignment.request.key}/files/?stage=1")
    text = " ".join(answer.content.decode().split())
    assert "The portal knows no input files of this stage, only its output files." in text
    assert f"reco_7_of_{made.spool_id}.root" in text


@pytest.mark.django_db
def test_keep_up_merges_its_files_until_the_stop_date(
    detector, liaison, nova, approver, cluster, end_jobs, fake
):
    first = {"input_type": "raw", "output_type": "reco"}
    stages = (
        requests.stage(
            "reco", kind="reconstruction", jobs=None, events=None, input_dataset="raw",
            arguments=first,
        ),
        requests.stage(
            "merge", kind="merge", jobs=None, events=None,
            arguments={"split": "per N files", "files_per_job": 2, "close_after": 7200},
        ),
    )  # fmt: skip
    request = requests.request_in(
        "queued", by=liaison, experiment=nova, approver=approver, stages=stages,
        workflow=workflow_of(newest_version("keep_up")),
        arguments={**ARGUMENTS, "most_in_flight": 50},
    )  # fmt: skip
    detector(r1=["a", "b", "c"])
    assignment = assign_request(
        request=request, cluster=cluster, by=approver, at=AT, verb=Verb.START
    )
    reco = send(assignment)
    report_all(reco)
    end(reco, end_jobs)
    merged = send(assignment, AT + HOUR)
    assert (merged.position, merged.tasks) == (1, 1)
    assert len(to_merge(request)) == 3
    assert set(totals_of(request)) == {0, 1}
    closed = send(assignment, AT + 4 * HOUR)
    assert (closed.position, [len(group) for group in groups_in(closed)]) == (1, [1])
    detector(r1=["a", "b", "c"], r2=["d"])
    last = send(assignment, AT + 5 * HOUR)
    report_all(last)
    end(last, end_jobs, at=AT + 6 * HOUR)
    assert send(assignment, AT + 6 * HOUR) is None, "it waits for another file"
    late = AT + timedelta(days=3)
    end(merged, end_jobs, at=late)
    end(closed, end_jobs, at=late)
    assert complete_processed_requests(cluster=cluster, at=late) == []
    rest = send(assignment, late)
    assert [len(group) for group in groups_in(rest)] == [1], "nothing comes after the stop date"
    end(rest, end_jobs, at=late)
    assert complete_processed_requests(cluster=cluster, at=late) == [request]
