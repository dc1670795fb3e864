"""The pin of an archived job on its page."""

from typing import Any

from django import template

from apps.archive.domain.retention import may_pin
from apps.archive.models import ArchivedJob, Pin
from apps.archive.web.forms import PinForm

register = template.Library()


@register.inclusion_tag("archive/_pin.html", takes_context=True)
def pin_of(context: template.Context, archived: ArchivedJob) -> dict[str, Any]:
    """Show who pinned the job and why, and to those who may, a form to pin or unpin it."""
    request = context["request"]
    return {
        "archived": archived,
        "pin": Pin.objects.filter(job=archived).first(),
        "may_pin": may_pin(request.user, archived),
        "form": PinForm(),
        "csrf_token": context.get("csrf_token"),
    }
