"""Rules for the services that stages need."""

from collections.abc import Iterator
from datetime import UTC, datetime, time

from apps.production.domain.checks.base import (
    Facts,
    Fix,
    Problem,
    Severity,
    rule,
    stage_rule,
    stages,
)
from apps.production.domain.content.model import RequestContent, StageContent


@stage_rule(Severity.WARNING)
def services_up(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The services that the stages need are up."""
    for slug in stage.services:
        service = facts.service_states.get(slug)
        if service and service.state in {"down", "degraded", "maintenance"}:
            yield Problem("services", f"{service.name} is {service.state}.")


@rule(Severity.WARNING)
def no_downtime(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No downtime of a required service is planned before the deadline."""
    finish = facts.estimate.finish
    last = content.deadline or (finish[2] if finish else None)
    for path, stage in stages(content):
        for slug in stage.services:
            service = facts.service_states.get(slug)
            for window in service.windows if service else ():
                if last is None or window.starts_at <= datetime.combine(last, time.max, UTC):
                    yield Problem(
                        f"{path}.services",
                        f"{service.name if service else slug}: “{window.title[:80]}” is "
                        "scheduled from "
                        f"{window.starts_at:%-d %b %H:%M} to {window.ends_at:%-d %b %H:%M} UTC.",
                    )


@stage_rule(Severity.WARNING)
def usual_services(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The stage lists the services that most earlier stages of this name needed."""
    before = facts.stages_before.get(stage.name.casefold())
    for slug, times in sorted(before.services.items()) if before else ():
        if (
            before
            and before.requests >= 2
            and times * 2 > before.requests
            and slug not in stage.services
        ):
            yield Problem(
                "services",
                f"{times} of {before.requests} earlier stages named {stage.name} needed {slug}.",
                Fix(f"Add {slug}", {"services": (*stage.services, slug)}),
            )
