"""What every call of the API has: `Idempotency-Key`, `ETag`, `If-None-Match`, and no input that its route ignores."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from io import BytesIO
from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils import timezone
from django.utils.cache import get_conditional_response, patch_cache_control
from django.utils.deprecation import MiddlewareMixin
from django.utils.http import quote_etag
from rest_framework.exceptions import APIException, ParseError
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.models import User
from apps.api.domain import CallInProgress, KeyReused, earlier_call, key_of
from apps.api.models import KeyedCall
from apps.api.schema import json_schema, operations, path_of, resolved
from apps.core.api.conditional import SAFE
from apps.core.api.input import JSONParser
from apps.core.errors import InvalidFields, NotAllowed

HEADER, REPLAYED = "Idempotency-Key", "Idempotency-Replayed"
#: Headers that make calls differ.
_OF_THE_CALL = ("Content-Type", "If-Match", "If-None-Match", "Accept")
_KEPT_HEADERS = ("Content-Type", "ETag", "Location")
_NOT_KEPT = "This change was made before. Its response contained a secret and is not repeated."
_NO_CONDITION = "This resource does not support If-Match. Nothing was changed."


#: Problems shown of one call; names are cut to a readable length.
_MAX_PROBLEMS, _MAX_NAME = 20, 60


class ETagMiddleware(MiddlewareMixin):
    """Add ETags to reads, answer 304 to a matching `If-None-Match`, and refuse an `If-Match` that is not supported."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponseBase:
        if not request.path.startswith("/api/") or request.method not in {"GET", "HEAD"}:
            return response
        if response.status_code != 200 or response.streaming:
            return response
        if not response.has_header("ETag"):
            response["ETag"] = quote_etag(hashlib.sha256(response.content).hexdigest()[:32])
        if not response.has_header("Cache-Control"):
            patch_cache_control(response, private=True, no_cache=True)
        return get_conditional_response(request, etag=response["ETag"], response=response) or response

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Refuse a condition that the view would ignore."""
        cls = getattr(view, "cls", None)
        if cls is None or request.method in SAFE or "If-Match" not in request.headers:
            return None
        return None if getattr(cls, "takes_if_match", False) else JsonResponse({"detail": _NO_CONDITION}, status=412)


class KnownInputMiddleware(MiddlewareMixin):
    """Answers 400 to input that the view would ignore: unknown names, and repeated parameters that take one value.

    Callers who may not make the call, or not for this object, get the view's 401, 403 or 404.
    """

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        method = "get" if request.method == "HEAD" else str(request.method).lower()
        route = request.resolver_match.route if request.resolver_match else ""
        operation = operations().get((path_of(route), method)) if request.path.startswith("/api/") else None
        if operation is None:
            return None
        problems = _problems_of_query(request, operation)
        if request.content_type == "application/json" and _may_be_answered(request):
            problems |= _unknown_keys(_body_of(request), json_schema(operation), "")
        if not problems:
            return None
        refused = _refusal_of(lambda: view(request, *args, **kwargs))
        shown = dict(list(problems.items())[:_MAX_PROBLEMS])
        return refused or JsonResponse({name: [words] for name, words in shown.items()}, status=400)


def _refusal_of(answer: Callable[[], HttpResponseBase]) -> HttpResponseBase | None:
    """Return the response of a view that refuses the caller or does not find its object; undo what another one did.

    Only the view knows who may call it for which object. What it does is one transaction, and takes effect outside of
    the database on commit.
    """
    with transaction.atomic():
        response = answer()
        transaction.set_rollback(True)
    return response if response.status_code in {401, 403, 404} else None


def _may_be_answered(request: HttpRequest) -> bool:
    """Whether the caller claims to be somebody: the body of a stranger is not parsed, the view refuses it."""
    return "Authorization" in request.headers or request.user.is_authenticated


def _problems_of_query(request: HttpRequest, operation: Mapping[str, Any]) -> dict[str, str]:
    known = {one["name"]: one["schema"] for one in operation.get("parameters", ()) if one["in"] == "query"}
    problems = {}
    for name, values in request.GET.lists():
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


def _body_of(request: HttpRequest) -> Any:
    """Return the JSON of the body; None if it cannot be read, which the view reports."""
    try:
        return JSONParser().parse(BytesIO(request.body))
    except (RequestDataTooBig, OSError, ParseError, InvalidFields):
        return None


class IdempotencyMiddleware(MiddlewareMixin):
    """Makes a change once however often it is sent with its key. Last in the list because it calls the view."""

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        """Call the view if an authenticated user sent a change with a key; else do nothing."""
        header, cls = request.headers.get(HEADER), getattr(view, "cls", None)
        if header is None or request.method in SAFE or cls is None or not issubclass(cls, APIView):
            return None
        user = _authenticated_user(request, cls)
        if user is None:
            return None
        key = key_of(header)
        if key is None:
            return _refuse(400, f"{HEADER}: 1 to 255 printable ASCII characters, in quotes.")
        try:
            request.body  # noqa: B018 - the view refuses a body that is too large or cut off
        except (RequestDataTooBig, OSError):
            return None
        headers = [request.headers.get(name, "") for name in _OF_THE_CALL]
        described = json.dumps([request.META.get("QUERY_STRING", ""), *headers]).encode()
        fingerprint = hashlib.sha256(described + b"\0" + request.body).hexdigest()
        route = f"{request.method} {request.path}"[:300]
        call = KeyedCall(user=user, route=route, key=key, fingerprint=fingerprint, at=timezone.now())
        return _answer_once(call, lambda: view(request, *args, **kwargs))


def _answer_once(call: KeyedCall, answer: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Repeat the response of an earlier call with this key; else make the call, and keep a successful response.

    409 while the same call is in progress, 422 if the key was used for another. A refused call is not kept, so it can
    be retried with its key.
    """
    with transaction.atomic():
        try:
            earlier = earlier_call(call)
        except (CallInProgress, KeyReused, NotAllowed) as error:
            return _refuse({CallInProgress: 409, KeyReused: 422}.get(type(error), 403), str(error))
        if earlier is not None:
            repeated = HttpResponse(bytes(earlier.body), status=earlier.status)
            del repeated["Content-Type"]
            for name, value in (earlier.headers | {REPLAYED: "true"}).items():
                repeated[name] = value
            return repeated
        response = answer()
        if not isinstance(response, HttpResponse) or not 200 <= response.status_code < 300:
            transaction.set_rollback(True)
            return response
        if hasattr(response, "render"):
            response.render()
        kept = _refuse(409, _NOT_KEPT) if "no-store" in response.get("Cache-Control", "") else response
        call.status, call.body = kept.status_code, kept.content
        call.headers = {name: kept[name] for name in _KEPT_HEADERS if name in kept}
        call.save()
        return response


def _refuse(status: int, detail: str) -> HttpResponse:
    return JsonResponse({"detail": detail}, status=status)


def _authenticated_user(request: HttpRequest, cls: type[APIView]) -> User | None:
    """Return the user as the view will see it; None for machines, anonymous and refused users."""
    try:
        user = Request(request, authenticators=cls().get_authenticators()).user
    except APIException:
        return None
    return user if isinstance(user, User) else None
