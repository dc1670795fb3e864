"""Losses of capture, and its behaviour with many jobs:
`python -m benchmarks.archive_endurance PART [--jobs N]`.

* `losses`: 4,000 jobs a second for 10 s into a spool on tmpfs that already holds 28,000 jobs; each
  is removed after
  0.1 s. Prints the number of lost jobs.
* `slurm`: 8 processes submit to a real slurmctld by its API at full speed (needs Slurm and
  libslurm-perl).
* `memory`: N jobs (default 1,000,000), removed after 2 s; prints the memory of all processes of
  capture.
* `scan`: starts on a spool of 100,000 known jobs; prints the duration of the scan and how many were
  read.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from apps.clusters.schedulers.slurm.spool import SlurmSpool
from benchmarks.portal import portal, wait_until
from benchmarks.spool import FIRST_JOB, make_spool, start_writer, write_corpus
from capture.journal.journal import Journal
from tests.capture.capturing import MemoryPortal, capture_of

CORPUS = 20_000
SUBMITTERS = 8
SUBMIT = """
use Slurm; my $slurm = Slurm::new(); my $taken = 0;
for my $number (1..$ARGV[0]) {
    my $answer = $slurm->submit_batch_job({
        script => "#!/bin/sh\\necho $number\\n", name => "burst", user_id => 0, group_id => 0, min_nodes => 1,
        priority => 0, work_dir => "/tmp", environment => {PATH => "/usr/bin:/bin", NUMBER => $number},
    });
    $taken++ if $answer;
}
print "$taken\\n";
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["losses", "slurm", "memory", "scan"])
    parser.add_argument("--jobs", type=int, default=1_000_000, help="for the memory (%(default)s)")
    parser.add_argument("--rate", type=int, default=4_000, help="jobs a second (%(default)s)")
    parser.add_argument(
        "--spool", type=Path, default=Path("/dev/shm"), help="where to make the spool (%(default)s)"
    )
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-", dir=arguments.spool))
    try:
        figures = globals()[arguments.part](scratch, arguments)
    finally:
        shutil.rmtree(scratch)
    print(json.dumps({"part": arguments.part} | figures, indent=2))


def losses(scratch, arguments, before=28_000, seconds=10):
    jobs = arguments.rate * seconds
    corpus, spool = write_corpus(scratch / "corpus", CORPUS), make_spool(scratch / "spool")
    start_writer(scratch, corpus, spool, jobs=before).communicate()
    with portal() as archive, archive.working(2), archive.capturing(spool) as memory:
        wait_until(lambda: archive.stored() >= before)
        times = {"first": FIRST_JOB + before, "rate": arguments.rate, "remove_after_ms": 100}
        writer = start_writer(scratch, corpus, spool, jobs=jobs, **times)
        took = float(writer.communicate()[0])
        journaled = settled(archive.journaled)
        wait_until(lambda: archive.stored() >= journaled)
    return {
        "jobs": jobs,
        "asked_per_second": arguments.rate,
        "written_per_second": round(jobs / took),
        "lost": jobs + before - journaled,
        "peak_memory_mb": memory.peak_mb,
    }


def memory(scratch, arguments):
    corpus, spool = write_corpus(scratch / "corpus", CORPUS), make_spool(scratch / "spool")
    with portal() as archive, archive.working(2), archive.capturing(spool) as watched:
        rate = {"rate": arguments.rate, "remove_after_ms": 2000}
        writer = start_writer(scratch, corpus, spool, jobs=arguments.jobs, **rate)
        took = float(writer.communicate()[0])
        journaled = settled(archive.journaled)
        wait_until(lambda: archive.stored() >= journaled, timeout=7200)
    tenths = [watched.samples[len(watched.samples) * tenth // 10] for tenth in range(10)]
    parts = {
        f"{part}%": watched.by_process[(len(watched.by_process) - 1) * part // 100]
        for part in (10, 50, 100)
    }
    return {
        "jobs": arguments.jobs,
        "written_per_second": round(arguments.jobs / took),
        "lost": arguments.jobs - journaled,
        "memory_mb_by_tenths_of_the_time": [*tenths, watched.samples[-1]],
        "memory_mb_by_process_at": parts,
        "peak_memory_mb": watched.peak_mb,
    }


def scan(scratch, _, jobs=100_000):
    corpus, spool = write_corpus(scratch / "corpus", 1000), make_spool(scratch / "spool")
    start_writer(scratch, corpus, spool, jobs=jobs).communicate()
    directory = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
    try:
        first = _capture_all(directory, spool)
        began, computed = time.monotonic(), time.process_time()
        second = _capture_all(directory, spool)
        took = {
            "start_seconds": time.monotonic() - began,
            "of_a_processor": time.process_time() - computed,
        }
    finally:
        shutil.rmtree(directory)
    figures = {name: round(seconds, 2) for name, seconds in took.items()}
    return {"directories": jobs, "read_first": first, "read_again": second} | figures


def _capture_all(directory, spool):
    """Capture like a new process, for a portal in memory, and return how many jobs were read."""
    read = 0

    class Counting(SlurmSpool):
        def read(self, entry):
            nonlocal read
            read += 1
            return super().read(entry)

    journal = Journal(directory / "journal")
    capture_of(Counting(spool), journal, MemoryPortal()).run_once()
    journal.close()
    return read


def slurm(scratch, arguments, jobs=16_000):
    directory = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
    bin_directory = Path(__file__).parents[1] / "bin"
    try:
        # Slurm takes 10,000 jobs at once unless told otherwise.
        command = [bin_directory / "slurm-up", f"--set=MaxJobCount={2 * jobs}", directory]
        subprocess.run(command, check=True, capture_output=True)
        environment = os.environ | {"SLURM_CONF": str(directory / "etc/slurm.conf")}
        command = ["perl", "-e", SUBMIT, str(jobs // SUBMITTERS)]
        with (
            portal() as archive,
            archive.working(2),
            archive.capturing(directory / "state") as watched,
        ):
            began = time.monotonic()
            submitters = [
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
                for _ in range(SUBMITTERS)
            ]
            taken = sum(int(submitter.communicate()[0]) for submitter in submitters)
            took = time.monotonic() - began
            journaled = settled(archive.journaled)
            wait_until(lambda: archive.stored() >= journaled)
    finally:
        subprocess.run([bin_directory / "slurm-down", directory], check=False, capture_output=True)
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "jobs": taken,
        "submitted_per_second": round(taken / took),
        "lost": taken - journaled,
        "peak_memory_mb": watched.peak_mb,
    }


def settled(count, *, quiet_seconds=5):
    """Return the count once it is stable."""
    value, since = count(), time.monotonic()
    while time.monotonic() - since < quiet_seconds:
        time.sleep(0.2)
        if (now := count()) != value:
            value, since = now, time.monotonic()
    return value


if __name__ == "__main__":
    main()
