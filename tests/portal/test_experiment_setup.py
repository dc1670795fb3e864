"""Setting up an experiment: on one page, in one transaction,
with its effect shown before it is saved.
"""

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Experiment, Membership, User
from apps.accounts.personal_data import remove_person
from apps.core.admin.record_history import history_of
from apps.core.models import Event
from apps.core.tasks import deliver_waiting
from apps.jobs.models import AccountMap, Job
from apps.production.models import ExperimentShare
from tests.factories import clusters, jobs, people
from tests.factories.jobs import record
from tests.pages import text_of

ADDRESS = "/admin/accounts/experiment/add/"


@pytest.fixture
def office(client, admin, nova, dune, liaison):
    client.force_login(admin)
    return client


def sent(**changes):
    """What the page sends: two accounts, two people, and the weights of the others as they are."""
    values = {
        "key": "SBND",
        "name": "Short-Baseline Near Detector",
        "weight": "50",
        "reason": "Approved by the board",
        "a-TOTAL_FORMS": "3",
        "a-INITIAL_FORMS": "0",
        "a-0-name": "sbndpool",
        "a-0-kind": "account",
        "a-1-name": "sbndpro",
        "a-1-kind": "user",
        "a-2-kind": "account",
        "p-TOTAL_FORMS": "3",
        "p-INITIAL_FORMS": "0",
        "p-0-username": "nova-liaison",
        "p-0-role": "liaison",
        "p-1-username": "new.person",
        "p-1-role": "approver",
        "p-1-email": "new@example.org",
        "p-2-role": "liaison",
        **{f"weight-{pk}": "100" for pk in Experiment.objects.values_list("pk", flat=True)},
    }
    return values | changes


def check(office, **changes):
    return office.post(ADDRESS, sent(**changes))


def save(office, **changes):
    checked = check(office, **changes).context["checked"]
    return office.post(ADDRESS, sent(**changes) | {"checked": checked})


def everything():
    return [
        sorted(model.objects.values_list())
        for model in (Experiment, AccountMap, Membership, ExperimentShare)
    ] + [
        User.objects.count(),
        Event.objects.count(),
    ]


def test_check_shows_the_effect_and_changes_nothing(office, nova, dune):
    jobs.store(
        clusters.cluster(),
        record(1, account="sbndpool"),
        record(2, account="sbnd"),
        record(3, account="other"),
    )
    before = everything()
    assert office.get(ADDRESS).context["form"]["weight"].value() == 100
    page = check(office)
    effect = page.context["effect"]
    assert everything() == before
    assert (effect.share, effect.after) == (0.2, {nova.pk: 0.4, dune.pk: 0.4})
    assert (effect.new_users, effect.earlier_jobs) == (["new.person"], 2)
    for text in (
        "Nothing is saved yet",
        "50 %",
        "40 %",
        "20 %",
        "2 earlier jobs without an experiment",
        "adds users without a password: new.person",
    ):
        assert text in text_of(page)


def test_experiment_is_set_up_as_a_whole(
    office, nova, dune, liaison, settings, django_capture_on_commit_callbacks
):
    settings.EMAIL_HOST = "mail.example.org"
    cluster = clusters.cluster()
    (job,) = jobs.store(cluster, record(1, account="sbndpool"))
    page = save(office, **{"a-1-cluster": str(cluster.pk), f"weight-{dune.pk}": "30"})
    assert page.status_code == 302
    sbnd = Experiment.objects.get(key="SBND")
    added = history_of(sbnd).entries[0]
    assert added.what == "Created the experiment"
    first_values = {(change.field, change.new) for change in added.changes}
    assert first_values >= {("Weight of its share", "50"), ("Approver", "new.person")}
    maps = AccountMap.objects.filter(experiment=sbnd).order_by("account")
    assert list(maps.values_list("account", "kind", "cluster")) == [
        ("sbndpool", "account", None),
        ("sbndpro", "user", cluster.pk),
    ]
    new = User.objects.get(username="new.person")
    assert set(Membership.objects.filter(experiment=sbnd).values_list("user", "role")) == {
        (liaison.pk, "liaison"),
        (new.pk, "approver"),
    }
    assert dict(ExperimentShare.objects.values_list("experiment", "weight")) == {
        sbnd.pk: 50,
        dune.pk: 30,
    }
    kinds = set(Event.objects.filter(actor="admin-one").values_list("kind", flat=True))
    assert {
        "experiment.created",
        "account.mapped",
        "membership.granted",
        "share.set",
        "user.created",
    } <= kinds
    assert (
        Event.objects.filter(
            kind="account.password_reset_requested", target_label="new.person"
        ).count()
        == 1
    )
    deliver_waiting()
    assert Job.objects.get(pk=job.pk).experiment == sbnd


