"""A workflow type as declared in YAML or JSON, read into one `Workflow`; every fault is named with its place."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from string import Formatter
from typing import Any

import re2
import yaml

from apps.production.domain.types.arguments import TYPES, Argument
from apps.production.domain.types.reader import Reader

MAX_BYTES = 100_000
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
#: Arguments of a stage that have a column of their own; a declaration names them, and may change their words.
CORE: Mapping[str, Argument] = {
    argument.name: argument
    for argument in (
        Argument(
            name="name",
            help="Such as generation; jobs carry it.",
            required=True,
            missing="Name the stage, such as reconstruction.",
        ),
        Argument(
            name="release",
            help="Of the software, such as v09_72.",
            required=True,
            missing="Say which software release runs.",
        ),
        Argument(
            name="configuration",
            help="File, such as prod_reco.fcl.",
            required=True,
            missing="Say which configuration file it takes.",
        ),
        Argument(
            name="input_dataset",
            type="dataset",
            label="Input dataset",
            help="Empty: the output of the stage before.",
        ),
        Argument(
            name="output_dataset",
            type="dataset",
            label="Output dataset",
            required=True,
            missing="Say where the output goes.",
        ),
        Argument(
            name="events",
            type="count",
            help="In all, such as 20 M.",
            required=True,
            missing="Say how many events in all.",
        ),
        Argument(
            name="jobs",
            type="count",
            help="Into how many it is cut.",
            required=True,
            missing="Say into how many jobs.",
        ),
        Argument(
            name="memory_bytes",
            type="size",
            label="Memory",
            help="Of one job: 4 GB, 3900 MB.",
            required=True,
            missing="Say how much memory one job needs, such as 4 GB.",
        ),
        Argument(
            name="wall_seconds",
            type="duration",
            label="Wall time",
            help="Of one job: 8 h, 08:00:00, 2 d.",
            required=True,
            missing="Say how long one job may run, such as 8 h.",
        ),
        Argument(name="services", type="services", label="Services needed"),
    )
}
#: Names of what every request has; an argument of a request has another.
_TAKEN = frozenset({"title", "purpose", "deadline", "requested_priority", "priority_reason", "experiment", "workflow"})
_TAKEN |= {"version", "stages", "arguments", "kind", "do", "key", "state", "id", *CORE}
#: What a command may take beside its stage's arguments; filled in for each job when it is submitted.
JOB_WORDS = frozenset(
    {"request", "stage", "job_index", "job_count", "first_event", "events_per_job", "most_events", "seed", "files"}
)


#: Words, and groups of words that are left out together.
Command = tuple[str | tuple[str, ...], ...]


class DeclarationError(ValueError):
    """A declaration cannot be used; `problems` lists every fault as (place, what is wrong)."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(f"{place}: {what}" for place, what in problems))


