"""Lets the demo's data quality be judged as its stories say: counts, checks, and the waivers that close a request."""

from datetime import datetime, timedelta

from apps.accounts.models import User
from apps.production.counts import count_reports, report_output
from apps.production.enums import PORTAL
from apps.production.models import Request
from apps.quality import services
from apps.quality.standing import standing_of


def judge(*, request: Request, by: User, at: datetime, reason: str) -> None:
    """Report what was asked for as produced, run the checks, and waive what they do not know."""
    for stage in request.stages.select_related("request__experiment"):
        counts = {
            "files_out": stage.jobs,
            "events_out": stage.events,
            "files_in": stage.jobs,
            "events_in": stage.events,
        }
        report_output(stage=stage, key="all jobs", counts=counts, by=by, at=at - timedelta(minutes=30))
    count_reports(at=at - timedelta(minutes=30))
    services.ask_for_run(request=request, by=PORTAL, at=at - timedelta(minutes=20))
    services.run_checks(request=request, at=at - timedelta(minutes=20))
    for one in standing_of(request).open:
        services.waive_result(request=request, result=one.result.pk, by=by, at=at, reason=reason)
