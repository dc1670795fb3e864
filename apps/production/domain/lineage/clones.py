"""Clones of requests, and converting content to the newest version of its workflow type."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any

from django.db import transaction

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_liaison
from apps.core.domain.events import publish
from apps.core.errors import InvalidTransition, NotAllowed
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.stages import content_of
from apps.production.domain.requests.drafts import create_draft, save_draft
from apps.production.domain.types.arguments import Value
from apps.production.domain.types.declaration import StageType, Workflow, general_workflow
from apps.production.domain.types.fields import CORE
from apps.production.domain.types.versions import newest_version, types_for, workflow_of
from apps.production.enums import UNCLAIMED
from apps.production.models import Request, Stage

#: A version of a dataset, such as `_v2`. One of several numbers, as `v09_70`, is of a release.
_VERSION = re.compile(r"(?<![A-Za-z0-9])([vV])(\d{1,6})(?![0-9]|\.[0-9]{1,3}(?![0-9]))")
#: How many versions after the original's are tried for a free name.
MOST_VERSIONS = 50


@dataclass(frozen=True)
class DroppedValue:
    """A value that a workflow type has no argument for, with the request or stage it came from."""

    place: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: “{self.name}” was dropped. Its value was {self.text}."


@dataclass(frozen=True)
class Refit:
    """Content converted to a version of a workflow type.

    `changed` are notes on the changes; `left_out` are the values that were dropped.
    """

    content: RequestContent
    changed: list[str]
    left_out: list[DroppedValue]

    @property
    def notes(self) -> list[str]:
        return [*self.changed, *map(str, self.left_out)]


def next_name(name: str, releases: Mapping[str, str] | None = None) -> str:
    """Return the name of the next version of an output.

    `a_v3.x` becomes `a_v4.x`, `a` becomes `a_v2`. `releases` maps the releases of the original to
    those used now. A release in the name is not a version of the dataset, and neither is a version
    of several numbers; if the release changed, only the release in the name changes.
    """
    now = {was.replace("_", "."): new or was for was, new in (releases or {}).items() if was}
    plain = name.replace("_", ".")
    within = _find_releases(now, plain)
    renamed = name
    for start, end in reversed(within):
        old = plain[start:end]
        new = now[plain[start:end]]
        new = new.replace("_", ".") if "." in name[start:end] else new
        if new.replace("_", ".") != old:
            renamed = renamed[:start] + new + renamed[end:]
    if renamed != name:
        return renamed

    last = None
    for match in _VERSION.finditer(plain):
        if not any(start <= match.start() < end for start, end in within):
            last = match
    if last is None:
        return f"{name}_v2" if name else ""
    number = str(int(last[2]) + 1).zfill(len(last[2]))
    return f"{name[: last.start(2)]}{number}{name[last.end(2) :]}"


def _find_releases(releases: Collection[str], text: str) -> list[tuple[int, int]]:
    """Return start and end of each release in a text.

    At the same start, the longest release counts. A release must stand between characters that are
    neither letters nor digits.
    """
    places = []
    offset = 0
    while offset < len(text):
        here = []
        for name in releases:
            if text.startswith(name, offset) and not text[offset + len(name) :][:1].isalnum():
                here.append(name)
        end = offset + max(map(len, here), default=0)
        if end > offset and not text[offset - 1 : offset].isalnum():
            places.append((offset, end))
            offset = end
        else:
            offset += 1
    return places


def _next_names(content: RequestContent, original: Request) -> dict[str, str]:
    """Return a new name for each output that the original also has.

    It is the first one that no request of the experiment writes yet, in one query.
    """
    original_stages = content_of(original).stages
    names = {stage.output_dataset for stage in original_stages} - {""}
    releases = {}
    for was, now in zip(original_stages, content.stages, strict=False):
        releases[was.release] = now.release

    following: dict[str, list[str]] = {}
    for stage in content.stages:
        if stage.output_dataset in names:
            following[stage.output_dataset] = _following_names(stage.output_dataset, releases)
    claimed = Stage.objects.filter(
        request__experiment=original.experiment_id,
        output_dataset__in=list(chain.from_iterable(following.values())),
    ).exclude(request__state__in=UNCLAIMED)
    taken = set(claimed.values_list("output_dataset", flat=True)) if following else set()

    new = {}
    for name, candidates in following.items():
        free = [candidate for candidate in candidates if candidate not in taken]
        new[name] = free[0] if free else candidates[-1]
    return new


def _following_names(name: str, releases: Mapping[str, str]) -> list[str]:
    """Return the names of the next versions of an output, the next one first."""
    names = [next_name(name, releases)]
    now = {release: release for release in releases.values()}
    while len(names) < MOST_VERSIONS:
        names.append(next_name(names[-1], now))
    return names


def with_next_names(content: RequestContent, original: Request) -> RequestContent:
    """Return content with new names for outputs that `original` also has.

    Inputs that read these outputs change too.
    """
    new = _next_names(content, original)
    renamed = []
    for stage in content.stages:
        renamed.append(
            replace(
                stage,
                output_dataset=new.get(stage.output_dataset, stage.output_dataset),
                input_dataset=new.get(stage.input_dataset, stage.input_dataset),
            )
        )
    stages = tuple(renamed)
    return replace(content, stages=stages)


def taken_names(request: Request) -> list[tuple[str, str]]:
    """Return the outputs that the original of a clone also writes, each with its new name."""
    original = request.cloned_from
    if original is None:
        return []
    return list(_next_names(content_of(request), original).items())


@transaction.atomic
def clone_request(
    *, request: Request, by: User, at: datetime, next_names: bool = False
) -> tuple[Request, list[str]]:
    """Create a draft with the content of a request. Return it with notes on dropped values.

    The deadline is not copied: it belonged to other work. With `next_names`, outputs get new
    names. Raises `NotAllowed`, `InvalidFields`.
    """
    if not is_liaison(by, request.experiment_id):
        raise NotAllowed(f"Only liaisons of {request.experiment} can edit its requests.")
    refitted = refit(content_of(request), experiment=request.experiment)
    notes = refitted.notes
    content = refitted.content
    if content.deadline:
        content = replace(content, deadline=None)
        notes.append("The deadline was not copied.")
    if next_names:
        content = with_next_names(content, request)
    made = create_draft(experiment=request.experiment, content=content, by=by, at=at)
    made.cloned_from = request
    made.save(update_fields=["cloned_from"])
    publish(kind="request.cloned", target=request, by=by, at=at, data={"clone": made.key})
    return made, notes


@transaction.atomic
def take_next_names(
    *, request: Request, by: User, at: datetime, version: int | None = None
) -> Request:
    """Rename the outputs of a clone that its original also writes.

    Raises the errors of `save_draft`.
    """
    if not is_liaison(by, request.experiment_id):
        raise NotAllowed(f"Only liaisons of {request.experiment} can edit its requests.")
    if request.cloned_from is None:
        raise InvalidTransition(f"{request} is not a clone.")
    content = with_next_names(content_of(request), request.cloned_from)
    seen = request.version if version is None else version
    return save_draft(request=request, content=content, version=seen, by=by, at=at)


def refit(content: RequestContent, *, experiment: Experiment, version: int | None = None) -> Refit:
    """Convert content to the newest version of its type, or of the general type.

    The general type is used if the type of the content is disabled.
    """
    old = content.workflow
    before = content.workflow.number if version is None else version
    newest = newest_version(old.key)
    usable = newest is not None and types_for(experiment).filter(pk=newest.type_id).exists()
    if newest is not None and usable:
        new = workflow_of(newest)
    else:
        new = general_workflow()
    notes = []
    if not usable:
        notes.append(
            f"The type “{old.title or old.key}” is no longer available. This request has the "
            f"type {new.title}."
        )
    elif new.number != before:
        notes.append(f"Converted from version {before} to version {new.number} of {new.title}.")
    fitted = fit(content, new)
    return Refit(fitted.content, notes + fitted.changed, fitted.left_out)


def fit(content: RequestContent, new: Workflow) -> Refit:
    """Convert content to a workflow type, and list the values that it has no argument for."""
    changed: list[str] = []
    lost: list[DroppedValue] = []
    old = content.workflow
    arguments = _keep_declared(content.arguments, old, new, "The request", lost)
    stages = []
    for number, stage in enumerate(content.stages, start=1):
        place = f"Stage {number}{f' {stage.name}' if stage.name else ''}"
        kind = new.stage(stage.kind)
        if not new.knows(stage.kind):
            changed.append(
                f"{place}: {new.title} has no stages of the kind “{stage.kind}”. This stage is now "
                f"{kind.title}."
            )
        kept = _keep_declared(stage.arguments, old.stage(stage.kind), kind, place, lost)
        stages.append(replace(stage, kind=kind.key, arguments=kept))
    return Refit(
        replace(content, workflow=new, arguments=arguments, stages=tuple(stages)), changed, lost
    )


def _keep_declared(
    arguments: Any,
    old: Workflow | StageType,
    declared: Workflow | StageType,
    place: str,
    lost: list[DroppedValue],
) -> dict[str, Value]:
    """Return the arguments that the new type declares.

    Other arguments are appended to `lost` if they differ from their old default.
    """
    kept: dict[str, Value] = {}
    for name, value in arguments.items():
        argument = declared.argument(name)
        old_argument = old.argument(name)
        if argument is not None and name not in CORE and not argument.problem(value):
            kept[name] = value
        elif old_argument is None or old_argument.default != value:
            text = ", ".join(value) if isinstance(value, list) else str(value)
            lost.append(DroppedValue(place, name, text[:200]))
    return kept
