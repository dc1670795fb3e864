"""Declarations of workflow types in YAML or JSON, read into a `Workflow`.

Every fault is reported with its place.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, field, replace
from functools import cache, cached_property
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import SchemaValidator, core_schema

from apps.production.domain.types.arguments import Argument, Name, Text
from apps.production.domain.types.faults import NOT_A_MAPPING, problems_of, raise_faults
from apps.production.domain.types.fields import CORE, TAKEN
from apps.production.domain.yaml_text import Fault, parse_yaml

MAX_BYTES = 100_000
MAX_ARGUMENTS = 100
MAX_KINDS = 50
MAX_WORDS = 200
MAX_WORD = 1_000
#: As in the column of `WorkflowVersion`.
MAX_TITLE = 100
NOT_STAGES = "Enter a name for each stage, and below it what the stage is, such as its title."
_BUILTIN = Path(__file__).parent / "declarations"
#: Placeholders of a command besides the arguments of its stage. They are filled in for each job at
#: submission.
JOB_WORDS = frozenset(
    {
        "request",
        "stage",
        "job_index",
        "job_count",
        "first_event",
        "events_per_job",
        "most_events",
        "seed",
        "files",
    }
)
#: A command consists of words, and of groups of words that are omitted together.
Word = Annotated[str, Field(max_length=MAX_WORD)]
Command = Annotated[
    tuple[Word | Annotated[tuple[Word, ...], Field(max_length=MAX_WORDS)], ...],
    Field(max_length=MAX_WORDS),
]


class DeclarationError(ValueError):
    """An invalid declaration. `problems` lists every fault as (place, message)."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(f"{place}: {what}" for place, what in problems))


def _check_number(arguments: Any) -> Any:
    if isinstance(arguments, list) and len(arguments) > MAX_ARGUMENTS:
        raise ValueError(f"Declare at most {MAX_ARGUMENTS} arguments.")
    return arguments


def _check_request_argument(argument: Any) -> Any:
    name = argument.get("name") if isinstance(argument, dict) else argument
    if isinstance(argument, str):
        raise ValueError(  # noqa: TRY004
            f"{name!r} without a declaration is valid only in a stage, for one of: "
            f"{', '.join(CORE)}."
        )
    if isinstance(name, str) and name in TAKEN:
        raise ValueError(f"{name!r} is reserved: every request has it.")
    return argument


def _complete_stage_argument(argument: Any) -> Any:
    """Complete the name of a built-in argument to the whole argument.

    The name stands alone or with other labels.
    """
    name = argument.get("name") if isinstance(argument, dict) else argument
    core = CORE.get(name) if isinstance(name, str) else None
    if isinstance(argument, str):
        return core or _check_request_argument(argument)
    return {**asdict(core), **argument} if core else argument


