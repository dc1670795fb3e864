"""Documentation of the states, generated from the transition table."""

from collections.abc import Iterator
from pathlib import Path

from apps.production.domain.lifecycle.transitions import TRANSITIONS
from apps.production.enums import CLOSED, RequestState

BEGIN, END = "<!-- begin: states -->", "<!-- end: states -->"


def state_diagram() -> str:
    """Return the Mermaid diagram and the table of moves between their markers."""
    return "\n".join([BEGIN, "```mermaid", *_mermaid(), "```", "", *_table(), END])


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


def updated(path: Path) -> tuple[str, str]:
    """Return the current text of a page, and its text with an up-to-date diagram."""
    text = path.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return text, f"{before}{state_diagram()}{after}"
