"""Requests taken in and given out as YAML."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_liaison
from apps.core.errors import InvalidFields
from apps.production.domain.checks.facts import basic_facts
from apps.production.domain.checks.report import check_shape
from apps.production.domain.content.model import MAX_STAGES, RequestContent
from apps.production.domain.content.serialization import read_plain, write_yaml
from apps.production.domain.content.stages import content_of
from apps.production.domain.requests.drafts import create_draft
from apps.production.domain.types.declaration import Workflow, general
from apps.production.domain.types.versions import newest_version, types_for, workflow_of
from apps.production.domain.yaml_text import Fault, Parsed, parse_yaml
from apps.production.models import Request, WorkflowVersion


class InvalidText(InvalidFields):
    """A text that cannot be imported: `faults` lists all that is wrong, by line."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = sorted(faults, key=lambda fault: fault.line)
        problems: dict[str, list[str]] = {}
        for fault in self.faults:
            problems.setdefault(fault.path or "yaml", []).append(str(fault))
        super().__init__(problems)


@dataclass(frozen=True)
class Import:
    """A text that can become a draft."""

    experiment: Experiment
    content: RequestContent


def export_request(request: Request) -> str:
    """Return a request as YAML."""
    return write_yaml(content_of(request), experiment=request.experiment.key)


def read_import(text: str, *, by: User, at: datetime) -> Import:
    """Read a request from YAML. Raises `InvalidText` with every fault."""
    parsed = parse_yaml(text)
    data = parsed.data if isinstance(parsed.data, dict) else {}
    faults = list(parsed.faults)
    if faults and parsed.data is None:
        raise InvalidText(faults)
    stages = data.get("stages")
    if isinstance(stages, list) and len(stages) > MAX_STAGES:
        what = f"At most {MAX_STAGES} stages; this has {len(stages):,}."
        faults.append(Fault(parsed.line(f"stages.{MAX_STAGES}"), what, "stages"))
        del stages[MAX_STAGES:]
    experiment = _experiment(data, parsed, by, faults)
    workflow = _workflow(data, parsed, experiment, faults)
    content, problems = read_plain(parsed.data, workflow or general())
    if workflow is None:  # what its stages may hold is not known
        problems = {path: told for path, told in problems.items() if "arguments" not in path}
        shape = {}
    else:
        shape = check_shape(content, basic_facts(at))
    told = {fault.path for fault in faults if fault.path}
    for path, messages in {**shape, **problems}.items():
        if path not in told:
            faults += [Fault(parsed.line(path), _words(path, message), path) for message in messages]
    if faults or experiment is None:
        raise InvalidText(faults)
    return Import(experiment, content)


@transaction.atomic
def import_request(*, text: str, by: User, at: datetime) -> Request:
    """Make a draft of a request in YAML. Raises `InvalidText` with every fault; nothing is made then."""
    found = read_import(text, by=by, at=at)
    return create_draft(experiment=found.experiment, content=found.content, by=by, at=at)


def _words(path: str, message: str) -> str:
    return f"{path}: {message}" if path else message


def _experiment(data: dict[str, Any], parsed: Parsed, by: User, faults: list[Fault]) -> Experiment | None:
    key = data.get("experiment")
    found = Experiment.objects.filter(key=key).first() if isinstance(key, str) and "\0" not in key else None
    if found is not None and is_liaison(by, found.pk):
        return found
    missing = "Say of which experiment, such as “experiment: NOVA”."
    what = f"You are no liaison of “{str(key)[:40]}”." if key else missing
    faults.append(Fault(parsed.line("experiment") if key else 0, what, "experiment"))
    return None


def _workflow(
    data: dict[str, Any], parsed: Parsed, experiment: Experiment | None, faults: list[Fault]
) -> Workflow | None:
    """Return the version that the text names, the newest unless it names one; tell why where it may not be had."""
    key, number = data.get("workflow", "general"), data.get("workflow_version")
    text = key if isinstance(key, str) and "\0" not in key else ""
    newest = newest_version(text)
    if newest is None and text == "general" and not number:
        return general()
    if newest is None:
        faults.append(
            Fault(parsed.line("workflow"), f"There is no workflow type “{str(key)[:40]}” any more.", "workflow")
        )
        return None
    if experiment is not None and not types_for(experiment).filter(pk=newest.type_id).exists():
        what = f"New requests of {experiment} cannot be of the type “{newest.title}”."
        faults.append(Fault(parsed.line("workflow"), what, "workflow"))
    if number in (None, 0):
        return workflow_of(newest)
    found = _version(text, number)
    if found is None:
        latest = f"the newest is {newest.number}; leave this line out to take it."
        what = f"“{text}” has no version {str(number)[:20]} any more; {latest}"
        faults.append(Fault(parsed.line("workflow_version"), what, "workflow_version"))
    return workflow_of(found or newest)


def _version(key: str, number: Any) -> WorkflowVersion | None:
    if not isinstance(number, int) or not 0 < number < 2**31:
        return None
    return WorkflowVersion.objects.select_related("type").filter(type__key=key, number=number).first()
