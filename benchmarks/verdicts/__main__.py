"""How often verdicts on real logs are right: `python -m benchmarks.verdicts DIR [--half test]
[--wrong]`.

DIR holds the logs as `ID.log`, one for each row of `labels.csv`: source, domain, class, advice, and
a quote of the line that names the cause (alternatives divided by `|`), written down before the
engine ran. The logs themselves are other people's and not part of the repository. The engine may be
tuned on the rows of the half "tune" only.

A verdict is right if its class is the label's, wrong advice if it advises what the label does not
(to escalate an unknown failure is not wrong, only unhelpful); the cause is found if the quote is in
one of the first three lines shown. Beside it: `grep -iE … | tail -5`, and the advice of somebody
who always blames the code.
"""

import argparse
import csv
import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

LABELS = Path(__file__).with_name("labels.csv")
GREP = re.compile(
    r"error|fatal|exception|fail|abort|killed|segmentation|cannot|denied|not found", re.IGNORECASE
)
SHOWN = 3


@dataclass
class Score:
    """Counts over a group of failing logs."""

    logs: int = 0
    right: int = 0
    wrong_advice: int = 0
    unknown: int = 0
    cause: int = 0
    grep: int = 0
    always_code: int = 0
    misses: list[str] = field(default_factory=list)

    def shares(self) -> dict[str, float]:
        names = ("right", "wrong_advice", "unknown", "cause", "grep", "always_code")
        return {"logs": self.logs} | {
            name: round(100 * getattr(self, name) / max(self.logs, 1), 1) for name in names
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--half", choices=("tune", "test"), help="only this half")
    parser.add_argument("--wrong", action="store_true", help="list each log that is not right")
    arguments = parser.parse_args()
    with LABELS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if arguments.half in {None, row["half"]}]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")
    scores: dict[str, Score] = defaultdict(Score)
    alarms, good, missing = [], 0, 0
    for row in rows:
        path = arguments.directory / f"{row['id']}.log"
        if not path.exists():
            missing += 1
        elif row["class"] == "good":
            good += 1
            verdict, _ = judge(path)
            alarms += (
                [f"{row['id']} {verdict.verdict} {verdict.summary}"]
                if verdict.verdict != "unknown"
                else []
            )
        else:
            note(row, path, scores)
    for name in sorted(scores):
        print(f"{name:<20} {scores[name].shares()}")
    if arguments.wrong:
        print(*scores["all"].misses, *(f"FALSE ALARM {alarm}" for alarm in alarms), sep="\n")
    halves = {half: scores[half].shares() for half in ("tune", "test") if half in scores}
    print(
        json.dumps(
            halves
            | scores["all"].shares()
            | {"good": good, "false_alarms": len(alarms), "missing": missing}
        )
    )


def judge(path: Path):
    """Return verdict and the text of the lines shown, first lines first."""
    from apps.diagnosis.engine.base import JobFacts
    from apps.diagnosis.engine.diagnose import diagnose, read_log
    from apps.diagnosis.engine.logs.compressed import opened_text
    from apps.diagnosis.engine.registry import classifiers

    descriptor = os.open(path, os.O_RDONLY)
    try:
        with opened_text(descriptor) as text:
            block = read_log(text)
    finally:
        os.close(descriptor)
    found = diagnose(JobFacts(), [block], classifiers=classifiers())
    by_place = {f"{hit.stream}:{hit.offset}": hit.text for hit in found.hits}
    targets = [reason.target for reason in found.verdict.reasons if reason.target in by_place]
    return found.verdict, [by_place[target] for target in dict.fromkeys(targets)][:SHOWN]


def note(row: dict[str, str], path: Path, scores: dict[str, Score]) -> None:
    """Judge one failing log and count it in each of its groups."""
    verdict, shown = judge(path)
    quotes = [quote.lower() for quote in row["cause"].split("|")]
    names = lambda lines: any(quote in line.lower() for line in lines for quote in quotes)  # noqa: E731
    lines = path.read_text(errors="replace").splitlines()
    right = verdict.verdict == row["class"]
    wrong = not right and verdict.verdict != "unknown" and verdict.advice != row["advice"]
    cause = names(shown)
    for group in ("all", row["half"], f"class {row['class']}", f"domain {row['domain']}"):
        score = scores[group]
        score.logs += 1
        score.right += right
        score.wrong_advice += wrong
        score.unknown += verdict.verdict == "unknown"
        score.cause += cause
        score.grep += names([line for line in lines if GREP.search(line)][-5:])
        score.always_code += row["class"] == "code"
        if not (right and cause):
            why = " ".join(
                ["WRONG" if wrong else "right" if right else "missed", "" if cause else "no-cause"]
            )
            by = verdict.cause.pattern.id if verdict.cause else "-"
            score.misses.append(
                f"{row['id']} {row['class']} -> {verdict.verdict} {why} by {by}: {row['cause']}"
            )


if __name__ == "__main__":
    main()
