"""Values that are entered once for all stages, such as the release. A stage can override them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from apps.production.domain.types.arguments import Argument
from apps.production.domain.types.declaration import Workflow
from apps.production.web.forms.fields import TickedForm, make_form_field

#: The choice of a stage that needs none of the shared services. It is not a slug of a service.
NONE = "/none"
PREFIX = "shared"

#: The input of a form or of one stage: values by field name.
Row = dict[str, list[str]]


class SharedForm(TickedForm):
    """The values that all stages share, whatever their kind."""

    def __init__(
        self, data: Any, *, workflow: Workflow, services: Iterable[tuple[str, str]]
    ) -> None:
        super().__init__(data, prefix=PREFIX)
        for name, argument in shared_arguments(workflow).items():
            self.fields[name] = make_form_field(argument, services)


def shared_arguments(workflow: Workflow) -> dict[str, Argument]:
    """Return the shared arguments of the stages by name.

    Each is declared as in the first kind of stage that has it.
    """
    arguments: dict[str, Argument] = {}
    for kind in workflow.stages:
        for argument in kind.arguments:
            if argument.shared:
                arguments.setdefault(argument.name, argument)
    return arguments


def own_or_shared(own: Any, shared: Any) -> Any:
    """Return the value of a stage: its own input, or the shared value if its own is empty."""
    if isinstance(own, list) and NONE in own:
        return [value for value in own if value != NONE]
    return own or shared


def gather(rows: list[Row], workflow: Workflow) -> tuple[Row, list[Row]]:
    """Move the most frequent value of each shared argument from the stages to the shared input.

    Return the shared input and the remaining rows, which together are equivalent to the rows. An
    empty value is shared only if no stage has another one, except for services: a stage can state
    that it needs none.
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
