"""Base view of the API: it refuses input that the call would ignore, from callers who may make the call."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.core.api.operations import json_schema, operations, path_of, resolved

#: Problems shown of one call; names are cut to a readable length.
_MAX_PROBLEMS, _MAX_NAME = 20, 60


class StrictView(APIView):
    """A view that answers 400 to unknown names, and to repeated parameters that take one value.

    Callers who may not make the call, or not for this object, get 401, 403 or 404 before.
    """

    def check_allowed(self) -> None:
        """Raise if the user may not make this call for the object of the URL, or if there is no such object."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Compare the input with the schema, between permission and view."""
        super().initial(request, *args, **kwargs)
        method = "get" if request.method == "HEAD" else str(request.method).lower()
        match = request.resolver_match
        operation = operations().get((path_of(match.route), method)) if match else None
        if operation is None:
            return
        try:
            problems = _problems_of_query(request, operation)
            if request.content_type.partition(";")[0] == "application/json":
                problems |= _unknown_keys(request.data, json_schema(operation), "")
        except Exception:  # the body cannot be read
            self.check_allowed()
            raise
        if problems:
            self.check_allowed()
            raise ValidationError({name: [words] for name, words in list(problems.items())[:_MAX_PROBLEMS]})


def _problems_of_query(request: Request, operation: Mapping[str, Any]) -> dict[str, str]:
    known = {one["name"]: one["schema"] for one in operation.get("parameters", ()) if one["in"] == "query"}
    problems = {}
    for name, values in request.query_params.lists():
        if name not in known:
            problems[name[:_MAX_NAME]] = _unknown("parameter", name, known)
        elif len(values) > 1 and known[name].get("type") != "array":
            problems[name] = "This parameter takes one value."
    return problems


def _unknown_keys(data: Any, schema: Mapping[str, Any], path: str) -> dict[str, str]:
    """Return a problem for each unknown key by its path, such as `stages.0.evnets`."""
    schema = resolved(schema)
    problems: dict[str, str] = {}
    if isinstance(data, list):
        inner = [(str(position), one, schema.get("items", {})) for position, one in enumerate(data)]
    elif not isinstance(data, dict) or "properties" not in schema:  # free, such as arguments
        return problems
    else:
        known = {name: one for name, one in schema["properties"].items() if not one.get("readOnly")}
        unknown = [name for name in data if name not in known]
        problems = {f"{path}{name[:_MAX_NAME]}": _unknown("field", name, known) for name in unknown[:_MAX_PROBLEMS]}
        inner = [(name, data[name], one) for name, one in known.items() if name in data]
    for name, value, declared in inner:
        if isinstance(value, dict | list):
            problems |= _unknown_keys(value, declared, f"{path}{name}.")
    return problems


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[:_MAX_NAME], known, n=1)
    there = sorted(known)
    hint = f" Did you mean “{near[0]}”?" if near else f" Known: {', '.join(there)}." if there else ""
    return f"This {what} does not exist.{hint}"
