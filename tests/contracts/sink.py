"""What every archive sink must do, shown with jobs that are easy to spoil, to lose or to confuse.

Derive a test class from `SinkContract` and give it a fixture `harness`, each time with an empty
place:

    class TestMine(SinkContract):
        @pytest.fixture
        def harness(self, ...) -> Harness: ...
"""

import struct
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from apps.archive.sinks.base import BadSink, Sink, SinkUnavailable
from apps.archive.sinks.registry import open_sink
from capture.wire.entry import CapturedJob

SUBMITTED = datetime(2026, 11, 20, 23, 59, 58, 123456, tzinfo=UTC)
BYTES = ("script", "environment", "description")
FACTS = (
    "captured_at",
    "request_key",
    "stage",
    "masked_names",
    "arguments",
    "user",
    "account",
    "name",
    "caveat",
)


class Harness(Protocol):
    """How the contract drives one sink and looks into its place by other means than the sink."""

    url: str
    other_url: str  # of another place, which need not be there
    # Fields of `CapturedJob` beside its key that can be read back: BYTES at least.
    keeps: Sequence[str]
    bad_job: CapturedJob | None  # one that the place does not take; None where it takes all

    def kept(self) -> Sequence[CapturedJob]:
        """Return every job in the place, as its readers see it;
        fields that it does not keep do not matter.
        """
        ...

    def away(self) -> AbstractContextManager[object]:
        """Make the place unreachable, and reachable again at the end."""
        ...


