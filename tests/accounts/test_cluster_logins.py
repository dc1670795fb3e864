"""Logins on the clusters are given by admins alone, and told."""

from django.urls import reverse

from apps.accounts.models import ClusterLogin
from apps.accounts.permissions import logins_of
from apps.core.models import Event
from tests.factories import people


def test_admin_gives_a_login(client, admin):
    ana = people.person("ana.smith")
    client.force_login(admin)
    address = reverse("admin:accounts_user_change", args=[ana.pk])
    data = {
        "username": "ana.smith",
        "is_active": "on",
        "cluster_logins-TOTAL_FORMS": 1,
        "cluster_logins-INITIAL_FORMS": 0,
        "cluster_logins-0-login": "ana",
        "cluster_logins-0-cluster": "alps",
        "cluster_logins-0-user": ana.pk,
    }

    assert client.post(address, data).status_code == 302

    assert logins_of(ana) == {("ana", "alps")}
    event = Event.objects.get(kind="account.logins_changed")
    assert (event.target_id, event.data) == (str(ana.pk), {"logins": ["ana on alps"]})


def test_login_of_an_inactive_user_or_stranger_counts_for_nothing(db):
    ana = people.person("ana.smith")
    ClusterLogin.objects.create(user=ana, login="ana")
    ana.is_active = False

    assert logins_of(ana) == frozenset()
    assert logins_of(None) == frozenset()
