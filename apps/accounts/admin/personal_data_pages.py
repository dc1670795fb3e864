"""Pages of the back office that hand over, and remove, what the portal holds about a person."""

import io
from tempfile import SpooledTemporaryFile
from typing import IO, Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.personal_data import (
    export_person,
    is_removed,
    preview_removal,
    remove_person,
)
from apps.accounts.web.http_request import user_of
from apps.core.admin.deletion import MOST_COUNTED, count_in_words
from apps.core.errors import NotAllowed

#: Exports up to this size are made in memory, larger ones in a temporary file.
_MOST_IN_MEMORY = 8_000_000


class PersonalDataPages(admin.ModelAdmin):
    """*Export data…* and *Remove person…* of the page of a user."""

    def get_urls(self) -> list[Any]:
        export = self.admin_site.admin_view(self.export_view)
        remove = self.admin_site.admin_view(self.remove_view)
        return [
            path("<int:pk>/export/", export, name="accounts_user_export"),
            path("<int:pk>/remove/", remove, name="accounts_user_remove"),
            *super().get_urls(),
        ]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Forbid changes of a removed person: they would bring a name back."""
        is_gone = obj is not None and is_removed(obj)
        return not is_gone and super().has_change_permission(request, obj)

    def export_view(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        """Say what an export has, and send it as a file."""
        user = self._changeable_user(request, pk)
        if request.method != "POST":
            return self._page(request, user, "export", f"Export the data of {user}")
        # The response closes it.
        file = SpooledTemporaryFile(max_size=_MOST_IN_MEMORY)  # noqa: SIM115
        text = io.TextIOWrapper(cast(IO[bytes], file), encoding="utf-8", write_through=True)
        rows = export_person(user, text, by=user_of(request), at=timezone.now())
        text.detach()
        file.seek(0)
        self.log_change(request, user, f"Exported the personal data: {rows:,} rows.")
        name = f"{user.username}-{timezone.localdate():%Y-%m-%d}.jsonl"
        return FileResponse(
            file, as_attachment=True, filename=name, content_type="application/jsonl"
        )

    def remove_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Say what a removal deletes and what stays; remove the person once the name is typed."""
        user = self._changeable_user(request, pk)
        typed = request.POST.get("username", "").strip()
        errors = []
        if request.method == "POST" and typed == user.username:
            name = str(user)
            try:
                removal = remove_person(user, by=user_of(request), at=timezone.now())
            except NotAllowed as error:
                errors.append(str(error))
            else:
                user.refresh_from_db()
                self.log_change(request, user, "Removed the person.")
                done = f"Removed the person: {name} is {removal.new_name} now."
                messages.success(request, done)
                return redirect("admin:accounts_user_change", user.pk)
        elif request.method == "POST":
            errors.append(f"Type the user name {user.username} to confirm. Nothing was removed.")
        preview = preview_removal(user, most_counted=MOST_COUNTED)
        return self._page(
            request,
            user,
            "remove",
            f"Remove {user}?",
            deleted=_in_words(preview.deleted),
            kept=_in_words(preview.kept),
            new_name=f"former-user-{user.pk}",
            errors=errors,
            typed=typed,
        )

    def _changeable_user(self, request: HttpRequest, pk: int) -> User:
        """Return a user who was not removed. Raises `Http404` and `PermissionDenied`."""
        user = cast(User | None, self.get_object(request, str(pk)))
        if user is None or user.is_demo or is_removed(user):
            raise Http404("There is no such user.")
        if not self.has_change_permission(request, user):
            raise PermissionDenied
        return user

    def _page(
        self, request: HttpRequest, user: User, page: str, title: str, **context: Any
    ) -> TemplateResponse:
        context |= {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "original": user,
        }
        return TemplateResponse(request, f"accounts/admin_user_{page}.html", context)


def _in_words(counts: list[tuple[type[Model], int]]) -> list[str]:
    return [count_in_words(count, model._meta) for model, count in counts]
