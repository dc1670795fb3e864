"""Experiments in the admin. A guided page sets up a new experiment with all its records."""

import hashlib
from collections.abc import Mapping
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, Q
from django.forms import BaseFormSet, formset_factory
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.accounts.admin import user_of
from apps.accounts.domain.experiments import save_experiment
from apps.accounts.enums import Role
from apps.accounts.models import Experiment, Membership, User
from apps.clusters.models import Cluster
from apps.core.admin import PortalAdmin
from apps.core.admin.record_history import message_about_addition
from apps.core.errors import DomainError, InvalidFields
from apps.core.web.form_errors import name_field_in_errors
from apps.core.web.query import number_in
from apps.jobs.domain.collection.experiment_setup import (
    MOST_COUNTED,
    AccountSetup,
    PersonSetup,
    Setup,
    count_earlier_jobs,
    effect_of,
    set_up_experiment,
)
from apps.jobs.enums import MappedName
from apps.jobs.models import AccountMap
from apps.production.domain.priority.listing import queue_state
from apps.production.domain.priority.shares import share_rows
from apps.production.domain.reasons import MAX_REASON
from apps.production.models import DEFAULT_WEIGHT, MAX_WEIGHT, ExperimentShare

#: Empty rows for accounts and people at the start, and added by *More rows*.
ROWS = 3
MOST_ROWS = 60
#: How many changed ranks are listed.
SHOWN_RANKS = 10
#: Records that belong to an experiment. They do not show that it is in use.
_OWN = (Membership, AccountMap, ExperimentShare)


class KeyForm(forms.ModelForm):
    """Key and name of an experiment."""

    class Meta:
        model = Experiment
        fields = ["key", "name"]
        help_texts = {
            "key": "Letters, digits, hyphens and underscores, usually in upper case: NOVA."
        }
        error_messages = {
            "key": {"invalid": "Use only letters, digits, hyphens and underscores."},
        }


