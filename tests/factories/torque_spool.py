"""A pbs_server's files, written in its order: what it does to `server_priv` when jobs come,
run and end.

Each operation is a step of a generator, so that a test can do something between any two of them.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from xml.sax.saxutils import escape

SERVER = "pbs.example.org"


@dataclass(frozen=True)
class TorqueJob:
    """A job to submit."""

    number: int
    chunks: Sequence[bytes] = (b"#!/bin/sh\n",)
    variables: Sequence[tuple[bytes, bytes]] = (
        (b"PBS_O_HOME", b"/home/ana"),
        (b"PBS_O_WORKDIR", b"/home/ana"),
    )
    tasks: int = 0
    saves: int = 3
    created_at: int = 1_780_000_000
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def script(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def id(self) -> str:
        return f"{self.number}{'[]' if self.tasks else ''}.{SERVER}"


class TorqueServer:
    """Its `server_priv` is in `home`.

    Up to version 5 it lists variables by lines, from 6 on by commas.
    """

    def __init__(self, home: Path, *, subdirectories: bool = False, version: int = 5) -> None:
        self.jobs = home / "server_priv" / "jobs"
        self.accounting = home / "server_priv" / "accounting"
        self.subdirectories = subdirectories
        self.version = version
        self.jobs.mkdir(parents=True)
        self.accounting.mkdir()
        for digit in "0123456789" if subdirectories else "":
            (self.jobs / digit).mkdir(mode=0o770)

    def path(self, number: int, suffix: str, task: int | None = None) -> Path:
        directory = self.jobs / str(number % 10) if self.subdirectories else self.jobs
        return directory / f"{number}{'' if task is None else f'-{task}'}.{SERVER}{suffix}"

    def submission(self, job: TorqueJob) -> Iterator[None]:
        """Do all that comes before qsub prints the id."""
        reserved = self.path(job.number, ".JB")
        os.close(os.open(reserved, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield
        for first, chunk in enumerate(job.chunks):
            flags = os.O_WRONLY | (os.O_APPEND if first else os.O_CREAT | os.O_EXCL)
            descriptor = os.open(self.path(job.number, ".SC"), flags, 0o600)
            os.write(descriptor, chunk)
            yield
            os.close(descriptor)
            yield
        if job.tasks:
            reserved.unlink()
            yield
        yield from self._save(job, ".TA" if job.tasks else ".JB", state=1)

    def life(self, job: TorqueJob) -> Iterator[None]:
        """Do what comes after: the tasks of an array one by one, and each change of state."""
        for task in range(job.tasks):
            os.close(
                os.open(
                    self.path(job.number, ".JB", task), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600
                )
            )
            yield
            yield from self._save(job, ".JB", state=1, task=task)
        for state in (4, 5, 6, 6, 6)[: job.saves]:
            for task in range(job.tasks):
                yield from self._save(job, ".JB", state=state, task=task)
            yield from self._save(job, ".TA" if job.tasks else ".JB", state=state)

    def purge(self, job: TorqueJob) -> Iterator[None]:
        """Remove a job that was complete for long enough."""
        for task in range(job.tasks):
            self.path(job.number, ".JB", task).unlink()
            yield
        self.path(job.number, ".SC").unlink()
        yield
        self.path(job.number, ".TA" if job.tasks else ".JB").unlink()

    def record(self, at: datetime, kind: str, job_id: str, text: str = "") -> None:
        """Add a line to accounting, whose times are in UTC here."""
        with (self.accounting / f"{at.astimezone(UTC):%Y%m%d}").open("ab") as file:
            file.write(f"{at.astimezone(UTC):%m/%d/%Y %H:%M:%S};{kind};{job_id};{text}\n".encode())

    def _save(
        self, job: TorqueJob, suffix: str, *, state: int, task: int | None = None
    ) -> Iterator[None]:
        """Write the copy, and put it in the place of what was there."""
        copy, saved = self.path(job.number, ".JC", task), self.path(job.number, suffix, task)
        content = self.description(job, state=state, task=task)
        half = len(content) // 2
        copy.write_bytes(content[:half])
        yield
        with copy.open("ab") as file:
            file.write(content[half:])
        yield
        saved.unlink(missing_ok=True)
        yield
        saved.hardlink_to(copy)
        yield
        copy.unlink()
        yield

    def description(self, job: TorqueJob, *, state: int = 1, task: int | None = None) -> bytes:
        """Return the XML of a job, as libxml2 writes it."""
        job_id = job.id if task is None else job.id.replace("[]", f"[{task}]")
        end = "" if task is None else f"-{task}"
        attributes = {
            "Job_Name": f"events{end}",
            "Job_Owner": "ana@login.example.org",
            "job_state": "TQHWREC"[state],
            "ctime": str(job.created_at),
            "Output_Path": f"login.example.org:/home/ana/events.o{job.number}{end}",
            "Error_Path": f"login.example.org:/home/ana/events.e{job.number}{end}",
            "Join_Path": "n",
            "mtime": str(job.created_at + state),
            "qtime": str(job.created_at + 1),
            **job.attributes,
        }
        texts = [
            f'    <{name} flags="1">{escape(value)}</{name}>\n'
            for name, value in attributes.items()
        ]
        variables = self._variable_list(job.variables)
        for plain, escaped in (
            (b"&", b"&amp;"),
            (b"<", b"&lt;"),
            (b">", b"&gt;"),
            (b"\r", b"&#13;"),
        ):
            variables = variables.replace(plain, escaped)
        head = (
            f'<?xml version="1.0"?>\n<job>\n  <version>131842</version>\n  <state>{state}</state>\n'
            f"  <substate>{state}0</substate>\n  <jobid>{job_id}</jobid>\n  "
            f"<attributes>\n{''.join(texts)}"
            '    <Resource_List>\n      <walltime flags="1">01:00:00</walltime>\n    '
            "</Resource_List>\n"
        )
        return (
            head.encode()
            + b'    <Variable_List flags="1">'
            + variables
            + b"</Variable_List>\n  </attributes>\n</job>\n"
        )

    def _variable_list(self, variables: Sequence[tuple[bytes, bytes]]) -> bytes:
        texts = [name + b"=" + value for name, value in variables]
        if self.version >= 6:
            return b",".join(texts)
        for special in (b"\\", b'"', b"'", b",", b"\n"):
            texts = [text.replace(special, b"\\" + special) for text in texts]
        return b"".join(text + b"\n" for text in texts)


def do(steps: Iterator[None]) -> None:
    """Do all steps."""
    for _ in steps:
        pass
