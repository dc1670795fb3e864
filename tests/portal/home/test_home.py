"""Home, and what is on every page."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Collection
from apps.statusboard.domain.incidents.incidents import close_incident, open_incident
from apps.statusboard.enums import State
from opsportal.version import VERSION
from tests.factories import statusboard
from tests.factories.jobs import failed, record, store
from tests.pages import count_queries, page_of
from tests.portal.shared_world import (
    approver,
    dune,
    liaison,
    nova,
    now,
    shared_world,
    shifter,
    world,
)

__all__ = ["approver", "dune", "liaison", "nova", "now", "shared_world", "shifter", "world"]


def test_home_claims_nothing_of_jobs_to_who_has_no_role(world, client, shifter, django_user_model):
    page = page_of(client, django_user_model.objects.create_user("newcomer"), "/")
    assert "You have no role yet." in page
    assert "No job failed" not in page
    assert "No approved requests" not in page
    assert ">0</td>" not in page
    assert "You have no role yet." not in page_of(client, shifter, "/")


@pytest.mark.parametrize("name", ["", "Lab login"])
def test_home_says_where_roles_come_from(world, client, django_user_model, settings, name):
    """Of a user of single sign-on whose groups give none."""
    settings.SSO_ROLES = {"/nova/liaisons": ["liaison:NOVA"]}
    settings.OIDC_ISSUER, settings.OIDC_NAME = "https://sso.example.org" if name else "", name
    settings.SUPPORT_CONTACT = "ops@example.org"
    page = " ".join(page_of(client, django_user_model.objects.create_user("newcomer"), "/").split())
    where = " at Lab login" if name else ""
    assert f"Roles come from your groups{where}, and none of yours gives one." in page
    assert "Ask an admin which group you need: ops@example.org" in page

    local = django_user_model.objects.create_user("local", password="correct horse battery")
    page = page_of(client, local, "/")
    assert "Ask an admin for one." in page
    assert "Roles come from your groups" not in page


def test_home_counts_what_failed_and_links_to_it(world, now, client, shifter):
    page = page_of(client, shifter, "/")
    assert "1 of 1 jobs" in page
    link = page[page.index('href="/failures/jobs/') + 6 :].split('"')[0].replace("&amp;", "&")
    assert "4711" in page_of(client, shifter, link)


def test_home_counts_the_jobs_that_a_service_hit_today_and_links_to_them(
    world, now, client, shifter, other_liaison
):
    page = page_of(client, shifter, "/")
    services = page[page.index('id="services"') :]
    link = services[services.index('href="/failures/jobs/') + 6 :]
    assert link.split(">")[1] == "1 job</a"
    assert "4711" in page_of(client, shifter, link.split('"')[0].replace("&amp;", "&"))
    assert 'href="/failures/jobs/?service' not in page_of(client, other_liaison, "/")


def test_home_says_how_many_have_no_verdict_yet(world, now, client, shifter):
    store(world.job.cluster, failed(5, ended_at=world.job.ended_at), record(6))
    recompute_dirty_hours(at=world.job.ended_at)
    page = page_of(client, shifter, "/")
    assert "2 of 3 jobs" in page
    assert "Logs are being read" in page


def test_home_shows_a_liaison_only_the_own_experiment(world, now, client, other_liaison, liaison):
    assert "No job failed in the last 24 hours. 0 finished." in page_of(client, other_liaison, "/")
    assert "1 of 1 jobs" in page_of(client, liaison, "/")


def test_home_says_until_when_its_jobs_are_counted(world, now, client, shifter, at):
    Collection.objects.update(collected_until=timezone.now())
    assert "jobs as of" not in page_of(client, shifter, "/")
    Collection.objects.update(collected_until=timezone.now() - timedelta(minutes=5))
    assert page_of(client, shifter, "/").count("jobs as of") == 1


def test_home_asks_no_more_for_more_services(world, client, shifter, at):
    client.force_login(shifter)
    count_queries(client, "/")
    before = count_queries(client, "/")
    for name in ("dcache", "cvmfs", "condb"):
        service = statusboard.service(name, at - timedelta(days=2))
        open_incident(service=service, state=State.DEGRADED, title="slow", by=shifter, at=at)
    assert count_queries(client, "/") == before


def test_every_page_shows_the_version_at_its_foot(world, client, shifter):
    foot = f'<footer class="foot">opsportal {VERSION}'
    assert foot in client.get("/accounts/login/").content.decode()
    assert foot in page_of(client, shifter, "/")


def test_strip_speaks_on_every_page_only_while_something_is_wrong(world, now, client, shifter, at):
    assert '<b class="s-down">1 down</b>' in page_of(client, shifter, "/accounts/settings/")
    close_incident(incident=world.incident, by=shifter, at=at, reason="back")
    assert 'class="alerts"' not in page_of(client, shifter, "/accounts/settings/")


@pytest.mark.parametrize("name", ["liaison", "approver", "shifter", "admin", "newcomer"])
def test_every_link_that_home_and_the_search_offer_opens(
    world, client, request, django_user_model, name
):
    made = {"newcomer": lambda: django_user_model.objects.create_user("newcomer")}
    user = made[name]() if name in made else request.getfixturevalue(name)
    links = set(re.findall(r'href="(/[^"#]*)', page_of(client, user, "/"))) - {"/accounts/logout/"}
    links = {link.replace("&amp;", "&") for link in links if not link.startswith("/static/")}
    assert "/requests/queue/" in links
    assert ("/requests/start/" in links) == (name == "liaison")
    assert [link for link in links if client.get(link, follow=True).status_code != 200] == []
