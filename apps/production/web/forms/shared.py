"""Values that are entered once for all stages, such as the release;
a stage has a value of its own where it differs.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from apps.production.domain.types.arguments import Argument
from apps.production.domain.types.declaration import Workflow
from apps.production.web.forms.fields import TickedForm, field_of

#: Ticked on a stage that needs none of the services that the others share; no slug of a service.
NONE = "/none"
PREFIX = "shared"

#: The input of a form or of one stage: the values by field name.
Row = dict[str, list[str]]


class SharedForm(TickedForm):
    """What all stages share, whichever kind they have."""

    def __init__(
        self, data: Any, *, workflow: Workflow, services: Iterable[tuple[str, str]]
    ) -> None:
        super().__init__(data, prefix=PREFIX)
        for name, argument in shared_arguments(workflow).items():
            self.fields[name] = field_of(argument, services)


def shared_arguments(workflow: Workflow) -> dict[str, Argument]:
    """Return the shared arguments of the stages by name,
    each as the first kind of stage declares it.
    """
    arguments: dict[str, Argument] = {}
    for kind in workflow.stages:
        for argument in kind.arguments:
            if argument.shared:
                arguments.setdefault(argument.name, argument)
    return arguments


def own_or_shared(own: Any, shared: Any) -> Any:
    """Return the value of a stage: its own input, or what all stages share if that is empty."""
    if isinstance(own, list) and NONE in own:
        return [value for value in own if value != NONE]
    return own or shared


def gather(rows: list[Row], workflow: Workflow) -> tuple[Row, list[Row]]:
    """Take the most frequent value of each shared argument out of the input of stages that have it.

    Returns the shared input and the rows, which together mean what the rows meant. What a stage
    leaves empty is shared only if all do, except services: a stage can say that it needs none.
    """
    shared: Row = {}
    left = [dict(row) for row in rows]
    for name, argument in shared_arguments(workflow).items():
        having = [row for row in left if workflow.stage("".join(row["kind"])).argument(name)]
        counts = Counter(tuple(row[name]) for row in having)
        is_services = argument.kind.widget == "services"
        if not counts or (not is_services and ("",) in counts):
            continue
        [(most, _)] = counts.most_common(1)
        shared[f"{PREFIX}-{name}"] = list(most)
        for row in having:
            if tuple(row[name]) == most:
                row[name] = []
            elif not row[name]:
                row[name] = [NONE]
    return shared, left
