"""What the back office says after a record was added, changed or deleted."""

from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.admin.utils import quote
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString


class PlainResponses(admin.ModelAdmin):
    """Sentences with the name of the record, in place of Django's with the name of the model."""

    #: What one record is called, if the name of the model says too little.
    record_name = ""

    @property
    def name_of_record(self) -> str:
        return self.record_name or str(self.opts.verbose_name)

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        if IS_POPUP_VAR in request.POST:
            return super().response_add(request, obj, post_url_continue)
        self._report_first(request, self._sentence("Added", request, obj))
        if "_addanother" in request.POST:
            return redirect(request.get_full_path())
        if "_continue" in request.POST and self.has_view_or_change_permission(request, obj):
            return redirect(post_url_continue or self._address_of(obj))
        return self.response_post_save_add(request, obj)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        if IS_POPUP_VAR in request.POST:
            return super().response_change(request, obj)
        self._report_first(request, self._sentence("Saved", request, obj))
        if "_continue" in request.POST:
            return redirect(request.get_full_path())
        if "_addanother" in request.POST:
            return redirect(f"admin:{self.opts.app_label}_{self.opts.model_name}_add")
        return self.response_post_save_change(request, obj)

    def response_delete(self, request: HttpRequest, obj_display: str, obj_id: Any) -> HttpResponse:
        if IS_POPUP_VAR in request.POST:
            return super().response_delete(request, obj_display, obj_id)
        messages.success(request, f"Deleted the {self.name_of_record} “{obj_display}”.")
        return self.response_post_save_change(request, None)

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *more: Any, **options: Any
    ) -> HttpResponse | None:
        """Refuse keys that no record can have, which Django would pass to the database."""
        for key in request.POST.getlist(ACTION_CHECKBOX_NAME):
            if not self._can_be_key(key):
                messages.error(request, "Nothing was done. Choose the records in the list again.")
                return redirect(request.get_full_path())
        return super().response_action(request, queryset, *more, **options)

    def _can_be_key(self, text: str) -> bool:
        try:
            self.opts.pk.to_python(text)
        except ValidationError:
            return False
        return "\x00" not in text

    def _report_first(self, request: HttpRequest, sentence: SafeString) -> None:
        """Say what was saved before what the save itself reported, such as a new token."""
        messages.success(request, sentence)
        # Django can only append a message.
        queued: list[Any] = cast(Any, messages.get_messages(request))._queued_messages
        queued.insert(0, queued.pop())

    def _sentence(self, verb: str, request: HttpRequest, obj: Any) -> SafeString:
        """Write `Added the cluster “alps”.`, with a link to the record."""
        shown: Any = str(obj)
        if self.has_view_or_change_permission(request, obj):
            shown = format_html('<a href="{}">{}</a>', self._address_of(obj), obj)
        return format_html("{} the {} “{}”.", verb, self.name_of_record, shown)

    def _address_of(self, obj: Any) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return reverse(name, args=[quote(obj.pk)])
