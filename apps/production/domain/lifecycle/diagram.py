"""Documentation of the states, generated from the transition table."""

from collections.abc import Iterator

from apps.production.domain.lifecycle.transitions import TRANSITIONS
from apps.production.enums import CLOSED, RequestState


def state_diagram() -> Iterator[str]:
    """Yield the lines of the Mermaid diagram and of the table of moves."""
    yield from ("```mermaid", *_mermaid(), "```", "", *_table())


def _mermaid() -> Iterator[str]:
    yield "stateDiagram-v2"
    for state in RequestState:
        yield f"    {state.value}: {state.label}"
    yield f"    [*] --> {RequestState.DRAFT.value}"
    for step in TRANSITIONS:
        yield f"    {step.old.value} --> {step.new.value}: {step.verb.label.lower()} ({step.actor.value})"
    for state in RequestState:
        if state in CLOSED:
            yield f"    {state.value} --> [*]"


def _table() -> Iterator[str]:
    yield "| from | move | to | who | reason |"
    yield "| --- | --- | --- | --- | --- |"
    for step in TRANSITIONS:
        reason = "required" if step.reason_needed else "optional"
        yield f"| {step.old.label} | {step.verb.label} | {step.new.label} | {step.actor.label} | {reason} |"
