"""The weighing of evidence, on small logs of each kind of failure that misleads simple rules."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.engine import registry
from apps.diagnosis.engine.base import Block, Findings, JobFacts, Outage, Reason
from apps.diagnosis.engine.diagnose import Diagnosis, diagnose
from apps.diagnosis.engine.evidence.catalogue import built_in
from apps.diagnosis.engine.evidence.scheduler_facts import parse_state
from apps.diagnosis.engine.verdict import decide
from apps.diagnosis.enums import (
    ADVICE_OF,
    VERDICT_OF,
    Category,
    Confidence,
    JobAdvice,
    Overlap,
    ReasonKind,
    Stream,
    VerdictKind,
)
from apps.diagnosis.wording import step_of

FAILED = JobFacts(scheduler="slurm", state=JobState.FAILED, exit_code=1, signal=0)


def judge(text: str, facts: JobFacts = FAILED, outages=(), **classifiers) -> Diagnosis:
    data = text.encode()
    return diagnose(
        facts,
        [Block(data, 0, len(data), 1)],
        classifiers={"catalogue": built_in(), **classifiers},
        outages=outages,
    )


CASES = {
    "cmssw exception whose text is a dead proxy": (
        (
            "An exception of category 'StdException' occurred while\n"
            "[frontier.c:1135]: No more proxies. Last error was: host name proxy problem: "
            "Name or service not known\n"
        ),
        VerdictKind.SERVICE,
        "FRONTIER-NOPROXY",
    ),
    "stage-out broken by the site's tools": (
        (
            "Attempt 1 to stage out failed.\n"
            "ImportError: libboost_python-mt.so.1.53.0: cannot open shared object file: No "
            "such file or directory\n"
        ),
        VerdictKind.SERVICE,
        "GFAL-BROKEN-ENV",
    ),
    "art error around a refused door": (
        "---- FileOpenError BEGIN\n  ---- FatalRootError BEGIN\n    [FATAL] Auth failed\n",
        VerdictKind.SERVICE,
        "XRD-AUTH",
    ),
    "output directory that is not there": (
        (
            "\tTransfer output files failure at execution point slot1@n1 while sending files "
            "to access point s. "
            "Details: reading from file /pool/logs/: (errno 2) No such file or directory\n"
        ),
        VerdictKind.CODE,
        "CONDOR-XFER-OUT-MISSING",
    ),
    "handlers that every good job prints": (
        "CoreDumpSvc INFO Handling signals: 11(Segmentation fault)\n",
        VerdictKind.UNKNOWN,
        None,
    ),
    "cancelled, then a broken pipe": (
        (
            "slurmstepd: error: *** JOB 2 ON c1 CANCELLED AT 2020-02-20T10:05:27 "
            "***\nBrokenPipeError: [Errno 32] pipe\n"
        ),
        VerdictKind.USER,
        "SLURM-CANCELLED",
    ),
    "cancelled, then the traceback of the next job in the same file": (
        (
            "slurmstepd: error: *** JOB 2 ON c1 CANCELLED AT 2020-02-20T10:05:27 ***\n"
            "Traceback (most recent call last):\n"
            "OSError: Cannot save file into a non-existent directory: 'runs/tradeoffs'\n"
        ),
        VerdictKind.CODE,
        "PY-TRACEBACK",
    ),
    "cancelled, then the traceback of the cancelled job": (
        (
            "slurmstepd: error: *** JOB 2 ON c1 CANCELLED AT 2020-02-20T10:05:27 ***\n"
            "Traceback (most recent call last):\n"
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got "
            "signal: 15\n"
        ),
        VerdictKind.USER,
        "SLURM-CANCELLED",
    ),
    "over memory, though the sample is small": (
        (
            "Job has gone over cgroup memory limit of 10624 megabytes. Last measured usage: 404 "
            "megabytes.\n"
        ),
        VerdictKind.RESOURCE,
        "CONDOR-MEM-CGROUP",
    ),
    "harmless tls line": (
        "TLS: Unable to create TLS context; invalid private key.\n",
        VerdictKind.UNKNOWN,
        None,
    ),
    "module exception before its consequences in root": (
        (
            "An exception was thrown while processing module Foo/bar run: 1 subRun: 13 event: 9\n"
            "  Tree branches have different numbers of entries, eg A has 8 entries\n"
        ),
        VerdictKind.CODE,
        "ART-MODULE-EXC",
    ),
    "traceback alone": (
        "Traceback (most recent call last):\nKeyError: 'x'\n",
        VerdictKind.CODE,
        "PY-TRACEBACK",
    ),
    "traceback around a 503": (
        "urllib.error.HTTPError: HTTP Error 503: Unavailable\n",
        VerdictKind.SERVICE,
        "HTTP-5XX",
    ),
    "step cancelled for a task that failed": (
        (
            "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TASK "
            "FAILURE ***\n"
        ),
        VerdictKind.UNKNOWN,
        None,
    ),
    "exit line of a task says nothing": (
        "srun: error: n1: task 0: Exited with exit code 3\n",
        VerdictKind.UNKNOWN,
        None,
    ),
}


@pytest.mark.parametrize(("text", "verdict", "cause"), CASES.values(), ids=CASES.keys())
def test_case_that_misleads_simple_rules(text, verdict, cause):
    found = judge(text).verdict
    assert (found.verdict, found.cause and found.cause.pattern.id) == (verdict, cause)
    cause_advice = found.cause and found.cause.pattern.advice
    assert found.advice in (ADVICE_OF[verdict], cause_advice)


STATES = {
    JobState.TIMEOUT: VerdictKind.RESOURCE,
    JobState.DEADLINE: VerdictKind.RESOURCE,
    JobState.OUT_OF_MEMORY: VerdictKind.RESOURCE,
    JobState.NODE_FAIL: VerdictKind.SERVICE,
    JobState.BOOT_FAIL: VerdictKind.SERVICE,
    JobState.PREEMPTED: VerdictKind.SERVICE,
    JobState.REQUEUED: VerdictKind.SERVICE,
    JobState.CANCELLED: VerdictKind.USER,
    JobState.FAILED: VerdictKind.UNKNOWN,
    JobState.COMPLETED: VerdictKind.UNKNOWN,
}


@pytest.mark.parametrize("state", JobState)
def test_state_without_a_log(state):
    decided = decide(JobFacts(state=state), searched=False)
    assert decided.verdict == STATES[state]
    assert "Read the log" not in decided.summary


@pytest.mark.parametrize("state", [s for s, v in STATES.items() if v is not VerdictKind.UNKNOWN])
def test_deciding_state_wins_over_the_log(state):
    verdict = judge("KeyError: 'x'\n---- BadAlloc BEGIN\n", JobFacts(state=state)).verdict
    assert verdict.verdict == STATES[state]
    assert verdict.confidence is not Confidence.LOW
    assert any("ART-BADALLOC" in reason.text for reason in verdict.reasons)


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (JobFacts(state=JobState.FAILED, exit_code=0, signal=11), VerdictKind.CODE),
        (JobFacts(state=JobState.FAILED, exit_code=139), VerdictKind.CODE),
        (JobFacts(state=JobState.FAILED, exit_code=0, signal=9), VerdictKind.RESOURCE),
        (JobFacts(state=JobState.FAILED, exit_code=137), VerdictKind.RESOURCE),
        (JobFacts(state=JobState.FAILED, exit_code=0, signal=125), VerdictKind.RESOURCE),
        (JobFacts(state=JobState.FAILED, signal=24), VerdictKind.RESOURCE),
        (JobFacts(state=JobState.FAILED, signal=10), VerdictKind.UNKNOWN),
        (
            JobFacts(state=JobState.FAILED, signal=15, wall_seconds=3590, time_limit_seconds=3600),
            VerdictKind.RESOURCE,
        ),
        (
            JobFacts(state=JobState.FAILED, signal=15, wall_seconds=10, time_limit_seconds=3600),
            VerdictKind.UNKNOWN,
        ),
        (
            JobFacts(scheduler="slurm", state=JobState.FAILED, exit_code=0, signal=53),
            VerdictKind.CODE,
        ),
        (JobFacts(state=JobState.FAILED, exit_code=127), VerdictKind.CODE),
        (JobFacts(state=JobState.FAILED, exit_code=124), VerdictKind.RESOURCE),
        (JobFacts(state=JobState.FAILED, exit_code=1), VerdictKind.UNKNOWN),
    ],
)
def test_signal_and_exit_code_without_known_error(facts, verdict):
    assert judge("nothing special\n", facts).verdict.verdict == verdict


def test_cause_in_the_log_wins_over_the_signal():
    verdict = judge(
        "terminate called: std::bad_alloc\n", JobFacts(state=JobState.FAILED, signal=6)
    ).verdict
    assert verdict.verdict == VerdictKind.RESOURCE


def test_signal_wins_over_a_symptom():
    facts = JobFacts(
        state=JobState.FAILED, signal=9, max_memory_bytes=99, requested_memory_bytes=100
    )
    verdict = judge("KeyError: 'x'\n", facts).verdict
    assert (verdict.verdict, verdict.confidence) == (VerdictKind.RESOURCE, Confidence.MEDIUM)


def test_limit_wins_over_a_general_error_and_not_over_a_cause():
    at_limit = JobFacts(
        state=JobState.FAILED, signal=9, max_memory_bytes=99, requested_memory_bytes=100
    )
    assert judge("connect: Connection refused\n", at_limit).verdict.verdict == VerdictKind.RESOURCE
    assert judge("connect: Connection refused\n").verdict.verdict == VerdictKind.SERVICE
    assert (
        judge("IfdhError: FetchError: Retry count exceeded\n", at_limit).verdict.verdict
        == VerdictKind.SERVICE
    )


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({"scheduler": "slurm", "wall_seconds": 0}, VerdictKind.UNKNOWN),
        (
            {"scheduler": "other", "wall_seconds": 0, "reason": "DependencyNeverSatisfied"},
            VerdictKind.UNKNOWN,
        ),
        (
            {
                "scheduler": "slurm",
                "wall_seconds": 0,
                "reason": "Dependency",
                "cancelled_by": "ana",
            },
            VerdictKind.USER,
        ),
        ({"scheduler": "slurm", "wall_seconds": 40, "reason": "Dependency"}, VerdictKind.USER),
        ({"scheduler": "slurm", "wall_seconds": 0, "cancelled_by": "root"}, VerdictKind.USER),
    ],
)
def test_job_that_the_scheduler_gave_up_is_no_persons_doing(facts, verdict):
    assert decide(JobFacts(state=JobState.CANCELLED, **facts), searched=False).verdict == verdict


def test_memory_kill_in_the_log_of_a_completed_job_is_reported():
    text = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of the processes may "
        "have been killed.\n"
    )
    verdict = judge(text, JobFacts(state=JobState.COMPLETED, exit_code=0, signal=0)).verdict
    assert (verdict.verdict, verdict.cause.pattern.id) == (VerdictKind.RESOURCE, "SLURM-OOM")


def test_recovered_error_in_the_log_of_a_completed_job_is_not():
    verdict = judge(
        "Connection refused, will try again\nKeyError: 'x'\n",
        JobFacts(state=JobState.COMPLETED, exit_code=0),
    )
    assert verdict.verdict.verdict == VerdictKind.UNKNOWN


def test_equal_role_goes_by_time():
    first, second = "---- BadAlloc BEGIN\n", "[FATAL] Redirect limit has been reached\n"
    assert judge(first + second).verdict.verdict == VerdictKind.RESOURCE
    assert judge(second + first).verdict.verdict == VerdictKind.SERVICE


def test_one_line_goes_by_the_more_specific():
    line = (
        "open/create : [ERROR] Server responded with an error: [3021] Unable to get quota space; "
        "Disk quota exceeded\n"
    )
    assert judge(line).verdict.cause.pattern.id == "XRD-3021-QUOTA"


def outage(service: str, overlap: Overlap = Overlap.YES) -> Outage:
    return Outage(service, overlap, "12:03 to 12:40")


def test_service_that_only_the_log_blames_is_less_sure():
    log = "IfdhError: FetchError: Retry count exceeded\n"
    for outages in (
        [],
        [outage("samweb", Overlap.NO)],
        [outage("samweb", Overlap.UNKNOWN)],
        [outage("cvmfs")],
    ):
        verdict = judge(log, outages=outages).verdict
        assert (verdict.verdict, verdict.confidence) == (VerdictKind.SERVICE, Confidence.MEDIUM)


def test_outage_confirms_an_error_of_its_service():
    verdict = judge(
        "IfdhError: FetchError: Retry count exceeded\n", outages=[outage("samweb")]
    ).verdict
    assert (verdict.verdict, verdict.confidence, verdict.service) == (
        VerdictKind.SERVICE,
        Confidence.HIGH,
        "samweb",
    )
    assert (
        Reason(
            ReasonKind.OUTAGE,
            "samweb had an outage while the job ran: 12:03 to 12:40",
            "service:samweb",
        )
        in verdict.reasons
    )


def test_reasons_come_by_weight_and_only_outages_that_were_are_told():
    outages = [
        outage("dcache", Overlap.UNKNOWN),
        outage("cvmfs", Overlap.NO),
        outage("alien"),
        outage("samweb"),
    ]
    text = "IfdhError: FetchError: Retry count exceeded\nHTTP error: 503 Service Unavailable\n"
    facts = JobFacts(state=JobState.FAILED, exit_code=65)
    kinds = [
        (reason.kind, reason.target.partition(":")[2])
        for reason in judge(text, facts, outages).verdict.reasons
    ]
    assert kinds[0][0] == "catalogue"
    assert kinds[1:4] == [("outage", "samweb"), ("outage", "alien"), ("scheduler", "")]
    assert kinds[-1] == ("outage", "dcache")
    assert ("outage", "cvmfs") not in kinds


def test_outage_turns_an_error_at_its_door_into_a_service_problem():
    text = "gfal-copy error: 1 (Operation not permitted) - HTTP 403 : Permission refused\n"
    assert judge(text).verdict.verdict == VerdictKind.CODE
    assert judge(text, outages=[outage("dcache-fnal")]).verdict.verdict == VerdictKind.SERVICE


def test_outage_of_another_service_changes_nothing():
    text = "gfal-copy error: 1 (Operation not permitted) - HTTP 403 : Permission refused\n"
    assert judge(text, outages=[outage("frontier")]).verdict.verdict == VerdictKind.CODE


def test_job_that_waited_for_a_dead_service_until_its_limit_is_a_service_problem():
    text = "samweb: Timed out waiting for response: retrying\n"
    facts = JobFacts(state=JobState.TIMEOUT)
    assert judge(text, facts).verdict.verdict == VerdictKind.RESOURCE
    assert judge(text, facts, outages=[outage("samweb")]).verdict.verdict == VerdictKind.SERVICE


def test_memory_kill_stays_one_in_an_outage():
    verdict = judge(
        "samweb: Timed out waiting for response\n",
        JobFacts(state=JobState.OUT_OF_MEMORY),
        [outage("samweb")],
    )
    assert verdict.verdict.verdict == VerdictKind.RESOURCE


@pytest.mark.parametrize(
    ("overlap", "verdict"),
    [
        (Overlap.YES, VerdictKind.SERVICE),
        (Overlap.NO, VerdictKind.UNKNOWN),
        (Overlap.UNKNOWN, VerdictKind.UNKNOWN),
    ],
)
def test_outage_alone_is_a_guess_and_only_if_it_is_known(overlap, verdict):
    found = judge("nothing special\n", outages=[outage("samweb", overlap)]).verdict
    assert (found.verdict, found.confidence) == (verdict, Confidence.LOW)


def test_known_error_may_ask_for_more_care_than_others_of_its_verdict():
    verdict = judge("error: certificate has expired\n").verdict
    assert verdict.advice == JobAdvice.ESCALATE
    assert not any("Catalogue advice" in reason.text for reason in verdict.reasons)
    step = step_of(verdict.verdict, verdict.advice)
    assert step.startswith("escalate to an expert")


def test_advice_of_the_shipped_known_errors_is_that_of_their_verdicts():
    """A known error and the jobs and groups that it explains say the same."""
    for pattern in built_in().patterns:
        usual = ADVICE_OF[VERDICT_OF[pattern.category]]
        asks_for_care = pattern.advice in (JobAdvice.HOLD, JobAdvice.ESCALATE)
        decides = pattern.category is not Category.UNKNOWN
        assert pattern.advice == usual or asks_for_care or not decides, pattern.id


class Nova:
    """An experiment's own classifier."""

    name = "nova"

    def classify(self, facts, block):
        return Findings(
            reasons=(Reason(ReasonKind.PLUGIN, "Exit code 65: file transfer or declaration"),)
        )


