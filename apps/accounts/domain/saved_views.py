"""Saved views of lists: their filters, kept as a query."""

from urllib.parse import parse_qsl, urlencode

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import transaction
from django.db.models import Q, QuerySet

from apps.accounts.models import Experiment, SavedView, User
from apps.accounts.permissions import scope_of
from apps.core.errors import InvalidFields, NotAllowed

#: Maximum views that a user can save per list.
MAX_VIEWS = 30
MOST_QUERY = 2_000
#: Parameters of the page or format of a list, which are not part of a view.
_NOT_KEPT = {"after", "format"}
#: Raises `ValidationError` unless the value is a path of a page, without a host.
is_list_path = RegexValidator(r"\A/([\w-]+/)+\Z", "Enter the path of a list, such as /requests/.")


def normal_query(query: str) -> str:
    """Return a query with sorted parameters, so that equal views have equal queries."""
    return urlencode(sorted(pair for pair in parse_qsl(query) if pair[0] not in _NOT_KEPT))


def kept_query(query: str) -> str:
    """Return the normal query. Raises `ValidationError` if it is too long once encoded."""
    normal = normal_query(query)
    if len(normal) > MOST_QUERY:
        raise ValidationError("These filters are too long to be kept.")
    return normal


def views_for(user: User) -> QuerySet[SavedView]:
    """Return a user's own views of lists, and those shared with the user's experiments."""
    scope = scope_of(user)
    shared = Q(experiment__isnull=False)
    shared &= Q() if scope.sees_all else Q(experiment__in=scope.experiment_keys)
    return SavedView.objects.filter(Q(owner=user) | shared).select_related("owner", "experiment")


def check_owner(user: User, view: SavedView) -> None:
    """Raise `NotAllowed` unless the user owns the view."""
    if view.owner_id != user.pk:
        raise NotAllowed("Only the owner can change a view.")


def delete_view(*, view: SavedView, by: User) -> None:
    """Delete a view. Raises `NotAllowed` unless the user owns it."""
    check_owner(by, view)
    view.delete()


@transaction.atomic
def save_view(
    *,
    owner: User,
    path: str,
    name: str,
    query: str,
    experiment: Experiment | None = None,
    view: SavedView | None = None,
) -> SavedView:
    """Save a view of a list, or change the user's own `view`.

    A view of the same name is replaced. Raises `NotAllowed`, `InvalidFields`.
    """
    if view is not None:
        check_owner(owner, view)
    if experiment is not None and not scope_of(owner).sees(experiment.pk):
        raise NotAllowed("You can share views only with your experiments.")
    User.objects.select_for_update().get(pk=owner.pk)
    same = SavedView.objects.filter(owner=owner, path=path, name=name)
    if view is not None:
        same.exclude(pk=view.pk).delete()
        view.name = name
        view.query = query
        view.experiment = experiment
        view.save(update_fields=["name", "query", "experiment"])
        return view
    if not same.exists() and SavedView.objects.filter(owner=owner, path=path).count() >= MAX_VIEWS:
        raise InvalidFields(
            {"name": [f"You can save {MAX_VIEWS} views of a list. Delete one first."]}
        )
    values = {"query": query, "experiment": experiment}
    return SavedView.objects.update_or_create(owner=owner, path=path, name=name, defaults=values)[0]
