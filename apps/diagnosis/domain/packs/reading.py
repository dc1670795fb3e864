"""Read a pack from YAML: its declarations, and every fault with its line.

Reading compiles no expressions. `check_expressions` compiles all of them within one budget.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ValidationError

from apps.accounts.models import Experiment, Principal
from apps.core.domain.expressions.runs import TooCostly
from apps.core.domain.plugins import UnknownPlugin
from apps.diagnosis.domain.known_errors.changes import (
    FIELDS,
    NO_EXPERIMENT,
    expression_of,
    read_known_error,
    visible_experiment,
)
from apps.diagnosis.domain.known_errors.expressions import expression_faults
from apps.diagnosis.domain.packs.parts import PACK_PARTS
from apps.diagnosis.engine.formats.markers import LEVELS
from apps.diagnosis.enums import CodeScope
from apps.diagnosis.models import ExitCodeMeaning, KnownError
from apps.production.domain.yaml_text import Fault, Parsed, parse_yaml

MAX_BYTES = 500_000
#: Maximum number of entries of each part.
MOST = {"known_errors": 500, "exit_codes": 500, "phases": 20, "levels": 20}
#: Number of unknown parts that are named.
MOST_UNKNOWN = 20
PATTERN_FIELDS = frozenset(FIELDS) - {"experiment", "pack", "enabled"}
CODE_FIELDS = ("number", "kind", "title", "help", "category", "certain")


@dataclass(frozen=True, slots=True)
class PackExpression:
    """An expression of a pack: its place, regex, and the example that it must match.

    `subject` is the beginning of an error message about it.
    """

    line: int
    path: str
    regex: str
    example: str | None
    subject: str


@dataclass(frozen=True, slots=True)
class Pack:
    """The declarations of a pack, as unsaved rows and plain data; incomplete if it has faults.

    `parts` has the content of the parts that other apps read, by name of the part. A part that the
    pack leaves out has the content of an empty list.
    """

    experiment: Experiment | None
    known_errors: dict[str, KnownError] = field(default_factory=dict)
    exit_codes: dict[tuple[str, int], ExitCodeMeaning] = field(default_factory=dict)
    phases: list[dict[str, str]] = field(default_factory=list)
    levels: list[dict[str, str]] = field(default_factory=list)
    parts: dict[str, Any] = field(default_factory=dict)
    expressions: list[PackExpression] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def markers(self) -> dict[str, Any]:
        return {"phases": self.phases, "levels": self.levels}


def read_pack(text: str, *, by: Principal | None = None) -> Pack:
    """Read and check a pack, except for its expressions. Nothing is stored."""
    parsed = parse_yaml(text, longest=MAX_BYTES)
    if not isinstance(parsed.data, dict):
        faults = parsed.faults or [
            Fault(1, "Start with “experiment:” and the key of the experiment.")
        ]
        return Pack(None, faults=list(faults))
    key = parsed.data.get("experiment")
    pack = Pack(_experiment(key, by), faults=list(parsed.faults))
    if pack.experiment is None:
        what = NO_EXPERIMENT.format(key) if key else "Name the experiment: “experiment: KEY”."
        pack.faults.append(Fault(parsed.line("experiment") or 1, what, "experiment"))
        return pack
    _check_part_names(pack, parsed)
    _read_known_errors(pack, parsed)
    for path, entry in _entries(parsed, "exit_codes", CODE_FIELDS, pack.faults):
        _read_exit_code(pack, parsed, path, entry)
    _read_phases(pack, parsed)
    _read_levels(pack, parsed)
    _read_other_parts(pack, parsed)
    pack.faults.sort(key=lambda fault: fault.line)
    return pack


def _check_part_names(pack: Pack, parsed: Parsed) -> None:
    part_names = [*MOST, *PACK_PARTS.names()]
    known_names = {"experiment", *part_names}
    unknown_names = [name for name in parsed.data if name not in known_names]
    for name in unknown_names[:MOST_UNKNOWN]:
        pack.faults.append(
            Fault(parsed.line(str(name)), f"Unknown part “{name}”. Use {', '.join(part_names)}.")
        )
    if not parsed.data.keys() & set(part_names):
        pack.faults.append(Fault(1, f"The pack is empty. Use {', '.join(part_names)}."))


def _experiment(key: Any, by: Principal | None) -> Experiment | None:
    if not isinstance(key, str) or not key:
        return None
    return visible_experiment(key, by)


def _read_phases(pack: Pack, parsed: Parsed) -> None:
    for path, entry in _entries(parsed, "phases", ("start", "end"), pack.faults):
        start = _regex(pack, parsed, f"{path}.start", entry.get("start"), group="name")
        end = ""
        if "end" in entry:
            end = _regex(pack, parsed, f"{path}.end", entry["end"])
        pack.phases.append({"start": start, "end": end})


def _read_levels(pack: Pack, parsed: Parsed) -> None:
    for path, entry in _entries(parsed, "levels", ("level", "regex"), pack.faults):
        level = entry.get("level")
        if level not in LEVELS:
            line = parsed.line(f"{path}.level")
            pack.faults.append(Fault(line, f"level: Use one of: {', '.join(LEVELS)}.", path))
        regex = _regex(pack, parsed, f"{path}.regex", entry.get("regex"))
        pack.levels.append({"level": str(level), "regex": regex})


def _read_other_parts(pack: Pack, parsed: Parsed) -> None:
    """Read the parts that other apps own."""
    for name in PACK_PARTS.names():
        _read_other_part(pack, parsed, name)


def _read_other_part(pack: Pack, parsed: Parsed, name: str) -> None:
    assert pack.experiment  # noqa: S101  checked by the caller
    try:
        part = PACK_PARTS.get(name)
    except UnknownPlugin:
        # Without it, nobody knows what this pack and the one in force have in this part.
        what = f"{name}: This part cannot be read. The health page has the reason."
        pack.faults.append(Fault(parsed.line(name), what, name))
        return
    entries = []
    for path, entry in _entries(parsed, name, part.fields, pack.faults, most=part.most):
        entries.append((int(path.rpartition(".")[2]), entry))
    part_read = part.read(entries, experiment=pack.experiment)
    pack.parts[name] = part_read.content
    for fault in part_read.faults:
        path = f"{name}.{fault.number}"
        line = parsed.line(f"{path}.{fault.field}" if fault.field else path)
        pack.faults.append(Fault(line, fault.message, path))


def _entries(
    parsed: Parsed,
    part: str,
    fields: Sequence[str] | frozenset[str],
    faults: list[Fault],
    *,
    most: int | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and content of each entry of a part that is a mapping; add faults of its form."""
    entries = parsed.data.get(part, [])
    if not isinstance(entries, list):
        faults.append(Fault(parsed.line(part), f"{part}: Write a list.", part))
        return
    most = MOST[part] if most is None else most
    if len(entries) > most:
        faults.append(Fault(parsed.line(part), f"{part}: Use at most {most}.", part))
        return
    for number, entry in enumerate(entries):
        path = f"{part}.{number}"
        if not isinstance(entry, dict):
            faults.append(
                Fault(
                    parsed.line(path),
                    f"{part}: An entry has fields: {', '.join(sorted(fields))}.",
                    path,
                )
            )
            continue
        for name in entry.keys() - set(fields):
            faults.append(Fault(parsed.line(f"{path}.{name}"), f"Unknown field “{name}”.", path))
        yield path, {name: value for name, value in entry.items() if name in fields}


