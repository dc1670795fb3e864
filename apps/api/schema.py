"""The OpenAPI schema with the errors and headers of every route."""

import re
from typing import Any

from drf_spectacular.contrib.django_filters import DjangoFilterExtension
from drf_spectacular.extensions import (
    OpenApiAuthenticationExtension,
    OpenApiSerializerFieldExtension,
)
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_doc
from rest_framework.views import APIView

from apps.core.api.machine_tokens import MachineTokenAuthentication
from apps.core.web.query import AnyOf

_REFUSED = {
    "400": "Invalid body: `detail`, or messages by field path.",
    "401": "The token is missing, wrong or expired.",
    "403": "You do not have permission.",
    "404": "Not found, or you do not have access.",
    "406": "The format requested is not available.",
    "409": (
        "Conflict with the state, another user's change or the same call in progress. Nothing was "
        "changed."
    ),
    "413": "The body is too large, or the storage limit is reached.",
    "415": "The format of the body is not supported.",
    "422": "The body cannot be processed.",
    "429": "A rate or storage limit is reached. `Retry-After` has the seconds to wait.",
}
#: Errors of every call, and additional errors of calls with a body.
_ALWAYS = ("400", "401", "403", "404", "406", "429")
_SENDING = ("409", "413", "415", "422")
PROBLEM = {
    "type": "object",
    "description": "`detail`, or messages by field path.",
    "additionalProperties": {
        "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
    },
}


_KEY = {
    "in": "header",
    "name": "Idempotency-Key",
    "schema": {"type": "string", "maxLength": 257},
    "description": "A text unique to this change. Repeating the call with it makes the change "
    "once.",
}

_IF_MATCH = {
    "in": "header",
    "name": "If-Match",
    "schema": {"type": "string"},
    "description": "The ETag you have read. Nothing is changed if the resource has another one "
    "now.",
}
_IF_NONE_MATCH = {
    "in": "header",
    "name": "If-None-Match",
    "schema": {"type": "string"},
    "description": "The ETag you have read: 304 without a body if it is unchanged.",
}


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the tokens of users in the schema."""

    target_class = "apps.accounts.web.tokens.TokenAuthentication"
    name = "token"
    priority = 1

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of the page *Settings*.",
        }


class MachineTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the tokens of machines in the schema, by the names that their classes set."""

    target_class = MachineTokenAuthentication
    match_subclasses = True

    def __init__(self, target: MachineTokenAuthentication) -> None:
        super().__init__(target)  # type: ignore[no-untyped-call]
        self.name = target.scheme_name

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer"}


class TimeOfDay(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """A time without a zone. `format: time` of JSON Schema would be one with a zone (RFC 3339)."""

    target_class = "rest_framework.serializers.TimeField"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: str) -> dict[str, Any]:
        pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
        return {"type": "string", "pattern": pattern, "example": "22:00"}


class AnyOfExtension(DjangoFilterExtension):
    """Describes filters that accept several values."""

    priority = 1
    #: Detecting this would load GeoDjango and look for GDAL, which takes a tenth of a second at
    #: every start of the web server.
    _has_gis = False

    def resolve_filter_field(
        self, auto_schema: Any, model: Any, filterset_class: Any, field_name: str, filter_field: Any
    ) -> list[dict[str, Any]]:
        parameters: list[dict[str, Any]]
        parameters = super().resolve_filter_field(  # type: ignore[no-untyped-call]
            auto_schema, model, filterset_class, field_name, filter_field
        )
        if issubclass(filterset_class, AnyOf) and filterset_class.may_repeat(field_name):
            for parameter in parameters:
                if parameter["schema"].get("type") != "array":
                    parameter["schema"] = {"type": "array", "items": parameter["schema"]}
                    parameter["explode"] = True
                    parameter["style"] = "form"
        return parameters


#: What an action that a view set inherits does with its records, by its name.
_INHERITED = {
    "list": "List {nouns}",
    "retrieve": "Return {noun}",
    "destroy": "Delete {noun}",
}


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


class Schema(AutoSchema):
    """drf-spectacular's schema with a summary, the errors and headers of every view."""

    def get_summary(self) -> str:
        """Return the first statement of the docstring of the action, without its details.

        An inherited action without a docstring is named after the records of its view set.
        """
        action = getattr(self.view, "action", None) or self.method.lower()
        inherited = _INHERITED.get(action)
        if inherited and not get_doc(getattr(self.view, action, None)):
            noun, nouns = self._get_nouns()
            return inherited.format(noun=_with_article(noun), nouns=nouns)
        text = " ".join(self.get_description().split())
        return re.split(r"[.:;](?:\s|$)", text)[0]

    def _get_nouns(self) -> tuple[str, str]:
        """Return what a record of the view set is called, and several: its `noun`, or that of its
        model.
        """
        view: Any = self.view
        if noun := getattr(view, "noun", ""):
            return noun, f"{noun}s"
        queryset = getattr(view, "queryset", None)
        if queryset is None:
            names = view.get_serializer_class().Meta.model._meta
        else:
            names = queryset.model._meta
        return str(names.verbose_name), str(names.verbose_name_plural)

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is None:
            return None
        codes = (*_ALWAYS, *(() if self.method == "GET" else _SENDING))
        answers = operation["responses"]
        for code in codes:
            answers.setdefault(code, {"description": _REFUSED[code]})
        for code, answer in answers.items():
            if code >= "400":
                answer.setdefault("content", {"application/json": {"schema": PROBLEM}})
        if (
            self.method != "GET"
            and self.view.authentication_classes == APIView.authentication_classes
        ):
            operation.setdefault("parameters", []).append(_KEY)
            if getattr(self.view, "takes_if_match", False) and getattr(self.view, "detail", False):
                operation["parameters"].append(_IF_MATCH)
                answers.setdefault(
                    "412", {"description": "The ETag does not match If-Match. Nothing was changed."}
                )
        if self.method == "GET":
            operation.setdefault("parameters", []).append(_IF_NONE_MATCH)
            answers["304"] = {"description": "The ETag matches If-None-Match."}
        operation["responses"] = dict(sorted(answers.items()))
        return operation