def test_new_user_without_a_mail_server_gets_a_password_from_the_admin(office, settings):
    settings.EMAIL_HOST = ""
    page = save(office)
    new = User.objects.get(username="new.person")
    assert not new.has_usable_password()
    followed = office.get(page["Location"]).content.decode()
    assert "is set up." in followed
    assert "earlier jobs follow" not in followed
    link = reverse("admin:auth_user_password_change", args=[new.pk])
    assert (
        f'User new.person has no password and cannot log in: <a href="{link}">set one</a>'
        in followed
    )


@pytest.mark.parametrize(
    ("address", "promise", "effect"),
    [
        ("", "The portal sends no mail: set a password", "adds users without a password: new"),
        ("mail.example.org", "A new user gets a link for a password by mail.", "adds users: new"),
    ],
)
def test_check_says_whether_new_users_can_log_in(office, settings, address, promise, effect):
    settings.EMAIL_HOST = address
    page = text_of(check(office))
    assert promise in page
    assert effect in page


def test_row_whose_name_is_removed_does_not_count(office):
    removed = {"p-1-username": "", "p-1-email": "", "a-1-name": "", "a-1-kind": "user"}
    save(office, **removed)
    sbnd = Experiment.objects.get(key="SBND")
    assert [str(role.user) for role in Membership.objects.filter(experiment=sbnd)] == [
        "nova-liaison"
    ]
    assert AccountMap.objects.filter(experiment=sbnd).count() == 1


def test_with_single_sign_on_no_password_is_missed(office, settings):
    settings.EMAIL_HOST = ""
    settings.REMOTE_USER_HEADER = "X-User"
    page = save(office)
    assert "has no password" not in office.get(page["Location"]).content.decode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "nova"}, "upper and lower case are the same"),
        ({"key": ""}, "“Key” is required: enter a value."),
        ({"key": "S B"}, "Use only letters, digits, hyphens and underscores."),
        ({"name": ""}, "“Name” is required: enter a value."),
        ({"weight": "-1"}, "Enter 0 or more for “Weight”."),
        ({"weight": "many"}, "Enter a whole number"),
        ({"reason": ""}, "“Reason” is required: enter a value."),
        ({"a-0-name": "novapool"}, "Account novapool belongs to NOvA"),
        ({"p-1-username": ""}, "“User name” is required: enter a value."),
        ({"a-1-name": "sbndpool", "a-1-kind": "account"}, "“sbndpool” is listed twice"),
        ({"a-0-cluster": "999"}, "Choose again for “Cluster”"),
        ({"p-1-email": ""}, "There is no user new.person. Enter an e-mail address to add one."),
        ({"p-1-email": "nobody"}, "Enter an address such as ann@example.org"),
        ({"p-1-username": "a b"}, "Enter a valid username"),
        ({"p-0-role": "king"}, "“king” is not a choice for “Role”"),
        ({"a-TOTAL_FORMS": "x"}, "ManagementForm data is missing"),
        ({"p-TOTAL_FORMS": "100000"}, "at most 60 forms"),
    ],
)
def test_wrong_input_is_marked_and_nothing_is_saved(office, nova, changes, message):
    AccountMap.objects.create(account="novapool", experiment=nova)
    before = everything()
    page = check(office, **changes)
    assert page.status_code == 200
    assert message in text_of(page).replace("&#x27;", "'")
    assert "Nothing is saved. Correct" in text_of(page)
    assert page.context["checked"] == ""
    assert everything() == before


