"""Rules that compare releases and configurations with past jobs and requests."""

from collections.abc import Iterator
from difflib import get_close_matches

from apps.production.domain.checks.base import (
    Facts,
    Fix,
    Problem,
    Severity,
    past_rule,
    rule,
    stage_rule,
    stages,
)
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.estimates.figures import StageEstimate


@stage_rule(Severity.WARNING)
def known_release(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """The experiment has used the release before."""
    if stage.release and facts.releases and stage.release not in facts.releases:
        near = get_close_matches(stage.release, sorted(facts.releases), n=1, cutoff=0.8)
        question = f" Did you mean {near[0]}?" if near else ""
        fix = Fix(f"Use {near[0]}", {"release": near[0]}) if near else None
        yield Problem(
            "release", f"No request of this experiment has used this release.{question}", fix
        )


@past_rule(Severity.WARNING)
def configuration_tested(stage: StageContent, past: StageEstimate) -> Iterator[Problem]:
    """If the stage has past jobs, some completed with this release and configuration."""
    if past.same_jobs == 0 and stage.release and stage.configuration:
        tried = f"{stage.release} and {stage.configuration}"
        yield Problem(
            "configuration",
            f"No past job completed with {tried}. Run a test.",
        )


@rule(Severity.WARNING)
def test_up_to_date(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Jobs of the stage completed after its release and configuration last changed."""
    for position, (path, stage) in enumerate(stages(content)):
        tested = facts.completed_at.get(stage.name.casefold())
        changed = facts.changed_at.get(position)
        if tested and changed and tested < changed:
            yield Problem(
                f"{path}.configuration",
                f"This changed on {changed:%-d %b %Y}, but the last job of this stage completed on "
                f"{tested:%-d %b %Y}. Run a new test.",
            )
