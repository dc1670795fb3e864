"""Values of earlier requests for the fields of the form, as JSON."""

from django.http import JsonResponse
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.production.domain.content.known import COLUMNS, known_values
from apps.production.models import Request
from apps.production.web.forms.request import writable_experiments

#: Names are not longer than this.
MAX_TEXT = 300


@require_safe
def known(request: AuthenticatedRequest) -> JsonResponse:
    """Return the values of `?kind=` that contain `?text=`.

    They come from requests of experiments for which the user is a liaison.
    """
    kind = request.GET.get("kind", "")
    text = request.GET.get("text", "")
    if kind not in COLUMNS or len(text) > MAX_TEXT:
        return JsonResponse({"values": []})
    mine = Request.objects.visible_to(request.user).filter(
        experiment__in=writable_experiments(request.user)
    )
    return JsonResponse({"values": known_values(mine, kind=kind, text=text)})
