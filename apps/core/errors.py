"""What services raise. Every message is fit to be shown to the person who asked."""

from django.core.exceptions import PermissionDenied


class DomainError(Exception):
    """The request makes no sense for the portal's rules; the message says why and what to do."""


class NotAllowed(DomainError, PermissionDenied):
    """This person may not do this to this object. A page answers 403, as Django does to every `PermissionDenied`."""


class InvalidTransition(DomainError):
    """The object cannot move from the state it is in to the one asked for."""


class StaleState(DomainError):
    """Somebody else changed the object meanwhile; nothing was overwritten."""


class InvalidFields(DomainError):
    """Fields with problems, all at once: `problems` maps a field's path (`stages.0.events`) to its messages."""

    def __init__(self, problems: dict[str, list[str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{field}: {' '.join(messages)}" for field, messages in problems.items()))
