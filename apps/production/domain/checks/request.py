"""Rules for the request as a whole, by itself."""

import re
from collections.abc import Iterator
from datetime import timedelta

from apps.production.domain.checks.base import Mend, Problem, Severity, rule, stages
from apps.production.domain.checks.declared import declared
from apps.production.domain.checks.facts import Facts
from apps.production.domain.content.model import RequestContent
from apps.production.domain.types.fields import REQUEST
from apps.production.enums import ABOVE_NORMAL

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PLAIN = re.compile(r"[A-Za-z0-9/$][\w.:+@=,%~/${}-]*", re.ASCII)
#: A purpose that is shorter tells an approver nothing.
SHORT_PURPOSE, SHORT_TITLE = 20, 6
FAR = timedelta(days=2 * 365)


@rule(Severity.MUST)
def required(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Every ingredient is there."""
    for name, argument in REQUEST.items():
        if argument.required and not getattr(content, name):
            yield Problem(name, argument.missing)
    if not content.stages:
        yield Problem("stages", "Add at least one stage.")
    for path, argument, value in declared(content):
        if argument.required and value in ("", None, [], ()):
            yield Problem(path, argument.missing or f"{argument.title} is needed.")


@rule(Severity.MUST)
def deadline_ahead(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The deadline can still be met."""
    if content.deadline and content.deadline <= facts.today:
        yield Problem("deadline", "The deadline must be later than today.")


@rule(Severity.MUST)
def priority_reason(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Who asks to go before others says why."""
    if content.requested_priority in ABOVE_NORMAL and not content.priority_reason.strip():
        yield Problem("priority_reason", f"A priority of {content.requested_priority} needs a reason.")


@rule(Severity.MUST)
def stage_names(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Names are unique and can stand in a job's environment."""
    first: dict[str, int] = {}
    for position, stage in enumerate(content.stages):
        path = f"stages.{position}.name"
        if stage.name and not _NAME.fullmatch(stage.name):
            name = re.sub(r"[^A-Za-z0-9._-]+", "_", stage.name.strip()).lstrip("._-")
            yield Problem(
                path,
                "Letters, digits, “.”, “_” and “-” only: jobs carry this name in their environment.",
                Mend(f"Name it {name}", {path: name}) if name else None,
            )
        if stage.name and stage.name in first:
            yield Problem(path, f"Stage {first[stage.name] + 1} has this name already.")
        first.setdefault(stage.name, position)


@rule(Severity.MUST)
def plain_names(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Releases, configurations and datasets are single words, as commands take them."""
    for path, stage in stages(content):
        for name in ("release", "configuration", "input_dataset", "output_dataset"):
            value = getattr(stage, name)
            if value and not _PLAIN.fullmatch(value):
                plain = re.sub(r"\s+", "_", value.strip())
                mends = {f"{path}.{name}": plain}
                yield Problem(
                    f"{path}.{name}",
                    "This goes into a command as one word: no blanks, quotes or other special characters.",
                    Mend(f"Write {plain}", mends) if _PLAIN.fullmatch(plain) else None,
                )


@rule(Severity.SHOULD)
def deadline_near(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The deadline is within two years."""
    if content.deadline and content.deadline > facts.today + FAR:
        yield Problem("deadline", f"{content.deadline:%-d %b %Y} is more than two years ahead. Is the year right?")


@rule(Severity.SHOULD)
def purpose_says_enough(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The purpose is long enough to decide upon, and is not the title again."""
    purpose = content.purpose.strip()
    if purpose and (len(purpose) < SHORT_PURPOSE or purpose.casefold() == content.title.strip().casefold()):
        yield Problem("purpose", "Say more: which analysis, who waits for it, and what it replaces or adds to.")


@rule(Severity.SHOULD)
def title_says_enough(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """The title has more than a word's fragment."""
    if content.title.strip() and len(content.title.strip()) < SHORT_TITLE:
        yield Problem("title", "A longer title helps others to tell it from their own.")


@rule(Severity.SHOULD)
def reason_without_priority(content: RequestContent, facts: Facts) -> Iterator[Problem]:
    """Who gives a reason for priority also asks for it."""
    if content.priority_reason.strip() and content.requested_priority not in ABOVE_NORMAL:
        mend = Mend("Ask for high", {"requested_priority": "high"})
        yield Problem(
            "priority_reason", f"A reason is given, but the priority asked for is {content.requested_priority}.", mend
        )
