"""The meanings of exit codes, signals and hold codes.

They depend on experiment, scheduler, convention and program.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from apps.diagnosis.engine.base import ExitCode, JobFacts
from apps.diagnosis.enums import Category, CodeKind, CodeScope

BUILT_IN = Path(__file__).with_name("exit_codes.csv")
COLUMNS = ("kind", "scope", "name", "number", "title", "help", "category", "certain", "source")
#: Most specific first. The meaning in a program is shown, but the job may have run another program.
_BY_SCOPE = (CodeScope.EXPERIMENT, CodeScope.SCHEDULER, CodeScope.CONVENTION, CodeScope.PROGRAM)
#: Text in a script or log that shows that a program ran, if its name is not enough.
_SIGNS_OF_PROGRAMS = {
    "art": r"\bart has completed\b|\bart::|^%MSG-|\b(?:art|lar) -c\b",
    "containers": r"\b(?:docker|podman|apptainer|singularity)\b",
    "Geant4": r"\bgeant4|\bG4[A-Z]\w+",
    "Java": r"\bjava\b|\(\w+\.java:\d+\)",
    "make": r"^\s*make\b|\bmake(?:\[\d+\])?: ",
    "mpirun": r"\bmpi(?:run|exec)\b",
    "Python": r"\bpython[\d.]*\b|^Traceback \(most recent call last\)",
    "ROOT": r"\broot(?:\.exe)? -[a-z]|^(?:Info|Warning|Error|SysError|Fatal) in <"
    r"|\*\*\* Break \*\*\*",
    "workflow managers": r"\b(?:nextflow|snakemake)\b",
}
_TORQUE_STATUS = re.compile(r"Exit_status=(-\d{1,9})")


def read_exit_codes(text: str, name: str) -> tuple[ExitCode, ...]:
    """Parse exit codes as CSV. Raises `ValueError` with `name` and the line."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if tuple(rows.fieldnames or ()) != COLUMNS:
        raise ValueError(f"{name}, line 1: columns must be {','.join(COLUMNS)}")
    codes: dict[tuple[str, str, str, int], ExitCode] = {}
    for row in rows:
        try:
            code = ExitCode(
                kind=CodeKind(row["kind"]),
                scope=CodeScope(row["scope"]),
                name=row["name"],
                number=int(row["number"]),
                title=row["title"],
                help=row["help"],
                category=Category(row["category"]),
                certain={"yes": True, "no": False}[row["certain"]],
                source=row["source"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{name}, line {rows.line_num}: {error}") from None
        if code.key in codes:
            raise ValueError(
                f"{name}, line {rows.line_num}: {code.kind} {code.number} appears twice"
            )
        codes[code.key] = code
    return tuple(codes.values())


@cache
def shipped() -> tuple[ExitCode, ...]:
    """Return the shipped exit codes, read once per process."""
    return read_exit_codes(BUILT_IN.read_text(), BUILT_IN.name)


def known_codes(facts: JobFacts) -> tuple[ExitCode, ...]:
    """Return the meanings to choose from: the job's own, or the shipped ones."""
    return shipped() if facts.exit_codes is None else facts.exit_codes


def numbers_of(facts: JobFacts) -> Iterator[tuple[CodeKind, int]]:
    """Yield the numbers that a job ended with: its signal, its exit code, a code in the reason.

    The reason holds Torque's exit status or HTCondor's hold code.
    """
    if facts.signal:
        yield CodeKind.SIGNAL, facts.signal
    if facts.exit_code:
        yield CodeKind.EXIT, facts.exit_code
    if facts.scheduler == "torque" and (status := _TORQUE_STATUS.search(facts.reason)):
        yield CodeKind.EXIT, int(status[1])
    if (
        facts.scheduler == "htcondor"
        and facts.reason.isascii()
        and facts.reason.isdigit()
        and len(facts.reason) < 5
    ):
        yield CodeKind.HOLD, int(facts.reason)


def meanings_of(facts: JobFacts, codes: Iterable[ExitCode]) -> list[ExitCode]:
    """Return the possible meanings of a job's codes, most specific first."""
    numbers = list(numbers_of(facts))
    if not numbers:
        return []
    ranked: list[tuple[int, int, ExitCode]] = []
    for code in codes:
        if (code.kind, code.number) not in numbers:
            continue
        if code.scope is CodeScope.EXPERIMENT:
            applies = code.name.casefold() == facts.experiment.casefold()
        else:
            applies = code.scope is not CodeScope.SCHEDULER or code.name == facts.scheduler
        if not applies:
            continue
        breadth = _BY_SCOPE.index(code.scope)
        # Few programs follow a named convention, such as sysexits.
        if code.scope is CodeScope.CONVENTION and code.name:
            breadth = len(_BY_SCOPE)
        ranked.append((breadth, numbers.index((code.kind, code.number)), code))

    ranked.sort(key=lambda rank: rank[:2])
    return [code for _, _, code in ranked]


def program_ran(program: str, text: str) -> bool:
    """Return whether the text of a job (its script and log) shows that it ran a program."""
    signs = _SIGNS_OF_PROGRAMS.get(program, rf"(?<!\w){re.escape(program)}(?!\w)")
    return re.search(signs, text, re.IGNORECASE | re.MULTILINE) is not None


def certain_meaning(facts: JobFacts) -> ExitCode | None:
    """Return the most specific meaning of the job's codes if it is certain, else None."""
    meanings = meanings_of(facts, known_codes(facts))
    return meanings[0] if meanings and meanings[0].certain else None
