"""The batch script of a stage.

Text written by users enters it only as quoted words, never as shell code.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, NamedTuple

from apps.core.errors import InvalidFields
from apps.jobs.enums import DEBUG_STAGE, TEST_STAGE
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.content.scan import at_point, scan_of
from apps.production.domain.types.declaration import Command
from apps.submission.enums import Purpose

#: Placeholders with a value per job, and the variables that the script sets.
JOB_VARIABLES = {
    "job_index": "OPSPORTAL_JOB_INDEX",
    "job_count": "OPSPORTAL_JOB_COUNT",
    "first_event": "OPSPORTAL_FIRST_EVENT",
    "events_per_job": "OPSPORTAL_EVENTS_PER_JOB",
    "seed": "OPSPORTAL_SEED",
    "most_events": "OPSPORTAL_MOST_EVENTS",
}
#: Suffixes of stage names in the environment, and of datasets, by purpose: such output does not
#: count.
_SUFFIXES = {Purpose.PRODUCTION: "", Purpose.TEST: TEST_STAGE, Purpose.DEBUG: DEBUG_STAGE}
_OF_EVENTS = {"first_event", "events_per_job"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """Everything that the jobs of a stage need; `words` is the command, quoted for bash."""

    request_key: str
    position: int
    name: str
    words: tuple[str, ...]
    jobs: int
    events: int
    first_seed: int
    #: The point of a scan, from 0, and how many points share the jobs and events.
    point: int = 0
    points: int = 1
    memory_bytes: int
    wall_seconds: int
    test_events: int = 0
    purpose: str = Purpose.PRODUCTION
    takes_files: bool = False
    reads_dataset: bool = False
    reads_files: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def jobs_each(self) -> int:
        """The number of jobs of one point of a scan; without one, of the stage."""
        return self.jobs // self.points


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """What a debug re-run changes about a script; `most_events` None keeps the events."""

    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    trace: bool = False
    most_events: int | None = None

    @property
    def lines(self) -> list[str]:
        """The lines that run before the job's own command."""
        lines = [f"export {name}={shlex.quote(text)}" for name, text in self.environment.items()]
        if self.most_events is not None:
            names = (JOB_VARIABLES["events_per_job"], JOB_VARIABLES["most_events"])
            lines += [f"export {name}={self.most_events}" for name in names]
        if self.trace:
            lines.append("set -x")
        return lines


