"""Conversion of content to plain data for JSON and YAML and back, with faults by field path."""

from copy import deepcopy
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from apps.production.domain.content.model import RequestContent, without_nulls
from apps.production.domain.types.declaration import Workflow
from apps.production.domain.types.faults import NOT_A_MAPPING, Problems, problems_of
from apps.production.domain.yaml_text import Dumper, write_yaml

#: Top-level names that are not fields of the content.
NOT_CONTENT = frozenset({"experiment", "workflow", "workflow_version"})
#: Data with more faults than this is not read further.
MAX_FAULTS = 1_000
_CONTENT = TypeAdapter(RequestContent)


def plain(content: RequestContent) -> dict[str, Any]:
    """Return content as data that `read_plain` reads back. Empty values of stages are left out."""
    data = _CONTENT.dump_python(content, mode="json", exclude={"workflow"})
    for stage in data["stages"]:
        for name in [name for name, value in stage.items() if value in ("", None, [], {})]:
            del stage[name]
    return {"workflow": content.workflow.key, "workflow_version": content.workflow.number, **data}


def read_plain(data: Any, workflow: Workflow) -> tuple[RequestContent, Problems]:
    """Return the readable part of the content, and every fault."""
    if not isinstance(data, dict):
        return RequestContent(workflow=workflow), {"": [NOT_A_MAPPING]}
    problems: Problems = {}
    left = {name: value for name, value in without_nulls(data).items() if name not in NOT_CONTENT}
    while True:
        try:
            return _CONTENT.validate_python(
                {**left, "workflow": workflow}, context=workflow
            ), problems
        except ValidationError as error:
            if error.error_count() > MAX_FAULTS:
                return RequestContent(workflow=workflow), {
                    "": [f"The data has more than {MAX_FAULTS:,} faults."]
                }
            problems |= problems_of(error)
            left = deepcopy(left)
            for fault in error.errors():
                _remove(left, fault["loc"])


def _remove(data: Any, place: tuple[Any, ...]) -> None:
    """Remove a faulty value.

    A faulty stage is replaced by an empty one. Services are removed as a whole.
    """
    *above, last = place[: place.index("services") + 1] if "services" in place else place
    for part in above:
        data = data[part]
    if isinstance(data, list):
        data[last] = {}
    else:
        data.pop(last, None)


class _BlockDumper(Dumper):
    """A dumper that writes multi-line text as a block."""


def _represent_text(dumper: _BlockDumper, text: str) -> yaml.Node:
    """Write text so that it reads back the same: plain lines as a block, others with escapes."""
    plain_lines = text.isascii() and text == text.strip() and text.replace("\n", "").isprintable()
    if text.isprintable():
        style = None
    elif plain_lines:
        style = "|"
    else:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_BlockDumper.add_representer(str, _represent_text)


def write_request_yaml(content: RequestContent, *, experiment: str) -> str:
    """Return YAML that `parse_yaml` and `read_plain` read back."""
    data = {"experiment": experiment, **plain(content)}
    return write_yaml(data, width=10_000, dumper=_BlockDumper)