def _read_known_errors(pack: Pack, parsed: Parsed) -> None:
    assert pack.experiment  # noqa: S101  checked by the caller
    others = KnownError.objects.exclude(pack=pack.experiment.key, experiment=pack.experiment)
    taken_ids = set(others.values_list("pk", flat=True))
    for path, entry in _entries(parsed, "known_errors", PATTERN_FIELDS | {"id"}, pack.faults):
        _read_known_error(pack, parsed, path, entry, taken_ids)


def _read_known_error(
    pack: Pack, parsed: Parsed, path: str, entry: dict[str, Any], taken_ids: Collection[str]
) -> None:
    known_error_id = entry.pop("id", None)
    if not isinstance(known_error_id, str) or not known_error_id:
        pack.faults.append(Fault(parsed.line(path), "A known error needs an id.", path))
        return
    if known_error_id in pack.known_errors:
        pack.faults.append(
            Fault(parsed.line(f"{path}.id"), f"“{known_error_id}” appears twice.", path)
        )
        return
    if known_error_id in taken_ids:
        what = f"“{known_error_id}” exists and is not of this pack. Choose another id."
        pack.faults.append(Fault(parsed.line(f"{path}.id"), what, path))
        return
    assert pack.experiment  # noqa: S101  checked by the caller
    own = {"experiment": pack.experiment.key, "pack": pack.experiment.key}
    proposed, problems = read_known_error(
        known_error_id, entry | own, experiments={pack.experiment.key.upper(): pack.experiment}
    )
    if expression := expression_of(proposed, problems):
        line = parsed.line(f"{path}.regex")
        pack.expressions.append(
            PackExpression(line, path, *expression, f"{known_error_id}, regex: The pattern")
        )
    if problems:
        _add_problems(pack, parsed, path, known_error_id, problems)
    else:
        pack.known_errors[known_error_id] = proposed


