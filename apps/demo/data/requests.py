"""The demo's requests and their history from `requests.yaml`, created through domain functions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from pydantic import TypeAdapter

from apps.accounts.models import Experiment, User
from apps.clusters.models import Cluster
from apps.demo.data.files import end_with_faults
from apps.demo.data.finished import complete_stage, submit_stage
from apps.demo.data.quality import report_all_output, report_faulty_output
from apps.demo.simulation.world import CAMPAIGNS, WorldCampaign
from apps.production.domain.content.serialization import read_plain
from apps.production.domain.content.stages import content_of
from apps.production.domain.discussion import write_comment
from apps.production.domain.lifecycle.moves import MOVE_FUNCTIONS, check_request, set_priority
from apps.production.domain.requests.drafts import create_draft, save_draft
from apps.production.domain.types.declaration import Workflow, general_workflow
from apps.production.domain.types.versions import newest_version, workflow_of
from apps.production.enums import Verb
from apps.production.models import Request
from apps.submission.domain.arrays.assignment import assign_request


@dataclass(frozen=True)
class UserAction:
    """One action of a user: a verb, an edit of stages by name, a new priority, or a comment.

    With `assign`, the portal submits the request's jobs from then on. `submits` names a stage whose
    jobs are submitted, `completes` a stage whose jobs have all ended; with `faulty_jobs` some
    failed, and one completed twice.
    """

    hours_ago: float
    by: str
    verb: Verb | None = None
    reason: str = ""
    edit: Mapping[str, Mapping[str, Any]] | None = None
    priority: int | None = None
    priority_class: str | None = None
    faulty_output: bool = False
    comment: str = ""
    assign: bool = False
    submits: str = ""
    completes: str = ""
    faulty_jobs: bool = False


@dataclass(frozen=True)
class Story:
    """A request and its history, starting with the draft.

    `campaigns` is the `request` of the campaigns that run for it. The value `deadline` of an
    argument is the deadline.
    """

    experiment: str
    by: str
    hours_ago: float
    due_in_days: int
    content: dict[str, Any]
    steps: tuple[UserAction, ...] = ()
    campaigns: str = ""
    workflow: str = "general"

    @property
    def needs_files(self) -> bool:
        """Whether its jobs read files that a catalogue lists."""
        return self.workflow != "general"

    @property
    def title(self) -> str:
        return str(self.content["title"])


_DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
_STORIES = TypeAdapter(tuple[Story, ...]).validate_python(_DATA["stories"])


@transaction.atomic
def load_requests(
    *, experiments: dict[str, Experiment], users: dict[str, User], cluster: Cluster, at: datetime
) -> tuple[WorldCampaign, ...]:
    """Create the requests, once, with all their actions in order of time.

    Those that read listed files need a catalogue, and are left out without one. Return the
    campaigns that run for them.
    """
    requests: dict[str, Request] = {}
    stories = [story for story in _STORIES if settings.DATASET_CATALOGUE or not story.needs_files]
    for story in stories:
        stored = Request.objects.filter(title=story.title, created_by=users[story.by]).first()
        if stored:
            requests[story.title] = stored

    if not requests:
        actions: list[tuple[float, Story, UserAction | None]] = [
            (story.hours_ago, story, None) for story in stories
        ]
        for story in stories:
            actions += [(step.hours_ago, story, step) for step in story.steps]
        for hours_ago, story, step in sorted(actions, key=lambda action: -action[0]):
            moment = at - timedelta(hours=hours_ago)
            if step is None:
                requests[story.title] = _draft(
                    story, experiments[story.experiment], users[story.by], moment, at
                )
            else:
                _perform(step, requests[story.title], users, cluster, moment)

    keys = {
        story.campaigns: requests[story.title].key
        for story in stories
        if story.campaigns and story.title in requests
    }
    campaigns = []
    for campaign in CAMPAIGNS:
        if not campaign.request or campaign.request in keys:
            campaigns.append(replace(campaign, request=keys.get(campaign.request, "")))
    return tuple(campaigns)


def _draft(
    story: Story, experiment: Experiment, by: User, moment: datetime, at: datetime
) -> Request:
    deadline = timezone.localdate(at) + timedelta(days=story.due_in_days)
    stages = []
    for stage in story.content["stages"]:
        stages.append(
            {"output_dataset": f"prod_{stage['release']}_{stage['name']}_2026"}
            | _DATA["stage"]
            | stage
        )
    arguments = dict(story.content.get("arguments", {}))
    for name, value in arguments.items():
        if value == "deadline":
            arguments[name] = deadline.isoformat()
    data = story.content | {
        "deadline": deadline.isoformat(),
        "stages": stages,
        "arguments": arguments,
    }
    content, problems = read_plain(data, _workflow(story.workflow))
    if problems:
        raise ValueError(f"requests.yaml, {story.title}: {problems}")
    return create_draft(experiment=experiment, content=content, by=by, at=moment)


def _workflow(key: str) -> Workflow:
    """Return the newest version of a built-in workflow type."""
    version = newest_version(key)
    if version is None:
        raise ValueError(f"requests.yaml: there is no workflow type {key}")
    return general_workflow() if key == "general" else workflow_of(version)


def _perform(
    step: UserAction, request: Request, users: dict[str, User], cluster: Cluster, at: datetime
) -> None:
    by = users[step.by]
    request.refresh_from_db()
    if step.assign:
        assign_request(
            request=request, cluster=cluster, by=by, at=at, verb=step.verb, reason=step.reason
        )
    elif step.submits:
        submit_stage(request=request, name=step.submits, cluster=cluster, at=at)
    elif step.completes:
        if step.faulty_jobs:
            end_with_faults(request=request, name=step.completes, by=users["nova-second"], at=at)
        else:
            complete_stage(request=request, name=step.completes, at=at)
    elif step.verb:
        _move(step, step.verb, request, users, at)
    elif step.priority is not None:
        number = step.priority
        name = step.priority_class
        set_priority(
            request=request, priority=number, priority_class=name, by=by, at=at, reason=step.reason
        )
    elif step.comment:
        write_comment(request=request, text=step.comment, by=by, at=at)
    elif step.edit:
        old = content_of(request)
        stages = tuple(replace(stage, **step.edit.get(stage.name, {})) for stage in old.stages)
        save_draft(
            request=request,
            content=replace(old, stages=stages),
            version=request.version,
            by=by,
            at=at,
        )


def _move(
    step: UserAction, verb: Verb, request: Request, users: dict[str, User], at: datetime
) -> None:
    by = users[step.by]
    if verb in {Verb.DONE, Verb.DONE_PARTIAL}:
        report_all_output(request=request, by=by, at=at, reason=step.reason)
    MOVE_FUNCTIONS[verb](request=request, by=by, at=at, reason=step.reason)
    if verb is Verb.SUBMIT:
        check_request(request=request, at=at + timedelta(seconds=2))
    if step.faulty_output:
        report_faulty_output(request=request, users=users, at=at)
