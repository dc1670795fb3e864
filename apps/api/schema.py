"""What the OpenAPI schema says of every route alike, so that no view has to: how things are refused."""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from rest_framework.views import APIView

_REFUSED = {
    "400": "What was sent cannot be read, or has problems: `detail`, or messages by the field's path.",
    "401": "Who asks is not known: a token is missing, wrong or expired.",
    "403": "You may not do this.",
    "404": "There is none such that you may see.",
    "406": "No answer can be given in the format that is wanted.",
    "409": "It is past this, somebody else changed it meanwhile, or the same call runs just now; nothing was changed.",
    "413": "Too much was sent.",
    "415": "A format that is not read here.",
    "422": "What was sent cannot be taken like this.",
}
#: Refusals of every call, and more of those that send something.
_ALWAYS, _SENDING = ("400", "401", "403", "404", "406"), ("409", "413", "415", "422")
PROBLEM = {
    "type": "object",
    "description": "`detail` says what is wrong; where fields are wrong, messages by the path of each instead.",
    "additionalProperties": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
}


_KEY = {
    "in": "header",
    "name": "Idempotency-Key",
    "schema": {"type": "string", "maxLength": 257},
    "description": "Any text that you use for this one change: sent again with it, the change is made once.",
}

_IF_MATCH = {
    "in": "header",
    "name": "If-Match",
    "schema": {"type": "string"},
    "description": "The ETag of what was read: nothing is changed if it is another now.",
}
_IF_NONE_MATCH = {
    "in": "header",
    "name": "If-None-Match",
    "schema": {"type": "string"},
    "description": "The ETag of what was read: 304 and no body if it still is the same.",
}


class Schema(AutoSchema):
    """drf-spectacular's schema of a view, with what all views have in common."""

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        """Add the refusals that the view itself says nothing of."""
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
        if self.method != "GET" and self.view.authentication_classes == APIView.authentication_classes:
            operation.setdefault("parameters", []).append(_KEY)
            if getattr(self.view, "takes_if_match", False) and getattr(self.view, "detail", False):
                operation["parameters"].append(_IF_MATCH)
                answers.setdefault("412", {"description": "It is not as If-Match says; nothing was changed."})
        if self.method == "GET":
            operation.setdefault("parameters", []).append(_IF_NONE_MATCH)
            answers["304"] = {"description": "It is as If-None-Match says."}
        operation["responses"] = dict(sorted(answers.items()))
        return operation
