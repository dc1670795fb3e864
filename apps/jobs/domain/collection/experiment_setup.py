"""Set up an experiment in one step: key, accounts, people, and the shares of all experiments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q

from apps.accounts.domain.experiments import save_experiment
from apps.accounts.domain.roles import grant_role
from apps.accounts.domain.users import add_user
from apps.accounts.enums import Role, SignIn
from apps.accounts.models import Experiment, User
from apps.clusters.models import Cluster
from apps.core.errors import InvalidFields, NotAllowed
from apps.jobs.domain.collection.origin import map_account
from apps.jobs.enums import MappedName
from apps.jobs.models import AccountMap, Job
from apps.production.domain.priority.ranks import queue_order
from apps.production.domain.priority.shares import set_shares, share_rows
from apps.production.domain.priority.what_if import RankChange
from apps.production.models import QueueEntry

#: Existing jobs are counted up to this limit.
MOST_COUNTED = 10_000


@dataclass(frozen=True, kw_only=True)
class AccountSetup:
    """An account or user whose jobs belong to the experiment, on one cluster or all."""

    name: str
    kind: MappedName
    cluster: Cluster | None = None


@dataclass(frozen=True, kw_only=True)
class PersonSetup:
    """A user with a role. `email` is required for users who do not exist yet."""

    username: str
    role: Role
    email: str = ""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A new experiment as entered in the form.

    `weights` are the new weights of the other experiments by primary key.
    """

    key: str
    name: str
    weight: int
    accounts: Sequence[AccountSetup] = ()
    people: Sequence[PersonSetup] = ()
    weights: Mapping[int, int]
    reason: str


@dataclass(frozen=True)
class SetupEffect:
    """The effect of a setup.

    `share` is the share of the new experiment, `after` has the shares of the others by primary key.
    `earlier_jobs` counts existing jobs that the new experiment would get.
    """

    share: float
    after: Mapping[int, float]
    ranks: Sequence[RankChange]
    new_users: Sequence[str]
    earlier_jobs: int


@transaction.atomic
def set_up_experiment(
    *, setup: Setup, by: User, at: datetime, version: int | None = None
) -> Experiment:
    """Create an experiment with its accounts and people in one transaction.

    New users are mailed a link to set their password, if the portal sends mail. `version` is the
    version of the queue that the user saw. Raises `NotAllowed`, `StaleState`, and `InvalidFields`
    with all problems of the accounts and people, by their places.
    """
    if not by.has_perm("accounts.add_experiment"):
        raise NotAllowed("Only admins can set up experiments.")
    experiment = Experiment(key=setup.key, name=setup.name)
    try:
        experiment.full_clean()
    except ValidationError as error:
        raise InvalidFields(error.message_dict) from error
    save_experiment(experiment=experiment, by=by, at=at)
    if problems := _problems_of_rows(setup):
        raise InvalidFields(problems)
    for account in setup.accounts:
        map_account(
            account=account.name,
            kind=account.kind,
            cluster=account.cluster,
            experiment=experiment,
            by=by,
            at=at,
        )
    for person in setup.people:
        grant_role(
            user=_user(person, by=by, at=at), role=person.role, experiment=experiment, by=by, at=at
        )
    weights = {**setup.weights, experiment.pk: setup.weight}
    set_shares(weights=weights, by=by, at=at, reason=setup.reason, version=version)
    return experiment


def _problems_of_rows(setup: Setup) -> dict[str, list[str]]:
    """Return the problems of accounts and people by their place, such as `people.0`."""
    problems = {}
    for number, account in enumerate(setup.accounts):
        same = AccountMap.objects.filter(
            cluster=account.cluster, kind=account.kind, account=account.name
        )
        if taken := same.select_related("experiment").first():
            text = f"{account.kind.label} {account.name} belongs to {taken.experiment}."
            problems[f"accounts.{number}"] = [text]
    for number, person in enumerate(setup.people):
        is_new = not User.objects.filter(username=person.username).exists()
        if is_new and not person.email:
            text = f"There is no user {person.username}. Enter an e-mail address to add one."
            problems[f"people.{number}"] = [text]
    return problems


def _user(person: PersonSetup, *, by: User, at: datetime) -> User:
    user = User.objects.filter(username=person.username).first()
    if user is None:
        # Without a mail server there is no password until an admin sets one.
        sign_in = SignIn.LINK if settings.EMAIL_HOST else SignIn.SINGLE_SIGN_ON
        user = add_user(username=person.username, email=person.email, sign_in=sign_in, by=by, at=at)
    return user


def effect_of(*, setup: Setup, by: User, at: datetime) -> SetupEffect:
    """Apply a setup, record its effect, and roll it back. Raises as `set_up_experiment` does."""
    ranks = _ranks()
    names = {person.username for person in setup.people}
    new_users = names - set(
        User.objects.filter(username__in=names).values_list("username", flat=True)
    )
    with transaction.atomic():
        experiment = set_up_experiment(setup=setup, by=by, at=at)
        after = {share.experiment.pk: share.share for share in share_rows()}
        then = _ranks()
        transaction.set_rollback(True)
    changes = []
    for pk, (rank, entry) in ranks.items():
        if then[pk][0] != rank:
            changes.append(RankChange(entry.request, rank, then[pk][0]))
    earlier_jobs = count_earlier_jobs(setup)
    return SetupEffect(after.pop(experiment.pk), after, changes, sorted(new_users), earlier_jobs)


def count_earlier_jobs(setup: Setup) -> int:
    """Count the jobs without an experiment that the new one gets, up to `MOST_COUNTED` and one."""
    accounts = set()
    for account in setup.accounts:
        if account.kind == MappedName.ACCOUNT:
            accounts.add(account.name)
    users = set()
    for account in setup.accounts:
        if account.kind == MappedName.USER:
            users.add(account.name)
    of_it = Q(account__in=accounts) | Q(user__in=users) | Q(account__iexact=setup.key)
    return Job.objects.filter(of_it, experiment=None)[: MOST_COUNTED + 1].count()


def _ranks() -> dict[int, tuple[int, QueueEntry]]:
    """Return the rank and entry of each queued request by the primary key of the entry."""
    queued = QueueEntry.objects.filter(is_queued=True).select_related("request__experiment")
    ranks = {}
    for rank, entry in enumerate(sorted(queued, key=queue_order), start=1):
        ranks[entry.pk] = (rank, entry)
    return ranks