class ExperimentForm(KeyForm):
    """Key, name and weight of the new experiment, and the weights of the others."""

    weight = forms.IntegerField(
        min_value=0, max_value=MAX_WEIGHT, initial=DEFAULT_WEIGHT, label="Weight"
    )
    reason = forms.CharField(
        max_length=MAX_REASON,
        initial="New experiment",
        help_text="Members of all experiments can read why their shares change.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = share_rows()
        for row in self.rows:
            self.fields[f"weight-{row.experiment.pk}"] = forms.IntegerField(
                min_value=0,
                max_value=MAX_WEIGHT,
                initial=row.weight,
                label=f"Weight of {row.experiment.name}",
            )
        for name, field in self.fields.items():
            name_field_in_errors(field, name, "experiment")

    @property
    def lines(self) -> list[tuple[Any, forms.BoundField]]:
        return [(row, self[f"weight-{row.experiment.pk}"]) for row in self.rows]


class RowForm(forms.Form):
    """A row of a table. It is empty if nothing is typed: each choice has a first value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            name_field_in_errors(field, name)

    def has_changed(self) -> bool:
        typed = []
        for name in self.changed_data:
            if not isinstance(self.fields[name], forms.ChoiceField):
                typed.append(name)
        return bool(typed)


class AccountForm(RowForm):
    name = forms.CharField(max_length=255, label="Account or user")
    kind = forms.ChoiceField(choices=MappedName, initial=MappedName.ACCOUNT.value, label="Kind")
    cluster = forms.ModelChoiceField(
        Cluster.objects.all(), required=False, empty_label="all clusters", label="Cluster"
    )


class PersonForm(RowForm):
    username = forms.CharField(
        max_length=150, label="User name", validators=User._meta.get_field("username").validators
    )
    role = forms.ChoiceField(choices=Role, initial=Role.LIAISON.value, label="Role")
    email = forms.EmailField(required=False, label="E-mail of a new user")


class Rows(BaseFormSet):
    """Rows without duplicates. Empty rows do not count."""

    @property
    def filled_forms(self) -> list[forms.Form]:
        return [form for form in self.forms if form.has_changed()]

    @property
    def filled_rows(self) -> list[dict[str, Any]]:
        return [form.cleaned_data for form in self.filled_forms]

    def clean(self) -> None:
        if any(self.errors):
            return
        rows = []
        for row in self.filled_rows:
            rows.append([value for name, value in row.items() if name != "email"])
        for values in rows:
            if rows.count(values) > 1:
                raise forms.ValidationError(f"“{values[0]}” is listed twice.")


_ACCOUNTS, _PEOPLE = (
    formset_factory(
        form, Rows, extra=ROWS, max_num=MOST_ROWS, absolute_max=MOST_ROWS, validate_max=True
    )
    for form in (AccountForm, PersonForm)
)


@admin.register(Experiment)
class ExperimentAdmin(PortalAdmin):
    about = "An experiment, with its key in requests. “Add experiment” sets up all that it needs."
    document = "administration"
    form = KeyForm
    list_display = ["key", "name"]
    search_fields = ["key", "name"]
    deleted_too = _OWN
    is_kept_if_used = True
    instead_of_deleting = (
        "Put the experiment on hold instead to stop its requests, and delete the roles of its "
        "users: what it produced stays."
    )

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show the guided page. *Check* shows the effect.

        *Set up* performs it if nothing has changed since.
        """
        if not self.has_add_permission(request):
            raise PermissionDenied
        data = _with_more_rows(request) if request.method == "POST" else None
        form = ExperimentForm(data)
        accounts = cast(Rows, _ACCOUNTS(data, prefix="a"))
        people = cast(Rows, _PEOPLE(data, prefix="p"))
        sent = request.method == "POST" and "more" not in request.POST
        effect = None
        checked = ""
        version = queue_state().version
        if sent and all(part.is_valid() for part in (form, accounts, people)):
            setup = _setup(form, accounts, people)
            by = user_of(request)
            at = timezone.now()
            checked = hashlib.sha256(repr((setup, version)).encode()).hexdigest()
            try:
                if request.POST.get("checked") == checked:
                    experiment = set_up_experiment(setup=setup, by=by, at=at, version=version)
                    self.log_addition(request, experiment, _message_about(setup))
                    _report_setup(request, experiment, setup)
                    return redirect("admin:accounts_experiment_changelist")
                effect = effect_of(setup=setup, by=by, at=at)
            except InvalidFields as error:
                _add_problems(error.problems, form, accounts, people)
            except DomainError as error:
                form.add_error(None, str(error))
        context = {
            **self.admin_site.each_context(request),
            "title": "Set up an experiment",
            "opts": self.opts,
            "form": form,
            "rows": [("a", "Accounts", accounts), ("p", "People", people)],
            "sent": sent,
            "effect": effect,
            "shown_ranks": effect.ranks[:SHOWN_RANKS] if effect else [],
            "most_counted": MOST_COUNTED,
            "checked": checked if effect else "",
            "outdated": bool(effect and request.POST.get("checked")),
            "sends_mail": bool(settings.EMAIL_HOST),
            "can_log_in": _new_users_can_log_in(),
        }
        return TemplateResponse(request, "portal/admin_experiment.html", context)

    def save_model(self, request: HttpRequest, obj: Experiment, form: Any, change: bool) -> None:
        save_experiment(experiment=obj, by=user_of(request), at=timezone.now())

    def get_fields(self, request: HttpRequest, obj: Experiment | None = None) -> list[Any]:
        return ["key", "name", "belongings"]

    def get_readonly_fields(self, request: HttpRequest, obj: Experiment | None = None) -> list[str]:
        """Fix the key of an experiment in use: request keys and job environments contain it."""
        return ["key", "belongings"] if obj and _is_used(obj) else ["belongings"]

    @admin.display(description="belongs to it")
    def belongings(self, experiment: Experiment) -> SafeString:
        """Link what was set up with the experiment, and is changed in lists of its own."""
        people = experiment.memberships.count()
        accounts = AccountMap.objects.filter(experiment=experiment).count()
        share = ExperimentShare.objects.filter(experiment=experiment).first()
        weight = share.weight if share else DEFAULT_WEIGHT
        links = [
            ("accounts_membership", "experiment__id__exact", f"Roles of users: {people}"),
            ("jobs_accountmap", "experiment__id__exact", f"Accounts of its jobs: {accounts}"),
            ("production_experimentshare", "q", f"Weight of its share: {weight}"),
        ]
        rows = []
        for name, parameter, text in links:
            value = experiment.key if parameter == "q" else experiment.pk
            rows.append((reverse(f"admin:{name}_changelist"), parameter, value, text))
        return format_html_join("", '<a href="{}?{}={}">{}</a><br>', rows)


def _report_setup(request: HttpRequest, experiment: Experiment, setup: Setup) -> None:
    """Say what is done, what follows, and which of its people cannot log in yet."""
    text = f"{experiment} is set up."
    if count_earlier_jobs(setup):
        text += " Its earlier jobs follow in the background."
    messages.success(request, text)
    if _new_users_can_log_in():
        return
    usernames = [person.username for person in setup.people]
    for user in User.objects.filter(username__in=usernames).order_by("username"):
        if not user.has_usable_password():
            link = reverse("admin:auth_user_password_change", args=[user.pk])
            warning = 'User {} has no password and cannot log in: <a href="{}">set one</a>.'
            messages.warning(request, format_html(warning, user.username, link))


def _new_users_can_log_in() -> bool:
    """Whether new users log in without a password that an admin sets."""
    return bool(settings.EMAIL_HOST or settings.OIDC_ISSUER or settings.REMOTE_USER_HEADER)


def _message_about(setup: Setup) -> list[dict[str, Any]]:
    """Return what the history says about a new experiment."""
    values = [("Key", setup.key), ("Name", setup.name), ("Weight of its share", str(setup.weight))]
    for account in setup.accounts:
        values.append((account.kind.label, account.name))
    for person in setup.people:
        values.append((person.role.label, person.username))
    return message_about_addition(values)


def _add_problems(
    problems: Mapping[str, list[str]], form: ExperimentForm, accounts: Rows, people: Rows
) -> None:
    """Add the problems of rows, such as those of `people.2`, to their rows, and others above."""
    rows_of = {"accounts": accounts.filled_forms, "people": people.filled_forms}
    for place, texts in problems.items():
        name, _, number = place.partition(".")
        if name in rows_of:
            row = rows_of[name][int(number)]
            row.add_error(next(iter(row.fields)), texts)
        else:
            form.add_error(None, texts)


def _with_more_rows(request: HttpRequest) -> QueryDict:
    """Return the submitted data, with more rows in the table whose *More rows* was pressed."""
    data = request.POST.copy()
    name = f"{request.POST.get('more', '')}-TOTAL_FORMS"
    if (rows := number_in(request.POST, name)) is not None:
        data[name] = str(rows + ROWS)
    return data


def _setup(form: ExperimentForm, accounts: Rows, people: Rows) -> Setup:
    cleaned = form.cleaned_data
    return Setup(
        key=cleaned["key"],
        name=cleaned["name"],
        weight=cleaned["weight"],
        accounts=[
            AccountSetup(**row | {"kind": MappedName(row["kind"])}) for row in accounts.filled_rows
        ],
        people=[PersonSetup(**row | {"role": Role(row["role"])}) for row in people.filled_rows],
        weights={row.experiment.pk: cleaned[f"weight-{row.experiment.pk}"] for row in form.rows},
        reason=cleaned["reason"],
    )


def _is_used(experiment: Experiment) -> bool:
    """Whether rows refer to the experiment. Cached on the object for one page."""
    known = vars(experiment)
    if "_is_used" not in known:
        is_used: Any = Q()
        for relation in Experiment._meta.related_objects:
            if relation.related_model not in _OWN:
                rows = relation.related_model._default_manager
                is_used |= Exists(rows.filter(**{relation.field.name: OuterRef("pk")}))
        known["_is_used"] = Experiment.objects.filter(is_used, pk=experiment.pk).exists()
    return bool(known["_is_used"])
