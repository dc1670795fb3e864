"""Lets the demo's requests become what their stories say, through the services of production."""

from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import Experiment, User
from apps.demo.data.quality import judge, look
from apps.demo.data.stories import LOW_ENERGY, STORIES, Step, Story
from apps.demo.simulation.world import CAMPAIGNS, Campaign
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.moves import SERVICES, check_request, set_priority
from apps.production.domain.requests.drafts import create_draft, save_draft
from apps.production.enums import Verb
from apps.production.models import Request


@transaction.atomic
def load_requests(*, experiments: dict[str, Experiment], users: dict[str, User], at: datetime) -> tuple[Campaign, ...]:
    """Make the requests, once, all that was done to them in the order of time; return what runs for them."""
    found = {
        story.content.title: request
        for story in STORIES
        if (request := Request.objects.filter(title=story.content.title, created_by=users[story.by]).first())
    }
    if not found:
        deeds: list[tuple[float, Story, Step | None]] = [(story.hours_ago, story, None) for story in STORIES]
        deeds += [(step.hours_ago, story, step) for story in STORIES for step in story.steps]
        for hours_ago, story, step in sorted(deeds, key=lambda deed: -deed[0]):
            moment = at - timedelta(hours=hours_ago)
            if step is None:
                found[story.content.title] = _draft(story, experiments, users, moment, at)
            else:
                _do(step, found[story.content.title], users[step.by], moment)
                if story is LOW_ENERGY and step.verb is Verb.REVIEW:
                    look(request=found[story.content.title], users=users, at=moment)
    return _campaigns(found)


def _draft(
    story: Story, experiments: dict[str, Experiment], users: dict[str, User], moment: datetime, at: datetime
) -> Request:
    content = story.written(timezone.localdate(at))
    return create_draft(experiment=experiments[story.experiment], content=content, by=users[story.by], at=moment)


def _do(step: Step, request: Request, by: User, at: datetime) -> None:
    request.refresh_from_db()
    if step.verb:
        if step.verb is Verb.DONE:
            judge(request=request, by=by, at=at, reason=step.reason)
        SERVICES[step.verb](request=request, by=by, at=at, reason=step.reason)
        if step.verb is Verb.SUBMIT:
            check_request(request=request, at=at + timedelta(seconds=2))
    elif step.priority is not None:
        number, name = step.priority, step.priority_class
        set_priority(request=request, priority=number, priority_class=name, by=by, at=at, reason=step.reason)
    elif step.edit:
        old = content_of(request)
        stages = tuple(replace(stage, **step.edit.get(stage.name, {})) for stage in old.stages)
        save_draft(request=request, content=replace(old, stages=stages), version=request.version, by=by, at=at)


def _campaigns(requests: dict[str, Request]) -> tuple[Campaign, ...]:
    """Return the stages of requests that run, under their numbers, and what users run for themselves."""
    own = tuple(campaign for campaign in CAMPAIGNS if not campaign.request)
    return own + tuple(
        replace(campaign, request=requests[story.content.title].key)
        for story in STORIES
        if story.content.title in requests
        for campaign in story.campaigns
    )