def a_job(job_id: object = 1, **changes: object) -> CapturedJob:
    """Return a job of the cluster alps, like any other but for `changes`."""
    job = CapturedJob(
        cluster="alps",
        scheduler="slurm",
        job_id=str(job_id),
        submitted_at=SUBMITTED,
        captured_at=SUBMITTED + timedelta(milliseconds=7),
        script=b"#!/bin/sh\nsrun ./simulate --seed %s\n"
        % str(job_id).encode("utf-8", "surrogateescape"),
        environment=packed(b"USER=ana", b"HOME=/home/ana"),
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def packed(*variables: bytes) -> bytes:
    """Return an environment in the archive's form."""
    return struct.pack("=I", len(variables)) + b"".join(variable + b"\0" for variable in variables)


def deliver(sink: Sink, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
    """Write as capture does: where a batch is not taken, each job alone.

    Return the reasons of the refused.
    """
    try:
        return sink.write(jobs)
    except SinkUnavailable:
        raise
    except Exception:  # capture treats whatever else a sink raises as a refusal
        return {index: reason for index, job in enumerate(jobs) if (reason := _alone(sink, job))}


def _alone(sink: Sink, job: CapturedJob) -> str:
    try:
        return sink.write([job]).get(0, "")
    except SinkUnavailable:
        raise
    except Exception as error:
        return str(error) or repr(error)


def key(job: CapturedJob) -> tuple[str, str, datetime]:
    return (job.cluster, job.job_id, job.submitted_at)


class SinkContract:
    """The tests."""

    @pytest.fixture
    def harness(self) -> Harness:
        """Return the harness of the sink under test."""
        raise NotImplementedError

    def assert_kept(self, harness: Harness, jobs: Sequence[CapturedJob]) -> None:
        """Each job is there once, and nothing else."""

        def seen(job: CapturedJob) -> tuple[object, ...]:
            return (*key(job), *(getattr(job, field) for field in harness.keeps))

        assert set(BYTES) <= set(harness.keeps)
        assert sorted(map(seen, harness.kept())) == sorted(map(seen, jobs))

    @pytest.mark.parametrize(
        ("script", "environment", "description"),
        [
            (b"", packed(), b""),
            (b"#!/bin/sh\n# caf\xe9 \xff\xfe\n", packed(b"LATIN=\xe9\xff"), b"<job>\xe9</job>"),
            (
                b"#!/bin/sh\r\necho no newline",
                packed(b"F=() {\n  a=b\n}", b"EMPTY=", b"=", b"NONE"),
                b"x",
            ),
            (b"\0inside\0and at the end\0", packed(b"A=1", b"A=2", b" trailing = "), b"\0"),
            (
                "#!/bin/sh\n# é漢字😀\u2028\n".encode(),
                packed("NAME=é😀".encode()),
                '{"a": "é"}'.encode(),
            ),
            (b"x" * 700_000, packed(b"LONG=" + b"y" * 200_000), b"z" * 100_000),
        ],
        ids=["empty", "no UTF-8", "no last newline", "NUL", "UTF-8", "long"],
    )
    def test_bytes_come_back_as_they_were(
        self, harness: Harness, script: bytes, environment: bytes, description: bytes
    ) -> None:
        job = a_job(script=script, environment=environment, description=description)

        with closing(open_sink(harness.url)) as sink:
            assert sink.write([job]) == {}

        self.assert_kept(harness, [job])

    def test_facts_come_back_as_they_were(self, harness: Harness) -> None:
        job = a_job(
            request_key="NOVA-0231",
            stage="sim",
            masked_names=("MY_TOKEN", "PASSWORT_É"),
            arguments="--seed 5 'a b' \"c\" é\n",
            user="ana",
            account="nova",
            name="<b>simulate</b> & more",
            caveat="The script was edited after submission.",
        )

        with closing(open_sink(harness.url)) as sink:
            assert sink.write([job, a_job(2)]) == {}

        self.assert_kept(harness, [job, a_job(2)])

    def test_same_jobs_again_change_nothing(self, harness: Harness) -> None:
        jobs = [a_job(number) for number in range(5)]

        with closing(open_sink(harness.url)) as sink:
            assert sink.write(jobs) == {}
            assert sink.write(jobs[2:]) == {}
            assert sink.write([jobs[0], a_job(5), a_job(5)]) == {}
        with closing(open_sink(harness.url)) as sink:
            assert sink.write(jobs) == {}
            assert sink.write([]) == {}

        self.assert_kept(harness, [*jobs, a_job(5)])

    def test_jobs_of_one_id_never_overwrite_each_other(self, harness: Harness) -> None:
        jobs = [
            a_job(7, script=b"first"),
            a_job(
                7, script=b"a microsecond later", submitted_at=SUBMITTED + timedelta(microseconds=1)
            ),
            a_job(7, script=b"the next day", submitted_at=SUBMITTED + timedelta(seconds=2)),
            a_job(7, script=b"a year later", submitted_at=SUBMITTED + timedelta(days=365)),
            a_job(
                7,
                script=b"first",
                submitted_at=SUBMITTED + timedelta(seconds=1),
                description=b"same script",
            ),
            a_job(7, script=b"elsewhere", cluster="jura"),
        ]

        with closing(open_sink(harness.url)) as sink:
            assert sink.write(jobs[:3]) == {}
            for job in [*jobs[3:], *reversed(jobs)]:
                assert sink.write([job]) == {}

        self.assert_kept(harness, jobs)

    @pytest.mark.parametrize(
        "job_id",
        [
            "12[3].server.example.org",
            "7.0",
            "87+1",
            "../../../etc/passwd",
            "..",
            "a/b",
            "a\nb",
            "é",
            "%2F~ *",
        ],
    )
    def test_odd_job_id_is_only_a_name(self, harness: Harness, job_id: str) -> None:
        jobs = [a_job(1), a_job(job_id), a_job(2)]

        with closing(open_sink(harness.url)) as sink:
            assert sink.write(jobs) == {}

        self.assert_kept(harness, jobs)

    @pytest.mark.parametrize(
        "changes",
        [
            {"job_id": "a\0b"},
            {"job_id": "\udcff"},
            {"job_id": "9" * 300},
            {"user": "\udcff\0" * 40},
            {"name": "\udcff\0" * 200},
            {"arguments": "\0\udcff"},
            {"request_key": "R" * 300, "stage": "\udcff"},
        ],
        ids=["NUL", "no UTF-8", "long id", "user", "name", "arguments", "request"],
    )
    def test_odd_text_costs_the_neighbours_nothing(
        self, harness: Harness, changes: dict[str, str]
    ) -> None:
        before, odd, after = a_job(1), a_job(**({"job_id": 9} | changes)), a_job(2)

        with closing(open_sink(harness.url)) as sink:
            refused = deliver(sink, [before, odd, after])

        assert set(refused) <= {1}
        assert all(refused.values())
        kept = {key(job): job for job in harness.kept()}
        assert {key(before), key(after)} <= kept.keys()
        assert len(kept) == 3 - len(refused)
        if not refused and key(odd) in kept:
            assert kept[key(odd)].script == odd.script

    def test_refused_job_costs_the_neighbours_nothing(self, harness: Harness) -> None:
        if harness.bad_job is None:
            pytest.skip("this sink takes every job")
        jobs = [a_job(1), harness.bad_job, a_job(2), a_job(3)]

        with closing(open_sink(harness.url)) as sink:
            refused = deliver(sink, jobs)
            again = deliver(sink, jobs)

        assert set(refused) == set(again) == {1}
        assert refused[1].strip()
        self.assert_kept(harness, [jobs[0], *jobs[2:]])

    def test_many_jobs_at_once(self, harness: Harness) -> None:
        jobs = [a_job(number) for number in range(500)]

        with closing(open_sink(harness.url)) as sink:
            assert sink.write(jobs) == {}

        self.assert_kept(harness, jobs)

    def test_place_that_is_away_is_no_fault_of_the_jobs(self, harness: Harness) -> None:
        with closing(open_sink(harness.url)) as sink:
            assert sink.write([a_job(1)]) == {}
            with harness.away():
                for _ in range(2):
                    with pytest.raises(SinkUnavailable, match=r"\S"):
                        sink.write([a_job(2), a_job(3)])
            assert sink.write([a_job(2), a_job(3)]) == {}

        self.assert_kept(harness, [a_job(1), a_job(2), a_job(3)])

    def test_opening_reaches_out_to_nothing(self, harness: Harness) -> None:
        with harness.away(), closing(open_sink(harness.url)) as sink:
            assert sink.name
            with pytest.raises(SinkUnavailable, match=r"\S"):
                sink.write([a_job(1)])

        self.assert_kept(harness, [])

    def test_name_is_that_of_the_place(self, harness: Harness) -> None:
        with (
            closing(open_sink(harness.url)) as first,
            closing(open_sink(harness.url)) as second,
        ):
            assert first.name == second.name
        if harness.other_url != harness.url:
            with closing(open_sink(harness.other_url)) as other:
                assert other.name != first.name

    def test_option_that_is_not_known_is_refused(self, harness: Harness) -> None:
        with pytest.raises(BadSink, match="nonsense"):
            open_sink(harness.url + ("&" if "?" in harness.url else "?") + "nonsense=1")

    def test_password_in_the_url_is_refused(self, harness: Harness) -> None:
        scheme, found, rest = harness.url.partition("://")
        if not found:
            pytest.skip("its URL has no host")
        with pytest.raises(BadSink) as raised:
            open_sink(f"{scheme}://somebody:geheim@{rest}")
        assert "geheim" not in str(raised.value)
