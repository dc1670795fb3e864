"""The steps of the request form, each with the findings of the checks."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apps.production.domain.checks import RuleFinding
from apps.production.web.forms.request import RESOURCES as RESOURCE_FIELDS
from apps.production.web.forms.request import RequestForms

REQUEST = "request"
STAGES = "stages"
RESOURCES = "resources"
REVIEW = "submission"
_OF_STAGE = re.compile(r"id_stages-(\d+)-(\w+)")


@dataclass
class FormStep:
    """A step of the form with its number of problems. `is_checked` once the checks ran.

    A warning about several steps counts in the first; the others only show its sign.
    """

    anchor: str
    title: str
    is_checked: bool = False
    errors: int = 0
    warnings: int = 0
    empty: int = 0
    is_warned: bool = False

    @property
    def kind(self) -> str:
        """The CSS class of its sign."""
        if self.errors or self.is_warned:
            return "error" if self.errors else "warning"
        return "ok" if self.is_checked and not self.empty else ""


def form_steps(
    forms: RequestForms,
    findings: Iterable[RuleFinding] | None = None,
    empty: Iterable[RuleFinding] = (),
    warnings: Iterable[Sequence[str]] = (),
) -> list[FormStep]:
    """Return the steps in the order of the form, and assign each stage its step.

    Without `findings`, no checks ran. `warnings` has the anchors of the fields of each warning.
    """
    steps = {step.anchor: step for step in _make_steps(forms)}
    for finding in findings or ():
        if finding.blocks:
            steps[_step_anchor(forms.find_place(finding.path).anchor)].errors += 1
    for anchors in warnings:
        steps[_step_anchor(anchors[0])].warnings += 1
        for anchor in anchors:
            steps[_step_anchor(anchor)].is_warned = True
    for anchor in {forms.find_place(finding.path).anchor for finding in empty}:
        steps[_step_anchor(anchor)].empty += 1
    for step in steps.values():
        step.is_checked = findings is not None
    for number, form in enumerate(forms.stages.forms, start=1):
        form.step = steps[f"stage-{number}"]
    last = steps[REVIEW]
    last.is_checked = last.is_checked and not any(
        step.errors or step.empty for step in steps.values()
    )
    return list(steps.values())


def _make_steps(forms: RequestForms) -> list[FormStep]:
    stages = []
    for number, form in enumerate(forms.stages.forms, start=1):
        stages.append(FormStep(f"stage-{number}", form["name"].value() or f"Stage {number}"))
    if any(form.resource_fields() for form in forms.stages.forms):
        resources = [FormStep(RESOURCES, "Resources")]
    else:
        resources = []
    return [
        FormStep(REQUEST, "Request"),
        FormStep(STAGES, "All stages"),
        *stages,
        *resources,
        FormStep(REVIEW, "Review"),
    ]


def _step_anchor(anchor: str) -> str:
    """Return the anchor of the step that contains the field with this anchor."""
    if match := _OF_STAGE.match(anchor):
        if match[2] in RESOURCE_FIELDS:
            return RESOURCES
        return f"stage-{int(match[1]) + 1}"
    if anchor == STAGES or anchor.startswith("id_shared-"):
        return STAGES
    return REQUEST
