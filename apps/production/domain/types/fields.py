"""The built-in fields of requests and stages by name, read from `fields.yaml`."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from apps.production.domain.types.arguments import Argument
from apps.production.domain.yaml_text import parse_yaml

_TEXT = Path(__file__).with_name("fields.yaml").read_text(encoding="utf-8")
_FIELDS = TypeAdapter(dict[str, list[Argument]]).validate_python(parse_yaml(_TEXT).data)

REQUEST: Mapping[str, Argument] = {argument.name: argument for argument in _FIELDS["request"]}
#: Arguments of a stage that have their own column. A declaration refers to them by name, and can
#: change their labels.
CORE: Mapping[str, Argument] = {argument.name: argument for argument in _FIELDS["stage"]}
#: Names that arguments of a request cannot have.
TAKEN = {*REQUEST, *CORE, "arguments", "experiment", "kind", "stages", "version", "workflow"}
TAKEN |= {"do", "id", "key", "state"}
