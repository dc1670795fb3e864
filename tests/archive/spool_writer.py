"""Writes a spool as slurmctld does: the same files, names, order and bytes."""

import struct
from pathlib import Path

VARIABLES = (
    ("USER", "ana"),
    ("HOME", "/home/ana"),
    ("PATH", "/usr/bin:/bin"),
    ("SLURM_JOB_NAME", "g4"),
)


def environment_bytes(variables=VARIABLES):
    texts = [
        name.encode() + b"=" + (value if isinstance(value, bytes) else value.encode())
        for name, value in variables
    ]
    return struct.pack("=I", len(texts)) + b"".join(text + b"\0" for text in texts)


def job_directory(spool: Path, job_id: int) -> Path:
    return spool / f"hash.{job_id % 10}" / f"job.{job_id}"


def write_job(spool: Path, job_id: int, *, script=None, variables=VARIABLES) -> Path:
    """Write one job, environment first, script last."""
    directory = job_directory(spool, job_id)
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700)
    (directory / "environment").write_bytes(environment_bytes(variables))
    (directory / "script").write_bytes((script_of(job_id) if script is None else script) + b"\0")
    return directory


def script_of(job_id: int) -> bytes:
    return b"#!/bin/bash\n#SBATCH --mem=4G\nsrun ./simulate --seed %d\n" % job_id
