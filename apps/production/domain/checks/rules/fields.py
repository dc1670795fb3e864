"""Rules for the title, purpose, deadline and priority of a request, and for names in it."""

import re
from collections.abc import Iterator
from datetime import timedelta

from apps.production.domain.checks.base import Facts, Fix, Problem, Severity, rule, stage_rule
from apps.production.domain.checks.rules.declared import declared_arguments
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.types.fields import REQUEST
from apps.production.enums import ABOVE_NORMAL

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_SPACES = re.compile(r"\s+")
_PLAIN = re.compile(r"[A-Za-z0-9/$][\w.:+@=,%~/${}-]*", re.ASCII)
#: Shorter texts do not help an approver decide.
SHORT_PURPOSE = 20
SHORT_TITLE = 6
FAR = timedelta(days=2 * 365)


@rule(Severity.ERROR)
def required(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Every required field is filled in."""
    for name, argument in REQUEST.items():
        if argument.required and not getattr(content, name):
            yield Problem(name, argument.missing)
    if not content.stages:
        yield Problem("stages", "Add at least one stage.")
    for path, argument, value in declared_arguments(content):
        if argument.required and value in ("", None, [], ()):
            yield Problem(path, argument.missing or f"{argument.title} is required.")


@rule(Severity.ERROR)
def deadline_in_future(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The deadline is in the future."""
    if content.deadline and content.deadline <= facts.today:
        yield Problem(
            "deadline",
            f"The deadline is not in the future. Choose a date after {facts.today:%-d %b %Y}.",
        )


@rule(Severity.ERROR)
def priority_reason(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A priority above normal has a reason."""
    if content.requested_priority in ABOVE_NORMAL and not content.priority_reason.strip():
        yield Problem(
            "priority_reason", f"Give a reason for {content.requested_priority} priority."
        )


@rule(Severity.ERROR)
def stage_names(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Stage names are unique and valid in a job's environment."""
    first: dict[str, int] = {}
    for position, stage in enumerate(content.stages):
        path = f"stages.{position}.name"
        if stage.name and not _NAME.fullmatch(stage.name):
            name = _NOT_IN_NAMES.sub("_", stage.name.strip()).lstrip("._-")
            yield Problem(
                path,
                (
                    "Use only letters, digits, “.”, “_” and “-”: jobs carry this name in their "
                    "environment."
                ),
                Fix(f"Use {name}", {path: name}) if name else None,
            )
        if stage.name and stage.name in first:
            yield Problem(
                path, f"Stage {first[stage.name] + 1} already has this name. Choose another one."
            )
        first.setdefault(stage.name, position)


@stage_rule(Severity.ERROR)
def shell_safe_names(stage: StageContent, facts: Facts) -> Iterator[Problem]:
    """Releases, configurations and datasets are single words without special characters."""
    for name in ("release", "configuration", "input_dataset", "output_dataset"):
        value = getattr(stage, name)
        if value and not _PLAIN.fullmatch(value):
            plain = _SPACES.sub("_", value.strip())
            fixes = {name: plain}
            yield Problem(
                name,
                (
                    "Remove spaces, quotes and other special characters: this becomes one word of "
                    "a command."
                ),
                Fix(f"Use {plain}", fixes) if _PLAIN.fullmatch(plain) else None,
            )


@rule(Severity.WARNING)
def deadline_within_two_years(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The deadline is within two years."""
    if content.deadline and content.deadline > facts.today + FAR:
        yield Problem(
            "deadline", f"{content.deadline:%-d %b %Y} is more than two years away. Check the year."
        )


@rule(Severity.WARNING)
def deadline_reachable(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """At the pace of past jobs, the request finishes by its deadline."""
    finish = facts.estimate.finish
    if not finish or not content.deadline or content.deadline >= finish.late:
        return
    early, likely, late = (f"{day:%-d %b %Y}" for day in finish)
    when = f"between {early} and {late}, most likely on {likely}"
    if early == late:
        when = f"on {likely}"
    elif likely in (early, late):
        when = f"between {early} and {late}"
    sure = content.deadline < finish.early
    begins = facts.estimate.begins
    past_jobs = facts.estimate.past_jobs
    assumption = facts.estimate.assumption
    if begins:
        start = f", starting about {begins.likely:%-d %b %Y}"
    elif facts.estimate.ends:
        start = ""
    else:
        start = ", starting today"
    start += f", {assumption}" if assumption else ""
    if past_jobs:
        pace = f"At the pace of {past_jobs:,} past jobs"
    else:
        pace = "By the time limits of its jobs"
    yield Problem(
        "deadline",
        f"{pace} it would finish {when}{start}. It {'will' if sure else 'may'} miss the deadline.",
        Fix(f"Use {finish[2]:%-d %b %Y}", {"deadline": finish[2]}),
    )


@rule(Severity.WARNING)
def purpose_informative(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The purpose is detailed enough for a decision, and does not repeat the title."""
    purpose = content.purpose.strip()
    if purpose and (
        len(purpose) < SHORT_PURPOSE or purpose.casefold() == content.title.strip().casefold()
    ):
        yield Problem(
            "purpose",
            "Add detail: which analysis, who needs the result, and what it replaces or extends.",
        )


@rule(Severity.WARNING)
def title_informative(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The title is long enough to be recognised."""
    if content.title.strip() and len(content.title.strip()) < SHORT_TITLE:
        yield Problem("title", "Use a longer title, so that others can recognise the request.")


@rule(Severity.WARNING)
def title_unique(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """No other request of the experiment has the same title."""
    title = content.title.strip().casefold()
    for other in facts.others:
        if title and other.title.strip().casefold() == title:
            yield Problem("title", f"{other.key} has the same title. Is this a duplicate?")


@rule(Severity.WARNING)
def reason_without_priority(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """A reason for the priority comes with a priority above normal."""
    if content.priority_reason.strip() and content.requested_priority not in ABOVE_NORMAL:
        fix = Fix("Request high priority", {"requested_priority": "high"})
        yield Problem(
            "priority_reason",
            f"A reason is given, but the requested priority is {content.requested_priority}.",
            fix,
        )


@rule(Severity.WARNING)
def contact_is_member(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The author of the request is still a liaison of the experiment."""
    if facts.former_contact:
        yield Problem(
            "purpose",
            (
                f"{facts.former_contact}, the author, is no longer a liaison. Name a contact in "
                "the purpose."
            ),
        )
