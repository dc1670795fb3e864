"""Reactions to events of other apps."""

from django.utils import timezone

from apps.core.domain.subscriptions import subscribe
from apps.core.models import Event
from apps.production.enums import Verb
from apps.production.events import kind_of_move
from apps.production.models import Request
from apps.submission.domain.files.recovery import give_files_back


@subscribe("submission.give_files_back", kind_of_move(Verb.CANCEL), kind_of_move(Verb.REJECT))
def on_recovery_cancelled(event: Event) -> None:
    """Let the files of a cancelled or rejected recovery wait in the original request again."""
    request = Request.objects.filter(pk=int(event.target_id)).first()
    if request is not None:
        give_files_back(recovery=request, at=timezone.now())
