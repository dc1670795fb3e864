"""How fast logs are judged, end to end: `python -m benchmarks.log_matching [--megabytes 500]
[--logs DIR]`.

Mixed logs of 4 MB are judged as in a harvest: matching, excerpt, evidence, verdict. Their lines are
those of the logs in DIR, or ordinary lines of many programs with, in one log of four, the
catalogue's real examples among the last lines. In the same run a stand-in for Treeherder's error
parser reads the same logs: as its source does, it looks at each line, cut to 500 characters and
without its prefix, for 2 exclusions, 18 phrases and 3 regexes of 15 alternatives. Prints megabytes
per second of both, their ratio, and those of a log of nothing but errors; the same with Hyperscan,
null where it is not installed (requirements-hyperscan.txt). What each compiles once in a process is
not counted.

With Hyperscan a quiet log of 4 MB takes 2.2 ms, of which 1.4 ms are Hyperscan's own, where the peer
takes 206 ms. The 20 errors at the end of one log of four take another 4.5 ms, in which RE2 and the
grammar read them.
"""

import argparse
import json
import os
import random
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

LOG_BYTES = 4_000_000
ERRORS_BYTES = 64_000_000
ORDINARY = (
    (
        "Begin processing the {n}th record. Run {n}, Event {n}, LumiSection {n} at 29-Apr-2026 "
        "16:47:0{d}.024 CEST"
    ),
    "2026-01-02 03:04:0{d},{n} INFO reco.tracks: {n} hits in {d} planes, chi2 = {d}.{n}",
    "Epoch {d} [{n}/60000]\tLoss: 0.{n}\tAccuracy 9{d}.{n} %",
    "time step continuity {d}: sum local = {d}.{n}e-05, global = 1.{n}e-08, cumulative = -0.000{n}",
    "srun: Step created for StepId=1971760.{n}",
    "[{n}] reading block {d} of file /data/run{n}/part_{d}.root ({n} bytes)",
    "     total energy              =    -18{d}.{n} Ry",
    "Thread {d}: event {n} took {d}.{n} s, {n} MB resident",
    "%MSG-i MemoryReport:  {n} kB  PostEvent {d}",
    "chr{d}\t{n}\t{n}\tread_{n}\t60\t+\t{n}M",
)
PHRASES = tuple(
    f"{name}{end}"
    for name in (
        "TEST-UNEXPECTED-",
        "PROCESS-CRASH",
        "Assertion failure",
        "fatal error",
        "ABORT",
        "SUMMARY: Sanitizer",
    )
    for end in (":", " |", " -")
)
PEER_REGEXES = tuple(
    re.compile(regex)
    for regex in (
        (
            r"^g?make(?:\[\d+\])?: \*\*\*|^Remote Error:|^[A-Za-z.]+Error: |^[A-Za-z.]*Exception: "
            r"|^remoteFailed:"
        ),
        r"^rm: cannot |^abort:|^Output exceeded \d+ bytes|^.*\.js: line \d+, col \d+, Error",
        r" error\(\d*\):| error R?C\d+:| error LNK\d+:|\[Error\] |command timed out:",
    )
)
PEER_EXCLUDED = tuple(
    re.compile(regex)
    for regex in (r"TEST-(?:INFO|PASS) ", r"I[ /](?:Gecko|TestRunner).*TEST-UNEXPECTED-")
)
PEER_PREFIX = re.compile(r"^\d+:\d+:\d+ +(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL) - +")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--logs", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")
    from apps.diagnosis.engine.evidence import catalogue, matchers

    examples = [pattern.example.encode() for pattern in catalogue.built_in().patterns]
    lines = (
        [
            line
            for path in sorted(arguments.logs.iterdir())
            for line in path.read_bytes().split(b"\n")
        ]
        if (arguments.logs)
        else []
    )
    engines = {"": engine(fast=False)} | (
        {"_hyperscan": engine(fast=True)} if matchers.hyperscan else {}
    )
    ours, peers, total = dict.fromkeys(engines, 0.0), 0.0, 0.0
    for classifiers in engines.values():
        judge(b"warm up\n" * LOG_BYTES, classifiers)
    for log in mixed(arguments.megabytes * 1_000_000 // LOG_BYTES, lines, examples):
        total += len(log) / 1e6
        for name, classifiers in engines.items():
            ours[name] += seconds(judge, log, classifiers)
        peers += seconds(peer, log)
    errors = (b"\n".join(examples) * (ERRORS_BYTES // sum(map(len, examples)) + 1))[:ERRORS_BYTES]
    figures = {
        "megabytes": round(total),
        "peer_mb_per_s": round(total / peers, 1),
        "ratio_hyperscan": None,
    }
    for name, classifiers in engines.items():
        figures |= {
            f"mb_per_s{name}": round(total / ours[name], 1),
            f"ratio{name}": round(peers / ours[name], 1),
            f"errors_mb_per_s{name}": round(
                len(errors) / 1e6 / seconds(judge, errors, classifiers), 1
            ),
        }
    print(json.dumps(figures))


def mixed(count: int, lines: list[bytes], examples: list[bytes]) -> Iterator[bytes]:
    """Yield logs of 4 MB; the same in each run."""
    dice = random.Random(14)
    for number in range(count):
        if lines:
            yield b"\n".join(dice.choices(lines, k=LOG_BYTES // 100))[:LOG_BYTES]
            continue
        chosen = dice.choices(ORDINARY, k=500)
        text = (
            "\n".join(
                line.format(n=dice.randrange(99999), d=dice.randrange(9)) for line in chosen
            ).encode()
            + b"\n"
        )
        log = (text * (LOG_BYTES // len(text) + 1))[:LOG_BYTES]
        yield log if number % 4 else log + b"\n" + b"\n".join(dice.sample(examples, 20)) + b"\n"


def engine(*, fast: bool) -> Mapping[str, object]:
    """Return the classifiers of a harvest: with RE2 alone, or fast, with Hyperscan."""
    from apps.diagnosis.engine.evidence.catalogue import KnownErrorCatalogue, built_in
    from apps.diagnosis.engine.evidence.grammar import Grammar

    return {
        "catalogue": KnownErrorCatalogue(built_in().patterns, "", fast=fast),
        "grammar": Grammar(fast=fast),
    }


def judge(log: bytes, classifiers: Mapping[str, object]) -> None:
    """Judge a log as a harvest does."""
    from apps.diagnosis.engine.base import Block, JobFacts
    from apps.diagnosis.engine.diagnose import diagnose

    diagnose(JobFacts(), [Block(log, 0, len(log), 1)], classifiers=classifiers)


def peer(log: bytes) -> list[tuple[int, str]]:
    """Find error lines as Treeherder's parser does."""
    found = []
    for number, line in enumerate(log.decode(errors="replace").split("\n")):
        if any(regex.search(line) for regex in PEER_EXCLUDED):
            continue
        text = PEER_PREFIX.sub("", line[:500]).rstrip()
        if any(phrase in text for phrase in PHRASES) or any(
            regex.search(text) for regex in PEER_REGEXES
        ):
            found.append((number, text))
    return found


def seconds(work, log: bytes, *arguments) -> float:
    begin = time.perf_counter()
    work(log, *arguments)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
