"""Writes a schedd's spool and history as the schedd does: the same files, records and order.

After `src/condor_utils/classad_log.cpp`, `classadHistory.cpp` and `spooled_job_files.cpp` of
HTCondor 25.
"""

import getpass
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Whose jobs they are: root is nobody special to the adapter, so the tests of root are another's.
OWNER = "nobody" if os.geteuid() == 0 else getpass.getuser()
SCRIPT = b"#!/bin/sh\necho all is well\n"

Value = str | bytes | int | float | bool


def literal(value: Value) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int | float):
        return str(value).encode()
    raw = value if isinstance(value, bytes) else value.encode()
    return b'"' + raw.replace(b'"', b'\\"') + b'"'


def v2(variables: Mapping[str, str]) -> str:
    """Write an environment as condor_submit does."""
    quote = "'"
    return " ".join(
        f"'{name}={value.replace(quote, quote * 2)}'" for name, value in variables.items()
    )


class Schedd:
    """A job queue in `spool`.

    What is written reaches the file at once, unless `hold_back` is set.
    """

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        self.log = spool / "job_queue.log"
        self.ads: dict[str, dict[str, bytes]] = {"0.0": {"NextClusterNum": b"1"}}
        self.sequence = 0
        spool.mkdir(exist_ok=True)
        self.log.unlink(missing_ok=True)
        self.compact()

    def compact(self) -> None:
        """Write the queue to a new file that takes the place of the old one,
        which is kept until the next time.
        """
        if self.log.exists():
            self.log.with_name(f"{self.log.name}.{self.sequence - 1}").unlink(missing_ok=True)
            self.log.with_name(f"{self.log.name}.{self.sequence}").hardlink_to(self.log)
        self.sequence += 1
        lines = [b"107 %d CreationTimestamp 1478727083" % self.sequence]
        for key, ad in self.ads.items():
            lines.append(b"101 %s Job Machine" % key.encode())
            lines += [
                b"103 %s %s %s" % (key.encode(), name.encode(), value) for name, value in ad.items()
            ]
        new = self.spool / "job_queue.log.tmp"
        new.write_bytes(b"\n".join([*lines, b""]))
        new.rename(self.log)

    def submit(
        self, number: int, procs: Sequence[Mapping[str, Value]] = ({},), **cluster: Value
    ) -> None:
        self.append(self.submission(number, procs, **cluster))

    def submission(
        self, number: int, procs: Sequence[Mapping[str, Value]] = ({},), **cluster: Value
    ) -> bytes:
        """Return what one submission adds to the log, a transaction, and remember it."""
        at = int(time.time())
        common: dict[str, Value] = {
            "ClusterId": number,
            "Owner": OWNER,
            "User": f"{OWNER}@pool.example",
            "QDate": at,
            "Cmd": "/bin/true",
            "Iwd": "/tmp",
            "JobUniverse": 5,
            "Environment": "",
            "RequestMemory": 1024,
        }
        lines = [b"105"]
        lines += self._make(f"0{number}.-1", common | cluster)
        for proc, own in enumerate(procs):
            first: dict[str, Value] = {
                "ProcId": proc,
                "GlobalJobId": f"schedd#{number}.{proc}#{at}",
                "JobStatus": 1,
            }
            lines += self._make(f"{number}.{proc}", first | dict(own))
        return b"\n".join([*lines, b"106", b""])

    def _make(self, key: str, values: Mapping[str, Value]) -> list[bytes]:
        self.ads[key] = {name: literal(value) for name, value in values.items()}
        lines = [b"101 %s Job Machine" % key.encode()]
        return lines + [
            b"103 %s %s %s" % (key.encode(), n.encode(), v) for n, v in self.ads[key].items()
        ]

    def set(self, key: str, **values: Value) -> None:
        for name, value in values.items():
            self.ads[key][name] = literal(value)
            self.append(b"103 %s %s %s\n" % (key.encode(), name.encode(), literal(value)))

    def remove(self, number: int) -> None:
        self.append(self.removal(number))

    def removal(self, number: int) -> bytes:
        """Return what the end of a cluster adds to the log, a transaction, and forget it."""
        keys = [key for key in self.ads if key.split(".")[0] in (str(number), f"0{number}")]
        for key in keys:
            del self.ads[key]
        return b"\n".join(
            [b"105", *(b"102 " + key.encode() for key in reversed(keys)), b"106", b""]
        )

    def append(self, content: bytes) -> None:
        with self.log.open("ab") as file:
            file.write(content)

    def sandbox(self, number: int, proc: int = 0) -> Path:
        directory = (
            self.spool
            / str(number % 10_000)
            / str(proc % 10_000)
            / f"cluster{number}.proc{proc}.subproc0"
        )
        directory.mkdir(parents=True, exist_ok=True)
        return directory


def history_ad(number: int, proc: int = 0, **values: Value) -> bytes:
    """Return an ad as it is in the history, without the line that ends it."""
    at = int(time.time())
    ad: dict[str, Value] = {
        "ClusterId": number,
        "ProcId": proc,
        "Owner": OWNER,
        "QDate": at,
        "JobStatus": 4,
        "LastJobStatus": 2,
        "JobCurrentStartDate": at,
        "CompletionDate": at,
        "EnteredCurrentStatus": at,
        "NumJobStarts": 1,
        "ExitBySignal": False,
        "ExitCode": 0,
        "LastRemoteHost": "slot1@node1.example",
    }
    lines = [
        name.encode() + b" = " + literal(value) for name, value in sorted((ad | values).items())
    ]
    return b"\n".join([*lines, b"MemoryUsage = ((ResidentSetSize + 1023) / 1024)", b""])


def banner(number: int, proc: int = 0, *, completed: int = 0, written: int | None = None) -> bytes:
    """Return the line that ends an ad; HTCondor before 25 does not say when it was written."""
    end = "" if written is None else f" CurrentTime = {written}"
    line = (
        f'*** Offset = 0 ClusterId = {number} ProcId = {proc} Owner = "{OWNER}" CompletionDate = '
        f"{completed}{end}\n"
    )
    return line.encode()
