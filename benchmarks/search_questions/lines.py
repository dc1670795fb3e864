"""Lines of logs and scripts as jobs write them: frameworks, transfers, shells, broken programs."""

import random
from collections.abc import Sequence
from pathlib import Path

#: Longest line that is taken from real logs.
LONGEST_SAMPLE = 1_000
#: Lines taken of one real log.
LINES_A_SAMPLE = 2_000
USUAL = (
    "%MSG-i Event:  {stage} {clock} UTC  run: {run} subRun: {small} event: {big}",
    "Begin processing the {big}th record. run: {run} subRun: {small} event: {big} at {clock}",
    "[{clock}] INFO  {module}::{stage}: processed {small} hits in {seconds} s, rss={medium}MB",
    "ifdh cp -D /pnfs/nova/scratch/{user}/out_{run}_{small}.root /tmp/{user}/{stage}.root",
    "TimeReport> {module}:{stage} {seconds} {seconds} {small} (cumulative)",
    "Opened file root://fndca1.fnal.gov:1094/pnfs/fnal.gov/usr/nova/raw_r{run}_s{small}.root",
    "Closed file out_r{run}_s{small}_t{medium}.root, {big} bytes, adler32 {hexadecimal}",
    "slurmstepd: task {small} on {host} used {medium} MB of --mem={small}G",
    "+ export LD_LIBRARY_PATH=/cvmfs/nova.opensciencegrid.org/externals/{module}/v{small}/lib",
    "MemoryTracker: module {module} peak vsize {medium}.{small} MB (limit {medium} MB)",
    'SAM: {{"file": "raw_{run}.root", "state": "consumed", "process_id": {big}}}',
    "cpu={seconds} wall={seconds} eff=0.{small} io.read={big} io.write={big}",
)
RARE = (
    "%MSG-e {module}:  {stage} calibration tag v{small}.{small} not found, using v{small}.0",
    "WARNING: geometry cache missed for channel {medium} <{module}@{host}>",
    "note {hexadecimal}-{hexadecimal}: conditions (iov {big}) reloaded; reason='stale'",
    "user {name} changed option {module}.fcl:{small} from x=a/b to x={hexadecimal}",
    "100% of {small} files done\tETA 00:00:0{digit}",
    "std::vector<double> {module}::fit() const -> chi2/ndf = {seconds}/{small}",
    r"path C:\jobs\{user}\run_{run} is no POSIX path",
    "Δεν υπάρχει τέτοιο αρχείο ή κατάλογος: {module}.ΑΡΧΕΙΟΣ",
    "ΣΦΑΛΜΑ ΠΡΟΣΒΑΣΗΣ ΣΤΟΝ ΔΙΣΚΟ {small} ({seconds} µs, {host})",
    "{module}: Datei oder Verzeichnis nicht gefunden, Schlüssel {hexadecimal}",
    "{module}: Böyle bir dosya ya da dizin yok, İZİN {hexadecimal}",
    "----- {clock} ----- step {small}/{medium} ----- {user}@{host}:~/{module} -----",
)
ERRORS = (
    "FatalRootError: cannot open /pnfs/nova/raw_{run}.root, error {small}",
    "[ERROR] Server responded with an error: [{medium}] No such file (source {host})",
    "terminate called after throwing an instance of 'std::bad_alloc' in {module}",
    "Segmentation fault (core dumped) {module} --run={run} --nskip={medium}",
    "slurmstepd: error: *** JOB {big} ON {host} CANCELLED AT {clock} DUE TO TIME LIMIT ***",
    "cp: cannot create regular file '/pnfs/{user}/{stage}': Disk quota exceeded",
    "OSError: [Errno {small}] Input/output error: '/cvmfs/nova/lib/lib{module}.so.{digit}'",
    "---- ScheduleExecutionFailure BEGIN\n  Path: {stage}\n  ---- {module} END, exit code {small}",
    (
        'Traceback (most recent call last):\n  File "/srv/{module}.py", line {medium}, in <module>\n'
        "ValueError: bad run {run}: {hexadecimal}"
    ),
    "curl: (28) Operation timed out after {medium} ms with {small} out of {big} bytes received",
)
SCRIPT = (
    "#SBATCH --mem={small}G --time=0{digit}:00:00",
    "export RUN={run} STAGE={stage}",
    "setup {module} v{small}",
    "module load gcc/{digit}.{digit}.0 {module}/{small}",
    "srun {module} -c {stage}.fcl -n {medium} /pnfs/nova/raw_{run}.root || exit {digit}",
    "echo \"$(date) {stage} on $HOSTNAME\" >> '/tmp/{user}.log'",
    "# by {name}, {hexadecimal}",
)
_STAGES = ("reco", "merge", "keepup", "mcgen", "caf", "calib", "decaf", "prestage")
_MODULES = (
    *("CosmicTrack", "HoughTransform", "Geant4", "slicer4d", "kalman-track", "CVNEval"),
    *("elastic_arms", "FuzzyKVertex", "libG4run", "remid", "BreakPoint", "pid.lem", "MCCheater"),
)
_NAMES = ("José Núñez", "Jürgen Groß", "Anaïs", "Σωκράτης", "O'Neill", "李明", "Łukasz")
_ACCESS_DENIED = "Erreur: accès refusé à /pnfs/nova/{run}".encode("latin-1")


