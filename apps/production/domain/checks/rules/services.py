"""Rules for the services that stages need."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, time
from itertools import chain

from django.utils.text import get_text_list

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
from apps.production.domain.content.stage_names import named_or_synonym


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
    last = content.deadline or (finish.late if finish else None)
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


@rule(Severity.WARNING)
def usual_services(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A stage lists the services that most earlier stages of its name needed."""
    # One problem for all stages, with one fix: services are mostly missing from all of them.
    names_by_missing: dict[tuple[str, ...], list[str]] = defaultdict(list)
    values = {}
    for path, stage in stages(content):
        missing = _missing_services(stage, facts)
        if missing:
            names_by_missing[missing].append(stage.name)
            values[f"{path}.services"] = (*stage.services, *missing)
    if not values:
        return

    parts = []
    for missing, names in names_by_missing.items():
        parts.append(
            f"named {get_text_list(names, 'and')} needed {get_text_list(list(missing), 'and')}"
        )
    slugs = set(chain.from_iterable(names_by_missing))
    label = f"Add {slugs.pop()}" if len(slugs) == 1 else "Add all"
    yield Problem(
        next(iter(values)),
        f"Most earlier stages {'; those '.join(parts)}.",
        Fix(label, values),
    )


def _missing_services(stage: StageContent, facts: Facts) -> tuple[str, ...]:
    """Return the services that most earlier stages of this name needed and the stage lacks."""
    _, before = named_or_synonym(facts.stages_before, stage.name)
    if before is None or before.requests < 2:
        return ()
    missing = []
    for slug, times in sorted(before.services.items()):
        if times * 2 > before.requests and slug not in stage.services:
            missing.append(slug)
    return tuple(missing)
