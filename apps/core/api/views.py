"""The base view of the API, which rejects input that the call would ignore.

Only callers who may make the call learn about such input.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.core.api.operations import json_schema, operations, path_of, resolved

#: Maximum problems reported of one call. Names are truncated to a readable length.
_MAX_PROBLEMS = 20
_MAX_NAME = 60
#: Maximum items of a list whose keys are checked: more than any list of objects may have.
_MAX_ITEMS = 10_000


class StrictView(APIView):
    """A view that returns 400 for unknown names and for repeated parameters that take one value.

    Callers who may not make the call, or not for this object, get 401, 403 or 404 first.
    """

    def check_allowed(self) -> None:
        """Raise if the user may not make this call for the object of the URL.

        Also raise if there is no such object.
        """

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Compare the input with the schema after checking permissions."""
        super().initial(request, *args, **kwargs)
        if request.method == "HEAD":
            method = "get"
        else:
            method = str(request.method).lower()
        match = request.resolver_match
        operation = None
        if match:
            operation = operations().get((path_of(match.route), method))
        if operation is None:
            return
        try:
            problems = dict(islice(_problems_of_call(request, operation), _MAX_PROBLEMS))
        except Exception:
            # The body cannot be parsed.
            self.check_allowed()
            raise
        if problems:
            self.check_allowed()
            raise ValidationError({name: [problem] for name, problem in problems.items()})


def _problems_of_call(request: Request, operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names with their problems.

    Finding a problem costs much more than accepting valid input, so callers should take only a few.
    """
    yield from _problems_of_query(request, operation)
    if request.content_type.partition(";")[0] == "application/json":
        yield from _unknown_keys(request.data, json_schema(operation), "")


def _problems_of_query(request: Request, operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    known = {}
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query":
            known[parameter["name"]] = parameter["schema"]
    for name, values in request.query_params.lists():
        if name not in known:
            yield name[:_MAX_NAME], _unknown("parameter", name, known)
        elif len(values) > 1 and known[name].get("type") != "array":
            yield name, "This parameter takes one value."


def _unknown_keys(data: Any, schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each unknown key, such as `stages.0.evnets`, with its problem."""
    schema = resolved(schema)
    if isinstance(data, list):
        inner = [
            (str(position), value, schema.get("items", {}))
            for position, value in enumerate(data[:_MAX_ITEMS])
        ]
    # Free-form objects, such as arguments, have no known keys.
    elif not isinstance(data, dict) or "properties" not in schema:
        return
    else:
        known = {}
        for name, declared in schema["properties"].items():
            if not declared.get("readOnly"):
                known[name] = declared
        for name in data:
            if name not in known:
                yield f"{path}{name[:_MAX_NAME]}", _unknown("field", name, known)
        inner = [(name, data[name], declared) for name, declared in known.items() if name in data]
    for name, value, declared in inner:
        if isinstance(value, dict | list):
            yield from _unknown_keys(value, declared, f"{path}{name}.")


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[:_MAX_NAME], known, n=1)
    there = sorted(known)
    if near:
        hint = f" Did you mean “{near[0]}”?"
    elif there:
        hint = f" Known: {', '.join(there)}."
    else:
        hint = ""
    return f"This {what} does not exist.{hint}"