def _read_exit_code(pack: Pack, parsed: Parsed, path: str, entry: dict[str, Any]) -> None:
    assert pack.experiment  # noqa: S101  checked by the caller
    meaning = ExitCodeMeaning(
        **entry,
        scope=CodeScope.EXPERIMENT,
        name=pack.experiment.key,
        pack=pack.experiment.key,
        source="pack",
    )
    name = f"exit code {entry.get('number')}"
    try:
        meaning.clean_fields()
    except ValidationError as error:
        _add_problems(pack, parsed, path, name, error.message_dict)
        return
    key = (meaning.kind, meaning.number)
    if key in pack.exit_codes:
        pack.faults.append(Fault(parsed.line(f"{path}.number"), f"{name} appears twice.", path))
    pack.exit_codes[key] = meaning


def _add_problems(
    pack: Pack, parsed: Parsed, path: str, name: str, problems: Mapping[str, Sequence[str]]
) -> None:
    for field_name, messages in problems.items():
        line = parsed.line(f"{path}.{field_name}")
        for message in messages:
            pack.faults.append(Fault(line, f"{name}, {field_name}: {message}", path))


def _regex(pack: Pack, parsed: Parsed, path: str, regex: Any, *, group: str = "") -> str:
    """Read an expression that matches lines, with a named group if one is required."""
    line = parsed.line(path)
    name = path.rpartition(".")[2]
    if not isinstance(regex, str) or not regex:
        pack.faults.append(Fault(line, f"{name}: Write a regular expression.", path))
        return ""
    if group and group not in re.findall(r"\(\?P?<(\w+)>", regex):
        pack.faults.append(Fault(line, f"{name}: Name the phase by a group: (?P<{group}>…).", path))
    pack.expressions.append(PackExpression(line, path, regex, None, f"{name}: The expression"))
    return regex


def check_expressions(pack: Pack, *, by: Principal) -> None:
    """Compile the expressions of a pack, all within one budget, and add their faults."""
    examples = [(expression.regex, expression.example) for expression in pack.expressions]
    try:
        faults = expression_faults(examples, by=by)
    except TooCostly as error:
        pack.faults.append(Fault(0, f"The expressions of the pack: {error}"))
        return
    for expression, fault in zip(pack.expressions, faults, strict=True):
        if fault:
            pack.faults.append(
                Fault(expression.line, f"{expression.subject} {fault}.", expression.path)
            )
    pack.faults.sort(key=lambda fault: fault.line)
