"""API tokens and failed logins in the admin."""

from types import MappingProxyType

from axes.admin import AccessAttemptAdmin, AccessFailureLogAdmin, AccessLogAdmin
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from apps.accounts.domain.api_tokens import revoke_token
from apps.accounts.models import ApiToken
from apps.accounts.web.http_request import user_of
from apps.core.admin import ReadOnlyAdmin

for login_records in (AccessAttempt, AccessFailureLog, AccessLog):
    admin.site.unregister(login_records)


@admin.register(AccessAttempt)
class LoginAttemptAdmin(ReadOnlyAdmin, AccessAttemptAdmin):
    """Failed logins that count towards a lock. Deleting them unlocks."""

    about = "Failed logins that count towards a lock. Deleting them unlocks the login."
    document = "security"
    list_title = "Failed logins"
    record_name = "failed login"
    never = ("add", "change")
    deletes_in_bulk = True


@admin.register(AccessFailureLog)
class LoginFailureAdmin(ReadOnlyAdmin, AccessFailureLogAdmin):
    """Failed logins, if they are stored."""

    about = "Failed logins, if they are stored."
    document = "security"
    list_title = "Log of failed logins"


@admin.register(AccessLog)
class LoginLogAdmin(ReadOnlyAdmin, AccessLogAdmin):
    """Logins and logouts, if they are stored."""

    about = "Logins and logouts, if they are stored."
    document = "security"
    list_title = "Log of logins"


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """Tokens of all users. Users create them; an admin can only revoke them."""

    about = "Users make their tokens in their settings; an admin can only revoke them, by deleting."
    document = "api"
    never = ("add", "change")
    list_display = ("name", "user", "scope", "token_key", "created", "expiry", "calls_per_hour")
    list_filter = ("scope",)
    ordering = ("user__username", "name")
    column_titles = MappingProxyType(
        {"token_key": "begins with", "expiry": "valid until", "calls_per_hour": "calls per hour"}
    )
    search_help_text = "Searches names, user names and the first characters of tokens."
    deletes_in_bulk = True
    search_fields = ("name", "user__username", "token_key")
    exclude = ("digest",)

    def delete_model(self, request: HttpRequest, obj: ApiToken) -> None:
        revoke_token(user=obj.user, token_key=obj.token_key, by=user_of(request), at=timezone.now())
