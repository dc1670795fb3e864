"""The answers at the top of the home page."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.portal.pages.home_answers import MOST_BANDS, can_run, failures_by_hour
from apps.statusboard.domain.announcements import post_announcement
from apps.statusboard.domain.incidents import open_incident
from apps.statusboard.enums import State
from tests.factories.statusboard import service
from tests.pages import text_of


@pytest.fixture
def words(at, shifter, liaison, other_liaison):
    """Return what the page answers to a shifter and to the liaisons of NOvA and DUNE."""
    return lambda: [can_run(user=user, at=at).words for user in (shifter, liaison, other_liaison)]


def test_announcement_for_everybody_stops_all(at, shifter, words):
    post_announcement(title="Stop", by=shifter, at=at, do_not_submit=True)
    assert words() == ["No: do not submit"] * 3


def test_announcement_for_one_experiment_stops_only_that_one(at, shifter, dune, words):
    post_announcement(title="Stop", by=shifter, at=at, experiments=[dune], do_not_submit=True)
    assert words() == ["Yes, except jobs of DUNE", "Yes", "No: do not submit"]


def test_announcement_about_a_service_stops_what_needs_it(at, shifter, words):
    samweb = service("samweb", at)
    post_announcement(title="Stop", by=shifter, at=at, services=[samweb], do_not_submit=True)
    assert words() == ["Yes, except what needs samweb"] * 3


def test_reasons_of_both_kinds_are_named_together(at, shifter, dune, words):
    for name in ("a", "b", "c", "d"):
        open_incident(service=service(name, at), state=State.DOWN, title="503", by=shifter, at=at)
    post_announcement(title="Stop", by=shifter, at=at, experiments=[dune], do_not_submit=True)
    services = "what needs a, b, c and 1 more"
    assert words() == [f"Yes, except jobs of DUNE and {services}", f"Yes, except {services}", "No: do not submit"]


def test_chart_counts_the_outages_that_it_does_not_mark(shifter, client):
    now = timezone.now()
    for number in range(MOST_BANDS + 2):
        began_at = now - timedelta(hours=number + 1)
        open_incident(service=service(f"s{number}", began_at), state=State.DOWN, title="503", by=shifter, at=began_at)
    assert failures_by_hour(user=shifter, at=now).outages_left_out == 2
    client.force_login(shifter)
    assert "2 earlier outages not marked" in text_of(client.get("/"))
