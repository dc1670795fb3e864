"""Export known errors as YAML, and import them with every fault and its line."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import yaml
from django.db import transaction

from apps.accounts.models import Experiment, Principal
from apps.core.domain.expressions.runs import TooCostly
from apps.core.errors import NotAllowed
from apps.diagnosis.domain.known_errors.changes import (
    FIELDS,
    expression_of,
    read_known_error,
    submit_change,
    values_of,
)
from apps.diagnosis.domain.known_errors.expressions import expression_faults
from apps.diagnosis.models import KnownError
from apps.diagnosis.permissions import may_propose_known_errors
from apps.production.domain.yaml_text import (
    Dumper,
    Fault,
    Parsed,
    parse_yaml,
    quote_numbers,
    write_yaml,
)

HEAD = "known_errors"
_LAST_PLAIN = "\uffff"


class _FastDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """libyaml's writer, if PyYAML was built with it, for text that it does not change."""


quote_numbers(_FastDumper)


@dataclass(frozen=True, slots=True)
class ImportedErrors:
    """The IDs that an import changes or would change, and its faults.

    With faults, nothing is stored.
    """

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def write_known_errors(known_errors: Iterable[KnownError]) -> str:
    """Return known errors as YAML for `import_known_errors`, without fields that have no value."""
    entries = []
    for known_error in known_errors:
        entry: dict[str, Any] = {"id": known_error.id}
        for name, value in values_of(known_error).items():
            if value not in ("", None):
                entry[name] = value
        entries.append(entry)
    if not entries:
        return f"{HEAD}: []\n"
    return f"{HEAD}:\n" + "".join(_write_entry(entry) for entry in entries)


def _write_entry(entry: dict[str, Any]) -> str:
    """Return one entry exactly as PyYAML writes it.

    libyaml takes a sixth of the time, but breaks quoted escapes at other places and escapes
    characters such as emoji. So it is used only for plain text.
    """
    texts = [value for value in entry.values() if isinstance(value, str)]
    is_plain = all(text.isprintable() and max(text) <= _LAST_PLAIN for text in texts)
    return write_yaml([entry], width=120, dumper=_FastDumper if is_plain else Dumper)


@transaction.atomic
def import_known_errors(
    *, text: str, by: Principal, at: datetime, reason: str, dry_run: bool
) -> ImportedErrors:
    """Add and change known errors from YAML: all of them or, with a fault, none.

    Known errors that the text does not name stay, and so do the values of fields that are left out.
    For users who may not edit the catalogue, the changes become proposals. Raises `NotAllowed`.
    """
    if not may_propose_known_errors(by):
        raise NotAllowed("Only the OPG and liaisons can propose known errors.")
    parsed = parse_yaml(text)
    done = ImportedErrors(faults=list(parsed.faults))
    if not reason.strip() and not dry_run:
        done.faults.append(Fault(0, "Enter a reason. The next shift will read it."))
    entries = None
    if isinstance(parsed.data, dict):
        entries = parsed.data.get(HEAD)
    if not isinstance(entries, list):
        if parsed.data is not None:
            done.faults.append(Fault(1, f"Start with “{HEAD}:” and a list of known errors."))
        return done
    check = _EntryCheck(parsed, done)
    expressions: dict[str, tuple[str, str]] = {}
    for number, entry in enumerate(entries):
        path = f"{HEAD}.{number}"
        if expression := check.check(entry, path):
            expressions[path] = expression
    _check_expressions(expressions, parsed, done, by)
    done.faults.sort(key=lambda fault: fault.line)
    if not dry_run and not done.faults:
        for known_error in [*done.added, *done.changed]:
            submit_change(
                known_error=known_error,
                values=check.values_by_id[known_error],
                by=by,
                at=at,
                reason=reason,
            )
    return done


class _EntryCheck:
    """Checks the entries of an import one after the other, and adds the results to `done`.

    `values_by_id` has the values of all entries that have been checked.
    """

    def __init__(self, parsed: Parsed, done: ImportedErrors) -> None:
        self.parsed = parsed
        self.done = done
        self.values_by_id: dict[str, dict[str, Any]] = {}
        stored = KnownError.objects.select_related("experiment")
        self._stored = {known_error.pk: known_error for known_error in stored}
        self._experiments = {
            experiment.key.upper(): experiment for experiment in Experiment.objects.all()
        }

    def check(self, entry: Any, path: str) -> tuple[str, str] | None:
        """Check the entry at this path; return its expression and example, if it has them."""
        known_error = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(known_error, str) or not known_error:
            self._add_fault(path, path, "A known error needs an id.")
            return None
        if known_error in self.values_by_id:
            self._add_fault(path, f"{path}.id", f"“{known_error}” appears twice.")
            return None

        values = {name: value for name, value in entry.items() if name != "id"}
        self.values_by_id[known_error] = values
        known_values = {}
        for name, value in values.items():
            if name in FIELDS:
                known_values[name] = value
            else:
                place = f"{path}.{name}"
                self._add_fault(place, place, f"Unknown field “{name}”.")

        current = self._stored.get(known_error)
        before = values_of(current) if current else {}
        imported, problems = read_known_error(
            known_error, before | known_values, experiments=self._experiments
        )
        for name, messages in problems.items():
            for message in messages:
                self._add_fault(path, f"{path}.{name}", f"{known_error}, {name}: {message}")
        if not problems:
            if values_of(imported) == before:
                self.done.unchanged.append(known_error)
                return None
            if current is None:
                self.done.added.append(known_error)
            else:
                self.done.changed.append(known_error)
        return expression_of(imported, problems)

    def _add_fault(self, path: str, place: str, text: str) -> None:
        """Add a fault of the entry at `path`, with the line of `place`."""
        self.done.faults.append(Fault(self.parsed.line(place), text, path))


def _check_expressions(
    expressions: dict[str, tuple[str, str]], parsed: Parsed, done: ImportedErrors, by: Principal
) -> None:
    """Compile the expressions of these entries within one budget, and add their faults."""
    try:
        faults = expression_faults(list(expressions.values()), by=by)
    except TooCostly as error:
        done.faults.append(Fault(0, str(error)))
        return
    for path, fault in zip(expressions, faults, strict=True):
        if fault:
            entry = parsed.data[HEAD][int(path.rpartition(".")[2])]
            done.faults.append(
                Fault(
                    parsed.line(f"{path}.regex"),
                    f"{entry['id']}, regex: The pattern {fault}.",
                    path,
                )
            )
