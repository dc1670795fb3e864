"""Look up routes in the OpenAPI schema."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from django.contrib.admindocs.views import simplify_regex
from drf_spectacular.settings import spectacular_settings

_PARAMETER = re.compile(r"[<{][^<{}>]*[>}]")


@cache
def whole_schema() -> dict[str, Any]:
    """Return the schema, generated once: it does not depend on data."""
    schema: dict[str, Any] = spectacular_settings.DEFAULT_GENERATOR_CLASS().get_schema(
        request=None, public=True
    )
    return schema


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a reference points to."""
    while "$ref" in schema or "allOf" in schema:
        name = (schema if "$ref" in schema else schema["allOf"][0])["$ref"].rpartition("/")[2]
        schema = whole_schema()["components"]["schemas"][name]
    return schema


@cache
def operations() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the operations by path and method; parameters in the path are `{}`."""
    by_path_and_method: dict[tuple[str, str], dict[str, Any]] = {}
    for path, methods in whole_schema()["paths"].items():
        for method, operation in methods.items():
            by_path_and_method[_PARAMETER.sub("{}", path), method] = operation
    return by_path_and_method


def json_schema(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a JSON body.

    It is that of an empty object for a request without a body, and of anything for other formats.
    """
    if "requestBody" not in operation:
        return {"properties": {}}
    schema: Mapping[str, Any] = (
        operation["requestBody"]["content"].get("application/json", {}).get("schema", {})
    )
    return schema


@cache
def path_of(route: str) -> str:
    """Return the path of a URL route in the form of `operations`."""
    return _PARAMETER.sub("{}", simplify_regex(route))