@dataclass(frozen=True, kw_only=True)
class StageType:
    """A kind of stage: its arguments in the order of the form, and the command that its jobs run, word by word.

    Words of `command` in a tuple of their own are left out together where one of their arguments is empty.
    """

    key: str
    title: str
    help: str = ""
    arguments: tuple[Argument, ...] = ()
    command: Command = ()

    @property
    def command_shown(self) -> str:
        """Return the command as people read it."""
        return " ".join(word if isinstance(word, str) else f"[{' '.join(word)}]" for word in self.command)

    def argument(self, name: str) -> Argument | None:
        return next((argument for argument in self.arguments if argument.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """One version of a workflow type. `begins_with` are the stages of a new request."""

    key: str
    number: int = field(default=0, compare=False)
    title: str = field(compare=False)
    help: str = field(default="", compare=False)
    arguments: tuple[Argument, ...] = ()
    stages: tuple[StageType, ...] = ()
    begins_with: tuple[str, ...] = ()

    def stage(self, key: str) -> StageType:
        """Return the stage type of this key; the first one where there is none such."""
        return next((stage for stage in self.stages if stage.key == key), self.stages[0])

    def argument(self, name: str) -> Argument | None:
        return next((argument for argument in self.arguments if argument.name == name), None)

    def knows(self, stage_key: str) -> bool:
        return any(stage.key == stage_key for stage in self.stages)


def read_declaration(text: str, *, key: str, number: int = 0, states: frozenset[str]) -> Workflow:
    """Read a declaration in YAML, of which JSON is a part. Raises `DeclarationError` with every fault."""
    if len(text.encode()) > MAX_BYTES:
        raise DeclarationError([("declaration", f"At most {MAX_BYTES:,} bytes.")])
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DeclarationError([("declaration", f"This is no YAML: {_one_line(error)}")]) from error
    return _Reader(states).workflow(data, key, number)


def _quiet() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    return options


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


class _Reader(Reader):
    """Reads a declaration."""

    root = "declaration"

    def __init__(self, states: frozenset[str]) -> None:
        super().__init__()
        self._states = states

    def workflow(self, data: Any, key: str, number: int) -> Workflow:
        values = self.mapping(data, "", {"title", "help", "arguments", "stages", "begins_with"})
        arguments = self._arguments(values.get("arguments"), "arguments", core=False)
        stages = tuple(self._stages(values.get("stages")))
        begins_with = tuple(self._strings(values.get("begins_with", []), "begins_with"))
        known = [stage.key for stage in stages]
        for name in begins_with:
            if name not in known:
                self.fault("begins_with", f"There is no stage {name!r}; there are: {', '.join(known) or 'none'}.")
        title = self._string(values, "title", "")
        if self.problems:
            raise DeclarationError([(place, what) for place, whats in self.problems.items() for what in whats])
        return Workflow(
            key=key,
            number=number,
            title=title,
            help=str(values.get("help") or ""),
            arguments=arguments,
            stages=stages,
            begins_with=begins_with or tuple(known[:1]),
        )

    def _stages(self, data: Any) -> Iterator[StageType]:
        values = self.mapping(data, "stages", None)
        if not values:
            self.fault("stages", "At least one kind of stage is needed.")
        for key, inner in values.items():
            place = f"stages.{key}"
            if not _NAME.fullmatch(str(key)):
                self.fault(place, "A key is small letters, digits and _, at most 40.")
            stage = self.mapping(inner, place, {"title", "help", "arguments", "command"})
            arguments = self._arguments(stage.get("arguments"), f"{place}.arguments", core=True)
            if "name" not in {argument.name for argument in arguments}:
                self.fault(f"{place}.arguments", "A stage has the argument “name”: its jobs carry it.")
            command = self._command(stage.get("command", []), f"{place}.command")
            words = [word for part in command for word in ((part,) if isinstance(part, str) else part)]
            self._check_command(words, {argument.name for argument in arguments}, f"{place}.command")
            yield StageType(
                key=str(key),
                title=self._string(stage, "title", place),
                help=str(stage.get("help") or ""),
                arguments=arguments,
                command=command,
            )

    def _arguments(self, data: Any, place: str, *, core: bool) -> tuple[Argument, ...]:
        found: list[Argument] = []
        for position, item in enumerate(self.sequence(data, place)):
            here = f"{place}.{position}"
            argument = (
                self._core(item, here, core=core) if isinstance(item, str) else self._argument(item, here, core=core)
            )
            if argument is None:
                continue
            if argument.name in {other.name for other in found}:
                self.fault(here, f"{argument.name!r} is declared twice.")
            found.append(argument)
        return tuple(found)

    def _core(self, name: str, place: str, *, core: bool) -> Argument | None:
        if core and name in CORE:
            return CORE[name]
        self.fault(place, f"{name!r} alone is for a stage, and names one of: {', '.join(CORE)}. Declare others.")
        return None

    def _argument(self, data: Any, place: str, *, core: bool) -> Argument | None:
        values = dict(self.mapping(data, place, {f.name for f in fields(Argument)}))
        name = values.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self.fault(place, "An argument has a name of small letters, digits and _, at most 40.")
            return None
        if not core and name in _TAKEN:
            self.fault(place, f"{name!r} is taken: every request has it.")
        if core and name in CORE:
            if values.get("type", CORE[name].type) != CORE[name].type:
                self.fault(f"{place}.type", f"{name!r} is always of the type {CORE[name].type}.")
            values["type"] = CORE[name].type
        values["choices"] = tuple(self._strings(values.get("choices", []), f"{place}.choices"))
        values["editable_in"] = frozenset(self._strings(values.get("editable_in", []), f"{place}.editable_in"))
        argument = replace(CORE[name], **values) if core and name in CORE else Argument(**values)
        before = self.count
        self._check_argument(argument, place)
        return argument if self.count == before else None

    def _check_argument(self, argument: Argument, place: str) -> None:
        for name in ("type", "label", "help", "unit", "missing", "pattern"):
            if not isinstance(getattr(argument, name), str):
                self.fault(f"{place}.{name}", "This must be text.")
                return
        for name in ("minimum", "maximum"):
            if not isinstance(getattr(argument, name), int | float | None):
                self.fault(f"{place}.{name}", "This must be a number, in the unit of the API.")
        if argument.type not in TYPES or (argument.type == "services" and argument.name != "services"):
            self.fault(f"{place}.type", f"There is no type {argument.type!r}; there are: {', '.join(TYPES)}.")
            return
        if (argument.type == "choice") != bool(argument.choices):
            self.fault(f"{place}.choices", "Choices belong to the type “choice”, which needs them.")
        if unknown := sorted(argument.editable_in - self._states):
            self.fault(f"{place}.editable_in", f"There is no state {unknown[0]!r}.")
        self._check_pattern(argument, place)

    def _check_pattern(self, argument: Argument, place: str) -> None:
        try:
            re2.compile(argument.pattern, _quiet())
        except re2.error as error:
            self.fault(f"{place}.pattern", f"This is no regular expression: {error.args[0].decode(errors='replace')}.")
        else:
            if argument.default is not None and (problem := argument.problem(argument.default)):
                self.fault(f"{place}.default", problem)

    def _command(self, data: Any, place: str) -> Command:
        parts = self.sequence(data, place)
        groups = [tuple(self._strings(part, place)) if isinstance(part, list) else part for part in parts]
        if all(isinstance(part, str | tuple) for part in groups):
            return tuple(groups)
        self.fault(place, "This must be a list of texts, and of lists of texts.")
        return ()

    def _check_command(self, command: Sequence[str], arguments: set[str], place: str) -> None:
        """A word is text with `{argument}` in it; it is filled in and handed on whole, never read by a shell."""
        for word in command:
            try:
                names = [(name, spec, change) for _, name, spec, change in Formatter().parse(word) if name is not None]
            except ValueError as error:
                self.fault(place, f"{word!r}: {error}. Write {{{{ for a brace.")
                continue
            for name, spec, change in names:
                if name not in arguments | JOB_WORDS or spec or change:
                    self.fault(place, f"{word!r} takes {name!r}, which is no argument of this stage.")
                elif name == "files" and word != "{files}":
                    self.fault(place, f"{word!r}: the files are words of their own, {{files}} alone.")

    def _strings(self, data: Any, place: str) -> list[str]:
        items = self.sequence(data, place)
        if all(isinstance(item, str) for item in items):
            return items
        self.fault(place, "This must be a list of texts.")
        return []

    def _string(self, values: Mapping[str, Any], name: str, place: str) -> str:
        value = values.get(name)
        if isinstance(value, str) and value:
            return value
        self.fault(f"{place}.{name}".lstrip("."), "This is needed.")
        return ""
