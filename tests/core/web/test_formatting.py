"""How values are written."""

import re
from datetime import UTC, date, datetime, timedelta

import pytest
import time_machine
from django import forms
from django.utils import timezone

from apps.core.web.templatetags import formatting


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (10_620, "2 h 57 min"),
        (172_800, "2 days"),
        (-5, "0 s"),
    ],
)
def test_duration(seconds, text):
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (date(2026, 3, 7), "7 Mar"), (date(2028, 3, 17), "17 Mar 2028")],
)
def test_day_has_its_year_only_if_it_is_another_one(value, text):
    with time_machine.travel(datetime(2026, 11, 30, tzinfo=UTC)):
        assert formatting.day(value) == text


def test_duration_of_timedelta():
    assert formatting.duration(timedelta(minutes=41)) == "41 min"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (3_100_000_000, "3.1 GB"),
        (1_500, "1.5 kB"),
        (2 * 10**17, "200 PB"),
    ],
)
def test_size(count, text):
    assert formatting.size(count) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (12_345, "12,345"), (0, "0")])
def test_number(value, text):
    assert formatting.number(value) == text


@time_machine.travel(datetime(2026, 11, 20, 20, 0, tzinfo=UTC), tick=False)
@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime(2026, 11, 20, 9, 12, tzinfo=UTC), "10:12"),
        (datetime(2026, 11, 19, 23, 30, tzinfo=UTC), "00:30"),
        (datetime(2026, 11, 19, 9, 12, tzinfo=UTC), "Thu 19 Nov 10:12"),
        (datetime(2025, 11, 20, 9, 12, tzinfo=UTC), "Thu 20 Nov 2025 10:12"),
    ],
)
def test_when_is_in_the_readers_zone(at, text):
    with timezone.override("Europe/Paris"):
        shown = formatting.when(at)
    assert f">{text}</time>" in shown
    assert 'title="' in shown
    assert "CET" in shown


@time_machine.travel(datetime(2026, 11, 20, 20, 0, tzinfo=UTC), tick=False)
@pytest.mark.parametrize(
    ("at", "text"),
    [
        (None, ""),
        (date(2026, 12, 24), "24 Dec"),
        (date(2030, 10, 18), "18 Oct 2030"),
        (datetime(2026, 12, 31, 23, 30, tzinfo=UTC), "1 Jan 2027"),
    ],
)
def test_day_of_another_year_has_its_year(at, text):
    with timezone.override("Europe/Paris"):
        assert formatting.day(at) == text


def test_period_tells_one_day_once():
    def shown(start, end):
        with (
            timezone.override("Europe/Paris"),
            time_machine.travel(datetime(2026, 11, 20, 20, 0, tzinfo=UTC)),
        ):
            return re.sub("<[^>]*>", "", formatting.period(start, end))

    start = datetime(2026, 11, 19, 9, 12, tzinfo=UTC)
    assert shown(start, start + timedelta(hours=3)) == "Thu 19 Nov 10:12 – 13:12"
    assert shown(start, start + timedelta(hours=40)) == "Thu 19 Nov 10:12 – Sat 21 Nov 02:12"
    assert shown(start, start + timedelta(hours=20)) == "Thu 19 Nov 10:12 – Fri 20 Nov 06:12"
    assert shown(start, None) == "Thu 19 Nov 10:12 – now"


def test_instants_in_a_text_are_in_the_readers_zone_and_the_rest_is_escaped():
    with (
        timezone.override("Europe/Paris"),
        time_machine.travel(datetime(2026, 11, 20, 20, 0, tzinfo=UTC)),
    ):
        told = formatting.instants(
            "<b> down 2026-11-19T09:12Z to 2026-11-19T10:00Z, 2026-02-31T10:00Z"
        )
    assert (
        re.sub("<[^>]*>", "", told) == "&lt;b&gt; down Thu 19 Nov 10:12 to 11:00, 2026-02-31T10:00Z"
    )


def test_state_is_word_sign_and_escaped():
    assert formatting.state("down") == '<span class="state down">down</span>'
    assert (
        formatting.state("changes_requested")
        == '<span class="state waiting">changes requested</span>'
    )
    assert formatting.state("<b>") == '<span class="state unknown">&lt;b&gt;</span>'


@pytest.mark.parametrize("at", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
@pytest.mark.parametrize("zone", ["America/Chicago", "Pacific/Kiritimati"])
def test_first_and_last_hours_of_all_time_can_be_written(at, zone):
    with timezone.override(zone):
        assert str(at.year) in formatting.when(at)


def test_the_label_of_a_time_says_the_zone():
    class Away(forms.Form):
        until = forms.DateTimeField()
        name = forms.CharField()

    with timezone.override("America/Sao_Paulo"):
        shown = [formatting.field_box(field) for field in Away()]
    assert "Until <small>America/Sao_Paulo</small></label>" in shown[0]
    assert "<small>" not in shown[1]


def test_hidden_characters_are_shown_by_their_code_points():
    shown = formatting.visible("a<b>\x1b[31m \u202eevil\u200b\t\nend")
    assert shown == (
        'a&lt;b&gt;<span class="hidden-char" title="">U+001B</span>[31m '
        '<span class="hidden-char" title="RIGHT-TO-LEFT OVERRIDE">U+202E</span>evil'
        '<span class="hidden-char" title="ZERO WIDTH SPACE">U+200B</span>\t\nend'
    )
    assert formatting.visible_text("a\r\ud800b") == "a⟨U+000D⟩⟨U+D800⟩b"
    assert (
        formatting.visible("é – 漢字 😀") == formatting.visible_text("é – 漢字 😀") == "é – 漢字 😀"
    )


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("Europe/Berlin", "Europe/Berlin, UTC+1"),
        ("America/St_Johns", "America/St_Johns, UTC-3:30"),
        ("Asia/Kolkata", "Asia/Kolkata, UTC+5:30"),
        ("UTC", "UTC"),
    ],
)
def test_page_says_the_zone_of_its_times(zone, text):
    with time_machine.travel(datetime(2026, 11, 20, 12, tzinfo=UTC)), timezone.override(zone):
        assert formatting.page_zone() == text


def test_period_that_is_not_over_ends_now():
    now = timezone.now()
    assert formatting.reached(now - timedelta(seconds=1)) == now - timedelta(seconds=1)
    assert formatting.reached(now + timedelta(hours=1)) is None
    assert formatting.period(now, formatting.reached(now + timedelta(hours=1))).endswith("– now")
