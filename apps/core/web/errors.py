"""Show errors of domain functions on pages."""

from django.contrib import messages
from django.forms import BaseForm
from django.http import HttpRequest

from apps.core.errors import DomainError, InvalidFields, NotAllowed


class show_errors:  # noqa: N801 -- as contextlib.suppress
    """Add field problems to the form, and show any other `DomainError` as a message.

    The rest of the block is skipped; `form.errors` has the problems. `NotAllowed` is not caught and
    results in 403.
    """

    def __init__(self, request: HttpRequest, form: BaseForm | None = None) -> None:
        self.request = request
        self.form = form

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, DomainError) or isinstance(error, NotAllowed):
            return False
        if self.form is not None and isinstance(error, InvalidFields):
            for name, problems in error.problems.items():
                self.form.add_error(name if name in self.form.fields else None, problems)
        else:
            messages.error(self.request, _text_of(error))
        return True


def _text_of(error: DomainError) -> str:
    """Return the text of an error.

    With a single field, the text is clear without the field's internal name.
    """
    if isinstance(error, InvalidFields) and len(error.problems) == 1:
        [problems] = error.problems.values()
        return " ".join(problems)
    return str(error)
