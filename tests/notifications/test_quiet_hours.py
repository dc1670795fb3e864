"""Quiet hours and digests, also on the days when clocks change."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.notifications.domain.quiet_hours import Hours

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/Chicago", "Asia/Kathmandu", "Australia/Lord_Howe"]
).map(ZoneInfo)
# Around both changes of the clocks of 2026 in Europe and North America.
MOMENTS = st.one_of(
    st.integers(0, 4 * 24 * 60).map(
        lambda minutes: datetime(2026, 3, 27, tzinfo=UTC) + timedelta(minutes=minutes)
    ),
    st.integers(0, 11 * 24 * 60).map(
        lambda minutes: datetime(2026, 10, 23, tzinfo=UTC) + timedelta(minutes=minutes)
    ),
)
TIMES = st.none() | st.times().map(lambda clock: clock.replace(second=0, microsecond=0))


@settings(max_examples=300, deadline=None)
@given(ZONES, TIMES, TIMES, MOMENTS)
def test_what_is_allowed_is_not_quiet_and_not_far(zone, start, end, at):
    hours = Hours(zone, 8, start, end)
    allowed = hours.allowed(at)
    assert at <= allowed <= at + timedelta(hours=26)
    assert not hours.is_quiet(allowed)
    assert hours.allowed(allowed) == allowed
    if not hours.is_quiet(at):
        assert allowed == at


@settings(max_examples=200, deadline=None)
@given(ZONES, st.integers(0, 23), MOMENTS)
def test_digest_comes_within_a_day_at_its_hour(zone, hour, at):
    digest = Hours(zone, hour).next_digest(at)
    assert at < digest <= at + timedelta(hours=25)
    local = digest.astimezone(zone)
    assert local.hour == hour or local.date() in {date(2026, 3, 29), date(2026, 10, 4)}


@pytest.mark.parametrize(
    ("at", "allowed"),
    [
        ("2026-11-20T21:59", "2026-11-20T21:59"),
        ("2026-11-20T22:00", "2026-11-21T06:30"),
        ("2026-11-21T06:29", "2026-11-21T06:30"),
        ("2026-11-21T06:30", "2026-11-21T06:30"),
    ],
)
def test_night(at, allowed):
    hours = Hours(BERLIN, 8, time(22), time(6, 30))
    allowed_at = hours.allowed(datetime.fromisoformat(at).replace(tzinfo=BERLIN))
    assert allowed_at == datetime.fromisoformat(allowed).replace(tzinfo=BERLIN)


def test_digest_in_quiet_hours_comes_at_their_end():
    hours = Hours(BERLIN, 5, time(22), time(7))
    digest = hours.next_digest(datetime(2026, 11, 20, 12, tzinfo=UTC))
    assert digest == datetime(2026, 11, 21, 7, tzinfo=BERLIN)
