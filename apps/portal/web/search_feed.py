"""The Atom feed of a search, for readers without a session: the token in the URL opens it."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.notifications.web.feeds import feed_response, reader_or_404
from apps.portal.pages.text_search import search_feed
from apps.search.domain.engine.base import SearchRefused, SearchUnavailable
from apps.search.domain.query.clauses import QueryError
from apps.search.domain.query.parser import LONGEST_QUERY

#: When a reader whose search was refused should retry.
RETRY_SECONDS = 300


@login_not_required
@require_safe
def feed(request: HttpRequest, token: str) -> HttpResponseBase:
    """Answer with the newest hits of the search `q`, as the owner of the token finds them."""
    user = reader_or_404(token)
    text = request.GET.get("q", "")[: LONGEST_QUERY + 1]
    try:
        atom, updated = search_feed(
            text=text, feed_path=request.get_full_path(), user=user, at=timezone.now()
        )
    except QueryError as error:
        return HttpResponse(str(error), status=400, content_type="text/plain; charset=utf-8")
    except (SearchRefused, SearchUnavailable) as error:
        refusal = HttpResponse(str(error), status=503, content_type="text/plain; charset=utf-8")
        refusal["Retry-After"] = RETRY_SECONDS
        return refusal
    return feed_response(request, atom, updated)