class Broken:
    """A classifier with a fault."""

    name = "broken"

    def classify(self, facts, block):
        raise ZeroDivisionError


def test_classifier_of_an_experiment_adds_a_reason():
    assert (
        judge("x\n", nova=Nova()).verdict.reasons[-1].text
        == "Exit code 65: file transfer or declaration"
    )


def test_broken_classifier_is_named_and_the_others_count():
    verdict = judge("---- BadAlloc BEGIN\n", broken=Broken()).verdict
    assert verdict.category is Category.RESOURCE
    assert verdict.reasons[-1].text == "Log classifier broken failed"


class Looping:
    """A classifier that never ends on one log; on others it fails."""

    name = "looping"

    def classify(self, facts, block):
        while b"loop" in block.data:
            pass
        raise ZeroDivisionError


def test_plugin_that_loops_costs_its_own_opinion_and_then_rests(monkeypatch):
    looping = registry.BoundedClassifier("looping", Looping)
    # Its process first imports this module, perhaps on a busy machine.
    monkeypatch.setattr(registry, "PLUGIN_SECONDS", 30)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        looping.classify(FAILED, Block(b"x\n", 0, 2, 1))
    monkeypatch.setattr(registry, "PLUGIN_SECONDS", 0.2)
    verdict = judge("loop\n---- BadAlloc BEGIN\n", looping=looping).verdict
    assert (verdict.category, verdict.reasons[-1].text) == (
        Category.RESOURCE,
        "Log classifier looping failed",
    )
    monkeypatch.setattr(registry, "POOL", None)  # it is not asked again
    assert (
        judge("loop\n", looping=looping).verdict.reasons[-1].text == "Log classifier looping failed"
    )


