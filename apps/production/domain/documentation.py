"""The generated parts of docs/requests.md and docs/checks.md: states, moves and rules."""

from collections.abc import Iterator

from apps.production.domain.checks.registry import RULES, rules_by_severity
from apps.production.domain.lifecycle.transitions import TRANSITIONS
from apps.production.enums import CLOSED, RequestState


def state_diagram() -> Iterator[str]:
    """Yield the lines of the Mermaid diagram and the table of moves."""
    yield from ("```mermaid", "stateDiagram-v2")
    for state in RequestState:
        yield f"    {state.value}: {state.label}"
    yield f"    [*] --> {RequestState.DRAFT.value}"
    for step in TRANSITIONS:
        yield (
            f"    {step.old.value} --> {step.new.value}: {step.verb.label.lower()} "
            f"({step.actor.value})"
        )
    for state in RequestState:
        if state in CLOSED:
            yield f"    {state.value} --> [*]"
    yield from ("```", "", "| from | move | to | who | reason |", "| --- | --- | --- | --- | --- |")
    for step in TRANSITIONS:
        reason = "required" if step.reason_needed else "optional"
        yield (
            f"| {step.old.label} | {step.verb.label} | {step.new.label} | {step.actor.label} | "
            f"{reason} |"
        )


def rule_tables() -> Iterator[str]:
    """Yield the lines of a table of built-in rules for each severity."""
    for _, meaning, descriptions in rules_by_severity():
        yield f"### {meaning}"
        yield ""
        yield "| rule | requires |"
        yield "| --- | --- |"
        for name, description in descriptions:
            if name in RULES.builtins:
                yield f"| `{name}` | {description} |"
        yield ""
