"""Idempotent saves of the form for a new request: a key in the form identifies its draft."""

import re
from datetime import datetime

from django.db import transaction

from apps.accounts.models import Experiment, User
from apps.core.errors import StaleState
from apps.production.domain.content.model import RequestContent, changes
from apps.production.domain.content.stages import content_of
from apps.production.domain.requests.drafts import create_draft, save_draft
from apps.production.models import FormKey, Request

_KEY = re.compile(r"[A-Za-z0-9]{16,64}")


@transaction.atomic
def save_new(
    *, experiment: Experiment, content: RequestContent, key: str, by: User, at: datetime, typing: bool = False
) -> Request:
    """Create the draft of a new form, or update the draft that the same form created before.

    A draft saved by a button stays as it is: sending the same content again returns it, other content makes a new
    draft, as the user went back to the form. Raises what `create_draft` and `save_draft` raise.
    """
    if not _KEY.fullmatch(key):
        return create_draft(experiment=experiment, content=content, by=by, at=at)
    FormKey.objects.get_or_create(author=by, key=key)
    form = FormKey.objects.select_for_update().get(author=by, key=key)
    made = form.request
    if made is not None and _same(made, experiment, content):
        return made
    if made is None or form.by_button:
        made = create_draft(experiment=experiment, content=content, by=by, at=at)
    else:
        _check(made, form, experiment, content)
        made = save_draft(request=made, content=content, version=form.version, by=by, at=at, typing=typing)
    form.request, form.version, form.by_button = made, made.version, not typing
    form.save(update_fields=["request", "version", "by_button"])
    return made


def _same(made: Request, experiment: Experiment, content: RequestContent) -> bool:
    now = content_of(made)
    return made.experiment_id == experiment.pk and now.workflow == content.workflow and not changes(now, content)


def _check(made: Request, form: FormKey, experiment: Experiment, content: RequestContent) -> None:
    if made.version != form.version:
        raise StaleState(f"This form was saved as {made}, which changed since. Your change was not saved.")
    if made.experiment_id != experiment.pk or content_of(made).workflow != content.workflow:
        raise StaleState(f"This form was saved as {made}. To change its experiment or type, start a new request.")