LINES = [pattern.example for pattern in built_in().patterns[::9]] + ["nothing", "KeyError: 'x'"]


@given(
    lines=st.lists(st.sampled_from(LINES), max_size=6),
    state=st.one_of(st.none(), st.sampled_from(JobState)),
    exit_code=st.one_of(st.none(), st.integers(0, 255)),
    signal=st.one_of(st.none(), st.integers(0, 64)),
    overlap=st.sampled_from(Overlap),
)
def test_verdict_is_whole_and_the_same_each_time(lines, state, exit_code, signal, overlap):
    facts = JobFacts(scheduler="slurm", state=state, exit_code=exit_code, signal=signal)
    found = judge("\n".join(lines), facts, [outage("samweb", overlap)])
    assert found == judge("\n".join(lines), facts, [outage("samweb", overlap)])
    usual = ADVICE_OF[found.verdict.verdict]
    assert found.verdict.advice in (usual, JobAdvice.HOLD, JobAdvice.ESCALATE)
    assert found.verdict.reasons
    assert found.verdict.summary


def test_order_in_which_hits_are_given_does_not_matter():
    hits = judge("KeyError: 'x'\n---- BadAlloc BEGIN\nDisk quota exceeded\n").hits
    verdicts = [decide(FAILED, order) for order in itertools.permutations(hits)]
    assert all(verdict == verdicts[0] for verdict in verdicts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FAILED", (JobState.FAILED, "")),
        ("out_of_memory", (JobState.OUT_OF_MEMORY, "")),
        ("OUT_OF_ME+", (JobState.OUT_OF_MEMORY, "")),
        ("CANCELLED by 1000", (JobState.CANCELLED, "1000")),
        ("CANCELLED+", (JobState.CANCELLED, "")),
        (" Node_Fail ", (JobState.NODE_FAIL, "")),
    ],
)
def test_state_is_read_in_the_spellings_of_slurm(text, expected):
    assert parse_state(text) == expected


@pytest.mark.parametrize("text", ["", "+", "RUNNING", "FAIL", "exploded"])
def test_word_that_is_no_end_state_is_refused(text):
    with pytest.raises(ValueError, match="Unknown state"):
        parse_state(text)


def test_error_output_counts_before_the_output():
    blocks = [
        Block(b"[FATAL] Redirect limit has been reached\n", 0, 40, 1, Stream.STDOUT),
        Block(b"fine\n---- BadAlloc BEGIN\n", 0, 25, 1, Stream.STDERR),
    ]
    verdict = diagnose(FAILED, blocks, classifiers={"catalogue": built_in()}).verdict
    assert verdict.verdict == VerdictKind.RESOURCE
    assert verdict.reasons[0].text.startswith("Known error ART-BADALLOC at line 2 of stderr: cause")
    assert verdict.reasons[0].target == "stderr:5"