def _check_arguments(arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """Reject duplicate names, and types and limits that a built-in argument does not allow.

    Built-in arguments are stored in columns.
    """
    raise_faults(_faults_of_arguments(arguments))
    return arguments


def _faults_of_arguments(
    arguments: Sequence[Argument],
) -> Iterator[tuple[tuple[int | str, ...], str]]:
    seen: set[str] = set()
    for place, argument in enumerate(arguments):
        core = CORE.get(argument.name)
        if argument.name in seen:
            yield (place,), f"{argument.name!r} is declared twice."
        seen.add(argument.name)
        if argument.type != core.type if core else argument.type == "services":
            yield (place, "type"), f"{argument.name!r} cannot be of the type {argument.type}."
        elif core and core.maximum and not (argument.maximum and argument.maximum <= core.maximum):
            yield (place, "maximum"), f"At most {core.maximum:,}."


class _Declared:
    """A declaration with arguments: a workflow type, or a kind of stage."""

    arguments: tuple[Argument, ...]

    def argument(self, name: str) -> Argument | None:
        return next((argument for argument in self.arguments if argument.name == name), None)

    @cached_property
    def reader(self) -> SchemaValidator:
        own = [argument for argument in self.arguments if argument.name not in CORE]
        read = {}
        for argument in own:
            read[argument.name] = core_schema.no_info_plain_validator_function(argument.read)
        fields = {}
        for name, validator in read.items():
            fields[name] = core_schema.typed_dict_field(validator, required=False)
        return SchemaValidator(core_schema.typed_dict_schema(fields, extra_behavior="forbid"))


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class StageType(_Declared):
    """A kind of stage: its arguments in the order of the form, and the command of its jobs.

    A tuple of words in `command` is omitted if one of its arguments is empty. A stage that `merges`
    reads the output files of an earlier stage of its request, grouped as its arguments say.
    """

    key: str = ""
    title: Annotated[str, Field(min_length=1)]
    help: str = ""
    merges: bool = False
    arguments: Annotated[
        tuple[Annotated[Argument, BeforeValidator(_complete_stage_argument)], ...],
        BeforeValidator(_check_number),
    ] = ()
    command: Command = ()

    @model_validator(mode="after")
    def _is_right(self) -> Self:
        raise_faults(self._faults())
        return self

    def _faults(self) -> Iterator[tuple[tuple[int | str, ...], str]]:
        yield from (
            (("arguments", *place), fault) for place, fault in _faults_of_arguments(self.arguments)
        )
        if self.argument("name") is None:
            yield ("arguments",), "A stage requires the argument “name”, which its jobs carry."
        if self.merges and not self.reads_files:
            yield ("command",), "A stage that merges requires the word {files}."
        if self.merges and self.argument("jobs"):
            yield ("arguments",), "A stage that merges has a job for each group. Omit “jobs”."
        known = JOB_WORDS.union(argument.name for argument in self.arguments)
        for part in self.command:
            for word in part if isinstance(part, tuple) else (part,):
                yield from ((("command",), fault) for fault in _faults_of_word(word, known))

    @property
    def reads_files(self) -> bool:
        """Whether the portal tells each job which files it is to read."""
        return "{files}" in self.command

    @property
    def command_shown(self) -> str:
        """The command as text, with optional words in brackets."""
        return " ".join(
            word if isinstance(word, str) else f"[{' '.join(word)}]" for word in self.command
        )


def _faults_of_word(word: str, known: Collection[str]) -> Iterator[str]:
    """Yield the faults of a word, which is text with `{argument}` placeholders.

    No shell ever parses it.
    """
    try:
        names = []
        for _, name, spec, change in Formatter().parse(word):
            if name is not None:
                names.append((name, spec, change))
    except ValueError as error:
        yield f"{word!r}: {error}. Use {{{{ for a brace."
        return
    wrong = [name for name, spec, change in names if name not in known or spec or change]
    if wrong:
        yield f"{word!r}: {wrong[0]!r} is not an argument of this stage."
    elif word != "{files}" and any(name == "files" for name, _, _ in names):
        yield f"{word!r}: use {{files}} as a separate word."


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Workflow(_Declared):
    """A version of a workflow type. `begins_with` lists the stages of a new request."""

    key: str
    number: int = field(default=0, compare=False)
    title: Annotated[Text, Field(min_length=1, max_length=MAX_TITLE)] = field(compare=False)
    help: str = field(default="", compare=False)
    arguments: Annotated[
        tuple[Annotated[Argument, BeforeValidator(_check_request_argument)], ...],
        BeforeValidator(_check_number),
        AfterValidator(_check_arguments),
    ] = ()
    stages: Annotated[tuple[StageType, ...], Field(validate_default=True)] = ()
    begins_with: Annotated[tuple[str, ...], Field(validate_default=True, max_length=MAX_KINDS)] = ()

    @field_validator("stages", mode="before")
    @classmethod
    def _by_key(cls, stages: Any) -> Any:
        if stages and isinstance(stages, tuple):  # of a workflow that was read before
            return stages
        if stages and not isinstance(stages, dict):
            raise ValueError(NOT_STAGES)
        if not stages or len(stages) > MAX_KINDS:
            raise ValueError(f"Declare from 1 to {MAX_KINDS} kinds of stages.")
        read = _STAGES.validate_python(stages)
        return tuple(replace(stage, key=key) for key, stage in read.items())

    @field_validator("begins_with")
    @classmethod
    def _begins_with(cls, keys: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Default to the first stage. The context also has the stages with faults."""
        known = keys
        if isinstance(info.context, dict):
            known = tuple(info.context)
        if unknown := [key for key in keys if key not in known]:
            raise ValueError(
                f"There is no stage {unknown[0]!r}. Choose from: {', '.join(map(str, known))}."
            )
        return keys or tuple(stage.key for stage in info.data.get("stages", ())[:1])

    @property
    def takes_files(self) -> bool:
        """Whether jobs are created from files as they arrive, as in keep-up processing.

        Such a request has no fixed number of jobs.
        """
        return self.argument("cadence") is not None and self.argument("stop_on") is not None

    def stage(self, key: str) -> StageType:
        """Return the stage type with this key, or else the first one."""
        return next((stage for stage in self.stages if stage.key == key), self.stages[0])

    def knows(self, stage_key: str) -> bool:
        return any(stage.key == stage_key for stage in self.stages)


_STAGES = TypeAdapter(dict[Name, StageType])
_WORKFLOW = TypeAdapter(Workflow)


def read_declaration(text: str, *, key: str, number: int = 0) -> Workflow:
    """Read a declaration in YAML or JSON. Raises `DeclarationError` with every fault."""
    parsed = parse_yaml(text, longest=MAX_BYTES)
    faults = list(parsed.faults)
    if not faults and not isinstance(parsed.data, dict):
        faults = [Fault(1, NOT_A_MAPPING)]
    if faults:
        raise DeclarationError([("declaration", str(fault)) for fault in faults])
    data = {**parsed.data, "key": key, "number": number}
    try:
        return _WORKFLOW.validate_python(data, context=data.get("stages"))
    except ValidationError as error:
        problems = []
        for place, messages in problems_of(error).items():
            line = ""
            if place in parsed.lines:
                line = f" (line {parsed.lines[place]})"
            for message in messages:
                problems.append((place or "declaration", message + line))
        raise DeclarationError(problems) from error


def builtin_texts() -> dict[str, str]:
    """Return the built-in declarations by key of their type, the general one first."""
    paths = sorted(_BUILTIN.glob("*.yaml"), key=lambda path: (path.stem != "general", path.stem))
    return {path.stem: path.read_text(encoding="utf-8") for path in paths}


@cache
def general_workflow() -> Workflow:
    """Return the type of a request that does not name one."""
    return read_declaration(builtin_texts()["general"], key="general")
