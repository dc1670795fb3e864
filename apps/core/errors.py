"""Errors of domain functions. Every message may be shown to the user."""

from django.core.exceptions import PermissionDenied


class DomainError(Exception):
    """A call that violates the portal's rules; the message says why and what to do."""


class NotAllowed(DomainError, PermissionDenied):
    """The user does not have permission. Pages return 403, as for every `PermissionDenied`."""


class InvalidTransition(DomainError):
    """The object cannot change from its state to the requested one."""


class StaleState(DomainError):
    """The object was changed by another user; nothing was overwritten."""


class LimitReached(DomainError):
    """Too much was stored or requested; the message says what.

    `wait_seconds` is the time after which a retry may succeed; None if waiting does not help.
    """

    def __init__(self, message: str, *, wait_seconds: float | None = None) -> None:
        self.wait_seconds = wait_seconds
        super().__init__(message)


class InvalidFields(DomainError):
    """Problems by field path: `{"stages.0.events": ["…"]}`."""

    def __init__(self, problems: dict[str, list[str]]) -> None:
        self.problems = problems
        super().__init__(
            "; ".join(f"{field}: {' '.join(messages)}" for field, messages in problems.items())
        )
