"""The page of a request, from its parts."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import prefetch_related_objects
from django.utils.functional import SimpleLazyObject

from apps.accounts.models import User
from apps.portal.pages.request.actions import Actions, actions_on
from apps.portal.pages.request.activity import Activity, activity_of
from apps.portal.pages.request.content import RequestedContent, requested_content
from apps.portal.pages.request.earlier_end import earlier_end
from apps.portal.pages.request.plan import Plan, plan_of
from apps.portal.pages.request.production import Production, production_of, quality_of_output
from apps.portal.pages.request.schedule import schedule_of
from apps.portal.pages.request.summary import Summary, summary_of
from apps.production.domain.approvals.requirements import approval_of, slots_of
from apps.production.domain.content.stages import content_of
from apps.production.domain.priority.prospects import read_queue
from apps.production.domain.priority.shown_forecasts import update_forecasts
from apps.production.enums import CLOSED, SIGNED
from apps.production.models import Request


@dataclass(frozen=True)
class RequestPage:
    """The parts of the page of a request."""

    object: Request
    summary: Summary
    requested: RequestedContent
    plan: Plan
    production: Production
    activity: Activity
    actions: Actions

    def context(self) -> dict[str, Any]:
        """Return the fields of all parts by their names, as the template uses them."""
        return {
            "object": self.object,
            **vars(self.summary),
            **vars(self.requested),
            **vars(self.plan),
            **vars(self.production),
            **vars(self.activity),
            **vars(self.actions),
        }


def request_page(
    *, request: Request, user: User, at: datetime, open_form: str = "", checks: bool = False
) -> RequestPage:
    """Return what the page of a request shows to a user.

    `open_form` is the verb of the move whose form is open, `PRIORITY` or `RESCHEDULE`. With
    `checks`, an open request is checked now; otherwise only while it waits for approval.
    """
    prefetch_related_objects([request], "attention")
    # The queue may have changed since a worker computed the forecast.
    update_forecasts([request], at=at)
    content = content_of(request)
    # Read at most once, and only in states that need it.
    slots: Any = SimpleLazyObject(lambda: slots_of(request, user, at))

    activity = activity_of(request, user)
    events = activity.events
    requested = requested_content(request, content, user, at)
    quality = quality_of_output(request)
    actions = actions_on(
        request,
        content,
        user,
        slots=slots,
        events=events,
        quality=quality,
        open_form=open_form,
        at=at,
    )
    approval = approval_of(request, user, at, slots=slots)
    # Before approval, the estimate, the checks and the earlier ends all depend on the queue.
    queue = None
    if request.state not in SIGNED | CLOSED:
        queue = read_queue(at=at)
    plan = plan_of(
        request,
        content,
        user,
        approval=approval,
        events=events,
        checks=checks,
        queue=queue,
        at=at,
    )
    production = production_of(
        request, totals=requested.totals, estimate=plan.estimate, quality=quality, at=at
    )
    changes = earlier_end(
        request,
        approval,
        plan.estimate,
        production.progress,
        holds=requested.holds,
        needs=requested.needs,
        class_url=actions.class_url(request),
        start_url=actions.start_url(request),
        queue=queue,
        at=at,
    )
    summary = summary_of(
        request,
        user,
        plan=plan,
        progress=production.progress,
        schedule=schedule_of(request, production.progress, at),
        changes=changes,
        events=events,
        open_form=open_form,
    )
    return RequestPage(request, summary, requested, plan, production, activity, actions)
