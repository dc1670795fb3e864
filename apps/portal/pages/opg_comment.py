"""What a user who may not retry failed jobs can do: comment on their request, for the OPG."""

from urllib.parse import urlencode

from django.urls import reverse

from apps.accounts.models import User
from apps.diagnosis.models import FailureGroup, Verdict
from apps.production.models import Request


def comment_url(request: Request, text: str) -> str:
    """Return the URL of a comment on a request that begins with this text."""
    return f"{reverse('production:comment', args=[request.key])}?{urlencode({'text': text})}"


def link_comment_on(group: FailureGroup, user: User) -> list[tuple[str, str]]:
    """Return label and URL of a comment on the request of the newest job of a failure group.

    Empty if the user sees no job of a request in it.
    """
    of_group = Verdict.objects.visible_to(user).filter(group=group).exclude(job__request_key="")
    newest = of_group.select_related("job").order_by("-ended_at", "-pk").first()
    if newest is None:
        return []
    requests = Request.objects.visible_to(user).filter(
        key=newest.job.request_key, experiment=newest.experiment_id
    )
    request = requests.first()
    if request is None:
        return []
    text = f"F-{group.pk}, {group.title}: "
    return [(f"Comment on {request.key}…", comment_url(request, text))]
