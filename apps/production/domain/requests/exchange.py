"""Import and export of requests as YAML."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_liaison, scope_of
from apps.core.errors import InvalidFields, NotAllowed
from apps.production.domain.checks.facts import basic_facts
from apps.production.domain.checks.report import check_shape
from apps.production.domain.content.model import MAX_STAGES, RequestContent
from apps.production.domain.content.serialization import read_plain, write_request_yaml
from apps.production.domain.content.stages import content_of
from apps.production.domain.requests.drafts import create_draft
from apps.production.domain.types.declaration import Workflow, general_workflow
from apps.production.domain.types.versions import newest_versions, types_for, workflow_of
from apps.production.domain.yaml_text import Fault, Parsed, parse_yaml
from apps.production.models import Request


class InvalidText(InvalidFields):
    """A text that cannot be imported. `faults` has every fault with its line."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = sorted(faults, key=lambda fault: fault.line)
        problems: dict[str, list[str]] = {}
        for fault in self.faults:
            problems.setdefault(fault.path or "yaml", []).append(str(fault))
        super().__init__(problems)


def export_request(request: Request) -> str:
    return write_request_yaml(content_of(request), experiment=request.experiment.key)


@dataclass(frozen=True)
class Import:
    """A text that can become a draft."""

    experiment: Experiment
    content: RequestContent


def read_import(text: str, *, by: User, at: datetime) -> Import:
    """Read a request from YAML.

    Raises `NotAllowed` before parsing, and `InvalidText` with every fault.
    """
    if not scope_of(by).has_anywhere(Role.LIAISON):
        raise NotAllowed("Only liaisons can create requests.")
    parsed = parse_yaml(text)
    data = parsed.data if isinstance(parsed.data, dict) else {}
    faults = list(parsed.faults)
    if faults and parsed.data is None:
        raise InvalidText(faults)
    stages = data.get("stages")
    if isinstance(stages, list) and len(stages) > MAX_STAGES:
        what = f"A request has at most {MAX_STAGES} stages. This one has {len(stages):,}."
        faults.append(Fault(parsed.line(f"stages.{MAX_STAGES}"), what, "stages"))
        del stages[MAX_STAGES:]
    experiment = _experiment(data, parsed, by, faults)
    workflow = _workflow(data, parsed, experiment, faults)
    content, problems = read_plain(parsed.data, workflow or general_workflow())
    # Without a workflow type, the arguments of the stages are unknown.
    if workflow is None:
        problems = {
            path: messages for path, messages in problems.items() if "arguments" not in path
        }
    else:
        problems = {**check_shape(content, basic_facts(at)), **problems}

    reported = {fault.path for fault in faults if fault.path}
    for path, messages in problems.items():
        if path not in reported:
            prefix = f"{path}: " if path else ""
            faults += [Fault(parsed.line(path), f"{prefix}{message}", path) for message in messages]
    if faults or experiment is None:
        raise InvalidText(faults)
    return Import(experiment, content)


@transaction.atomic
def import_request(*, text: str, by: User, at: datetime) -> Request:
    """Create a draft from YAML. Raises the errors of `read_import`; then nothing is created."""
    imported = read_import(text, by=by, at=at)
    return create_draft(experiment=imported.experiment, content=imported.content, by=by, at=at)


def _experiment(
    data: dict[str, Any], parsed: Parsed, by: User, faults: list[Fault]
) -> Experiment | None:
    key = data.get("experiment")
    experiment = None
    if isinstance(key, str) and "\0" not in key:
        experiment = Experiment.objects.filter(key=key).first()
    if experiment is not None and is_liaison(by, experiment.pk):
        return experiment
    missing = "Enter the experiment, such as “experiment: NOVA”."
    if key:
        what = f"You are not a liaison of “{str(key)[:40]}”."
    else:
        what = missing
    faults.append(Fault(parsed.line("experiment") if key else 0, what, "experiment"))
    return None


def _workflow(
    data: dict[str, Any], parsed: Parsed, experiment: Experiment | None, faults: list[Fault]
) -> Workflow | None:
    """Return the version that the text names, or the newest version by default.

    None if the type does not exist.
    """
    key = data.get("workflow", "general")
    number = data.get("workflow_version")
    text = key if isinstance(key, str) and "\0" not in key else ""
    newest = newest_versions(types_for(experiment).filter(key=text)).first()
    if newest is None and text == "general" and not number:
        return general_workflow()
    # The message is the same for types of other experiments, so that their names are not revealed.
    if newest is None:
        what = f"The workflow type “{str(key)[:40]}” does not exist, or is not available."
        faults.append(Fault(parsed.line("workflow"), what, "workflow"))
        return None
    if number in (None, 0):
        return workflow_of(newest)
    is_number = isinstance(number, int) and 0 < number < 2**31
    version = None
    if is_number:
        version = newest.type.versions.filter(number=number).first()
    if version is None:
        what = (
            f"“{text}” has no version {str(number)[:20]}. Remove this line to use the newest one, "
            f"{newest.number}."
        )
        faults.append(Fault(parsed.line("workflow_version"), what, "workflow_version"))
    return workflow_of(version or newest)