def test_problem_of_a_row_is_marked_at_the_row(office, nova):
    AccountMap.objects.create(account="novapool", experiment=nova)
    page = check(office, **{"a-0-name": "novapool", "p-0-username": "nobody-here", "p-1-email": ""})
    assert not page.context["form"].non_field_errors()
    (_, _, accounts), (_, _, people) = page.context["rows"]
    assert accounts.forms[0].errors["name"] == ["Account novapool belongs to NOvA."]
    for row, username in zip(people.forms, ("nobody-here", "new.person"), strict=False):
        [problem] = row.errors["username"]
        assert problem.startswith(f"There is no user {username}. ")


def test_key_that_another_admin_takes_at_the_same_time_is_reported(office, nova, dune, monkeypatch):
    checked, before = check(office).context["checked"], everything()

    def unaware(experiment, **_):
        Experiment.objects.get_or_create(key=experiment.key.lower(), defaults={"name": "Other"})

    monkeypatch.setattr(Experiment, "full_clean", unaware)
    page = office.post(ADDRESS, sent() | {"checked": checked})
    assert "An experiment has this key already" in text_of(page)
    monkeypatch.setattr(Experiment, "full_clean", lambda *_, **__: None)
    page = office.post(
        f"/admin/accounts/experiment/{dune.pk}/change/",
        {"key": "NOVA", "name": "DUNE"},
        follow=True,
    )
    assert "An experiment has this key already" in text_of(page)
    assert everything()[1:] == before[1:]
    assert sorted(Experiment.objects.values_list("key", flat=True)) == ["DUNE", "NOVA", "sbnd"]


def test_save_without_or_with_an_outdated_check_shows_the_effect_again(office, nova):
    before = everything()
    checked = check(office).context["checked"]
    for changes in ({"weight": "500"}, {"p-0-role": "admin"}, {f"weight-{nova.pk}": "1"}):
        page = office.post(ADDRESS, sent(**changes) | {"checked": checked})
        assert "have changed since the check" in text_of(page)
    office.post(
        "/requests/shares/",
        {"do": "save", "share-NOVA": "7", "share-DUNE": "100", "reason": "other"},
    )
    changed = everything()
    page = office.post(ADDRESS, sent() | {"checked": checked})
    assert "have changed since the check" in text_of(page)
    assert everything() == changed != before
    assert office.post(ADDRESS, sent() | {"checked": "x" * 64}).status_code == 200
    assert not Experiment.objects.filter(key="SBND").exists()


def test_failure_in_the_middle_leaves_nothing(office, monkeypatch):
    checked, before = check(office).context["checked"], everything()
    monkeypatch.setattr(
        "apps.jobs.domain.collection.experiment_setup.set_shares", lambda **_: 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        office.post(ADDRESS, sent() | {"checked": checked})
    assert everything() == before


def test_more_rows_keep_what_was_typed_and_mark_nothing(office):
    page = office.post(ADDRESS, sent(more="p", key="") | {"p-2-username": "third"})
    assert page.context["rows"][1][2].total_form_count() == 6
    assert page.context["rows"][0][2].total_form_count() == 3
    assert 'value="third"' in text_of(page)
    assert "is required" not in text_of(page)


@pytest.mark.parametrize("role", ["liaison", "shifter", "approver"])
def test_only_admins_set_up_experiments(client, role, nova, request):
    client.force_login(request.getfixturevalue(role))
    for answer in (client.get(ADDRESS), client.post(ADDRESS, sent())):
        assert answer.status_code == 302
        assert answer["Location"].startswith(reverse("admin:login"))
    assert Experiment.objects.count() == 1


def test_clerk_without_the_permission_is_refused(client, nova):
    clerk = people.person("clerk")
    User.objects.filter(pk=clerk.pk).update(is_staff=True)
    client.force_login(User.objects.get(pk=clerk.pk))
    assert (client.get(ADDRESS).status_code, client.post(ADDRESS, sent()).status_code) == (403, 403)


def test_a_removed_person_leaves_the_history_of_an_experiment(office, admin):
    save(office, **{"name": "new.person", "p-1-username": "new.person"})
    person = User.objects.get(username="new.person")
    remove_person(person, by=admin, at=timezone.now())

    experiment = Experiment.objects.get(key="SBND")
    changes = {change.field: change.new for change in history_of(experiment).entries[0].changes}
    assert changes["Approver"] == f"former-user-{person.pk}"
    assert changes["Liaison"] == "nova-liaison"
    assert changes["Name"] == "new.person"