def events_of_part(events: int, part: int) -> int:
    """Return how many events of a job a script with this `events_part` produces."""
    return -(-events // part) if part > 1 else events


def events_of_job(events: int, jobs: int, index: int, *, points: int = 1) -> int:
    """Return how many events of its stage the job with this number produces.

    The first jobs of each point of a scan have one event more than the others if the events of the
    point cannot be divided evenly.
    """
    jobs_each = max(1, jobs // points)
    point = min(index // jobs_each, points - 1)
    events_per_job, extra_jobs = divmod(events // points, jobs_each)
    return events_per_job + (index - point * jobs_each < extra_jobs)


def stage_in_environment(name: str, purpose: str) -> str:
    """Return the name of a stage in the environment of its jobs."""
    suffix = _SUFFIXES[Purpose(purpose)]
    return f"{name[: 64 - len(suffix)]}{suffix}"


def make_stage_plan(
    *,
    key: str,
    content: RequestContent,
    position: int,
    purpose: Purpose = Purpose.PRODUCTION,
    test_events: int = 0,
    job: int = 0,
) -> StagePlan:
    """Plan the jobs of a stage, or its test with at most `test_events`.

    With the purpose of debugging, that is a debug re-run of its test. In a scan, these are the
    jobs of the point of `job`. Raises `InvalidFields` with everything that prevents it.
    """
    if test_events and purpose == Purpose.PRODUCTION:
        purpose = Purpose.TEST
    scan = scan_of(content)
    whole = content.stages[position]
    point = scan.point_of(job, whole.jobs)
    content = at_point(content, point)
    stage = content.stages[position]
    declared = content.workflow.stage(stage.kind)
    by_file = content.workflow.takes_files or declared.merges
    texts = _texts(key, content, position, purpose)
    command = _command_words(declared.command, texts)
    problems = _problems(stage, command, by_file=by_file)
    for name, text in texts.items():
        if "\0" in text:
            problems.append(f"{name} contains the character NUL.")
    problems += _option_problems(command, texts)
    if problems:
        raise InvalidFields({f"stages.{position}": problems})

    seed = content.arguments.get("first_seed")
    return StagePlan(
        request_key=key,
        position=position,
        name=stage.name,
        words=tuple(_word(word, texts) for word in command),
        jobs=0 if by_file else whole.jobs or 0,
        events=0 if by_file else whole.events or 0,
        point=point.index if point else 0,
        points=scan.count,
        first_seed=seed if isinstance(seed, int) else 1,
        memory_bytes=stage.memory_bytes or 0,
        wall_seconds=stage.wall_seconds or 0,
        test_events=test_events,
        purpose=purpose,
        takes_files=by_file,
        reads_files=by_file or declared.reads_files,
        reads_dataset=bool(texts.get("input_dataset")),
        variables={
            "OPSPORTAL_REQUEST": key,
            "OPSPORTAL_STAGE": stage_in_environment(stage.name, purpose),
            "OPSPORTAL_RELEASE": stage.release,
            **({"OPSPORTAL_POINT": str(point.number)} if point else {}),
        },
    )


def write_script(
    plan: StagePlan,
    *,
    first: int | None = 0,
    indices: Sequence[int] = (),
    token: str = "",
    files: Mapping[int, Sequence[str]] | None = None,
    overlay: Overlay | None = None,
    events_part: int = 0,
) -> str:
    """Return the script of an array. Task n is job `first` + n, or `indices[n]` if given.

    Without `first` the script takes it as an argument. `files` are the files of each job, by its
    number; `overlay` is of a debug re-run. With `events_part` n, each job produces the first
    nth part of its events, and one at least.
    """
    variables = dict(plan.variables)
    if token:
        variables["OPSPORTAL_SUBMISSION"] = token
    if plan.test_events:
        variables["OPSPORTAL_TEST"] = "1"
    exports = []
    for name, text in variables.items():
        if _VARIABLE.fullmatch(name):
            exports.append(f"export {name}={shlex.quote(text)}")
    if indices:
        index = [f"indices=({' '.join(map(str, indices))})", "index=${indices[$task]}"]
    else:
        first_text = "${1:-0}" if first is None else str(first)
        index = [f"first={first_text}", "index=$((first + task))"]

    events = _job_events(plan, events_part)
    overlay = overlay or Overlay()
    command = " ".join([*plan.words, *map(shlex.quote, overlay.arguments)])
    lines = [
        "#!/bin/bash",
        f"# Jobs of stage {plan.position + 1} of {plan.request_key}, written by opsportal.",
        "set -u",
        "unset SLURM_EXPORT_ENV  # else srun passes on only the variables of sbatch --export",
        *exports,
        "task=${SLURM_ARRAY_TASK_ID:-0}",
        *index,
        f"extra=$(({events.extra_before}))",
        "export OPSPORTAL_JOB_INDEX=$index",
        f"export OPSPORTAL_JOB_COUNT={plan.jobs}",
        f"export OPSPORTAL_FIRST_EVENT=$(({events.first}))",
        f"export OPSPORTAL_EVENTS_PER_JOB=$(({events.number}))",
        f"export OPSPORTAL_SEED=$(({plan.first_seed} + index))",
        f"export OPSPORTAL_MOST_EVENTS={events.most}",
        *_files(files or {}),
        *overlay.lines,
        f"exec -- {command}",
    ]
    return "\n".join(lines) + "\n"


class _JobEvents(NamedTuple):
    """The events of a job of an array, as expressions of bash in which `index` is its number.

    `extra_before` is how many jobs before it at the same point have one event more than others,
    and the value of `extra` in `first`.
    """

    extra_before: str
    first: str
    number: str
    most: str


def _job_events(plan: StagePlan, events_part: int) -> _JobEvents:
    """Return the events of a job, by the rule of `events_of_job`."""
    # Each point divides its own events among its own jobs. The first `extra_jobs` jobs of a point
    # have one event more than the others.
    events_of_point = plan.events // plan.points
    events_per_job, extra_jobs = divmod(events_of_point, plan.jobs_each or 1)
    job_of_point = "index"
    events_before = ""
    if plan.point:
        job_of_point = f"(index - {plan.point * plan.jobs_each})"
        events_before = f"{plan.point * events_of_point} + "
    if plan.test_events:
        events_per_job = min(events_per_job, plan.test_events) or plan.test_events
        extra_jobs = 0

    number = f"{events_per_job} + ({job_of_point} < {extra_jobs})"
    if events_part > 1:
        number = f"({number} + {events_part - 1}) / {events_part}"
    reads_all = (plan.reads_dataset or not plan.events) and not plan.test_events
    return _JobEvents(
        extra_before=f"{job_of_point} < {extra_jobs} ? {job_of_point} : {extra_jobs}",
        first=f"{events_before}{job_of_point} * {events_per_job} + extra + 1",
        number=number,
        most="-1" if reads_all else "$OPSPORTAL_EVENTS_PER_JOB",
    )


def _files(files: Mapping[int, Sequence[str]]) -> list[str]:
    """Return the lines that set the files of a job."""
    if not files:
        return ["files=()"]
    cases = []
    for index, names in sorted(files.items()):
        cases.append(f"  {index}) files=({' '.join(map(shlex.quote, names))});;")
    return [
        "case $index in",
        *cases,
        "  *) files=();;",
        "esac",
        "printf -v OPSPORTAL_FILES '%s\\n' ${files[@]+\"${files[@]}\"}",
        "export OPSPORTAL_FILES",
    ]


def _command_words(command: Command, texts: Mapping[str, str]) -> list[str]:
    """Return the words of a command, without groups that have an empty argument."""
    command_words: list[str] = []
    for part in command:
        if isinstance(part, str):
            command_words.append(part)
            continue
        arguments = _placeholders(part) - JOB_VARIABLES.keys() - {"files"}
        if all(texts.get(name) for name in arguments):
            command_words += part
    return command_words


def _placeholders(command: Iterable[str]) -> set[str]:
    """Return the names of the placeholders in the words of a command."""
    names = set()
    for word in command:
        for _, name, _, _ in Formatter().parse(word):
            if name:
                names.add(name)
    return names


def _option_problems(command: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    """Return a problem for each word that becomes an option because of a text from the user."""
    problems = []
    for word in command:
        plain = _plain(word, texts)
        is_number = re.fullmatch(r"-\d+(\.\d+)?", plain) is not None
        if plain.startswith("-") and not word.startswith("-") and not is_number:
            problems.append(f"The word {plain[:80]!r} of the command would be taken as an option.")
    return problems


def _problems(stage: StageContent, command: Sequence[str], *, by_file: bool) -> list[str]:
    problems = []
    if not command:
        problems.append("The workflow type has no command for this stage.")
    if not stage.jobs and not by_file:
        problems.append("The number of jobs is missing.")
    if not stage.memory_bytes or not stage.wall_seconds:
        problems.append("Memory and wall time of a job are missing.")
    uses_events = bool(_placeholders(command) & _OF_EVENTS)
    if uses_events and by_file:
        problems.append("The number of events of a job is unknown for files as they arrive.")
    elif uses_events and (stage.events or 0) < (stage.jobs or 0):
        problems.append("The stage has fewer events than jobs.")
    return problems


def _texts(key: str, content: RequestContent, position: int, purpose: Purpose) -> dict[str, str]:
    """Return the texts of placeholders known now: arguments of the stage, `request` and `stage`.

    Tests and debug re-runs write separate datasets; tests of later stages read what tests wrote.
    """
    stage = content.stages[position]
    declared = content.workflow.stage(stage.kind).arguments
    texts = {argument.name: _text(stage.value(argument.name)) for argument in declared}
    if not texts.get("input_dataset") and position:
        texts["input_dataset"] = content.stages[position - 1].output_dataset
    suffix = _SUFFIXES[purpose]
    if purpose == Purpose.TEST:
        outputs = {previous.output_dataset for previous in content.stages[:position]} - {""}
        if texts.get("input_dataset") in outputs:
            texts["input_dataset"] += suffix
    if texts.get("output_dataset"):
        texts["output_dataset"] += suffix
    return texts | {"request": key, "stage": stage.name}


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ",".join(map(str, value))
    return str(value)


def _word(word: str, texts: Mapping[str, str]) -> str:
    """Quote one word of a command; values per job become variables in double quotes."""
    if word == "{files}":
        return '${files[@]+"${files[@]}"}'
    parts = []
    for literal, name, _, _ in Formatter().parse(word):
        if literal:
            parts.append(shlex.quote(literal))
        if name in JOB_VARIABLES:
            parts.append(f'"${JOB_VARIABLES[name]}"')
        elif name:
            parts.append(shlex.quote(texts.get(name, "")))
    return "".join(parts) or "''"


def _plain(word: str, texts: Mapping[str, str]) -> str:
    """Return a word as the command will see it."""
    parts = []
    for literal, name, _, _ in Formatter().parse(word):
        parts.append(literal)
        parts.append("0" if name in JOB_VARIABLES else texts.get(name or "", ""))
    return "".join(parts)