def log_lines(
    chance: random.Random, *, number: int, failed: bool, samples: Sequence[bytes]
) -> bytes:
    """Return the log of a job: mostly usual lines, some rare ones, and of a failed job an error."""
    lines = []
    usual = chance.sample(USUAL, chance.randint(3, 7))
    for _ in range(chance.randint(8, 60)):
        lines.append(_filled(chance.choice(usual), chance))
    for _ in range(chance.randint(1, 6)):
        lines.append(_filled(chance.choice(RARE), chance))
    if samples:
        first = chance.randrange(len(samples))
        lines += samples[first : first + chance.randint(2, 12)]
    if number % 500 == 0:
        run = str(chance.randrange(100_000)).encode()
        lines.append(_ACCESS_DENIED.replace(b"{run}", run))
    chance.shuffle(lines)
    if failed:
        lines.append(_filled(chance.choice(ERRORS), chance))
    return b"\n".join(lines) + chance.choice([b"\n", b"", b"\r\n"])


def script_lines(chance: random.Random) -> bytes:
    """Return a batch script."""
    lines = [_filled(line, chance) for line in SCRIPT if chance.random() < 0.8]
    return b"\n".join([b"#!/bin/bash", *lines, b""])


def sample_lines(directory: Path | None) -> list[bytes]:
    """Return lines of the real logs in a directory; none without one."""
    lines: list[bytes] = []
    if directory is None:
        return lines
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix not in (".csv", ".md"):
            for line in path.read_bytes().split(b"\n")[:LINES_A_SAMPLE]:
                if line.strip() and len(line) <= LONGEST_SAMPLE:
                    lines.append(line.replace(b"\0", b""))
    return lines


def _filled(line: str, chance: random.Random) -> bytes:
    values = {
        "big": chance.randrange(10**7),
        "clock": f"22-Nov-2026 {chance.randrange(24):02}:{chance.randrange(60):02}:07",
        "digit": chance.randrange(10),
        "hexadecimal": f"{chance.randrange(2**32):08x}",
        "host": f"wn-{chance.randrange(2_000)}.fnal.gov",
        "medium": chance.randrange(100, 10_000),
        "module": chance.choice(_MODULES),
        "name": chance.choice(_NAMES),
        "run": chance.randrange(30_000, 60_000),
        "seconds": f"{chance.random() * 100:.3f}",
        "small": chance.randrange(1, 64),
        "stage": chance.choice(_STAGES),
        "user": f"user{chance.randrange(40)}",
    }
    return line.format(**values).encode()
