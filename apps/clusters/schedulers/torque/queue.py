"""List all jobs of pbs_server with `qstat -x -t`; the XML is parsed as a stream.

The format is that of Torque's `src/cmds/qstat.c` (`create_full_job_xml`) and `MXML.c`, versions 4.2
to 6.1: `Data` has a `Job` for each job, with `Job_Id` and its attributes as elements, and times as
seconds since 1970. The letters of `job_state` are those of qstat(1B); `Hold_Types` are written by
`attr_fn_hold.c`. With `-t`, each task of an array is a separate job.
"""

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from apps.clusters.schedulers.base import (
    CurrentJobs,
    CurrentState,
    QueueCounts,
    SchedulerError,
    current_jobs_of,
)
from apps.clusters.schedulers.commands import Commands
from apps.clusters.schedulers.torque.records import spool_id_of

_FIELDS = frozenset({"Job_Id", "job_state", "ctime", "Account_Name", "Hold_Types", "depend"})
_MOST_TEXT = 1_000
# Torque passes user bytes on unchanged; an invalid byte must not hide all other jobs.
_NOT_OF_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STATES = {
    "Q": CurrentState.QUEUED,
    "W": CurrentState.QUEUED,  # waits for its start time
    "T": CurrentState.QUEUED,  # moves to another queue or server
    "R": CurrentState.RUNNING,
    "E": CurrentState.RUNNING,  # exiting
    "S": CurrentState.RUNNING,  # suspended
}
# Excludes the array itself, whose tasks are counted.
_JOB_ID = re.compile(r"[0-9]+(\[[0-9]+\])?(\..*)?")
_EPOCH = re.compile(r"[1-9][0-9]{0,10}")


def current_jobs(commands: Commands, server: str = "") -> Iterator[CurrentJobs]:
    """Yield the unfinished jobs, including each task of an array, with one command.

    Raises `SchedulerError`.
    """
    operand = [f"@{server}"] if server else []
    return current_jobs_of(read_queue(commands.pieces("qstat", "-x", "-t", *operand)))


def read_queue(pieces: Iterable[bytes]) -> QueueCounts:
    """Count the jobs in a response.

    Raises `SchedulerError` if it is incomplete or not XML, or has a DTD.
    """
    jobs = _Jobs()
    parser = DefusedXMLParser(encoding="utf-8", forbid_dtd=True, target=jobs)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    is_empty = True
    try:
        for piece in pieces:
            text = _NOT_OF_XML.sub("", decoder.decode(piece))
            is_empty = is_empty and not text.strip()
            parser.feed(text.encode())
        # A server without jobs may print nothing.
        if not is_empty:
            parser.close()
    except (ParseError, DefusedXmlException) as error:
        raise SchedulerError(f"qstat: the response cannot be parsed: {error}") from error
    return jobs.counts


class _Jobs:
    """Parser target that counts each `Job` at its end tag."""

    def __init__(self) -> None:
        self.counts: QueueCounts = Counter()
        self._path: list[str] = []
        self._job: dict[str, str] = {}

    def start(self, tag: str, attributes: object) -> None:
        self._path.append(tag)
        if self._path == ["Data", "Job"]:
            self._job = {}

    def data(self, text: str) -> None:
        if len(self._path) == 3 and (name := self._path[-1]) in _FIELDS:
            self._job[name] = (self._job.get(name, "") + text)[:_MOST_TEXT]

    def end(self, tag: str) -> None:
        if self._path == ["Data", "Job"]:
            job_id, created = (self._job.get(name, "").strip() for name in ("Job_Id", "ctime"))
            state = _state(self._job)
            if state and _JOB_ID.fullmatch(job_id) and _EPOCH.fullmatch(created):
                account = self._job.get("Account_Name", "").strip()
                self.counts[
                    spool_id_of(job_id), int(created), state, account, _reason(self._job, state)
                ] += 1
        self._path.pop()

    def close(self) -> None:
        """Return nothing: this target only counts."""


def _state(job: dict[str, str]) -> CurrentState | None:
    """Return the state of a job; None if it has completed (C).

    A hold (H) by user, operator or system counts as held. Torque also holds jobs that wait for
    other jobs, and tasks over the slot limit of their array, without a hold type: those are queued.
    """
    letter = job.get("job_state", "").strip()
    if letter != "H":
        return _STATES.get(letter)
    types = set(job.get("Hold_Types", ""))
    is_held = bool(types & {"u", "o"}) or ("s" in types and not job.get("depend", "").strip())
    return CurrentState.HELD if is_held else CurrentState.QUEUED


def _reason(job: dict[str, str], state: CurrentState) -> str:
    if state == CurrentState.HELD:
        if "u" in job.get("Hold_Types", ""):
            return "JobHeldUser"
        return "JobHeldAdmin"
    if state == CurrentState.QUEUED and job.get("depend", "").strip():
        return "Dependency"
    return ""
