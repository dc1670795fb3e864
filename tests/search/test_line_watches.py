"""Watches of lines: who is notified when a job writes a line again, and how often."""

import random
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.core.errors import InvalidFields
from apps.core.models import Event
from apps.search.domain import line_watches
from apps.search.domain.line_watches import (
    is_watched,
    unwatch_line,
    watch_line,
    watches_of,
    with_texts,
)
from apps.search.domain.templates import LogTemplates, store_templates
from apps.search.models import LineTemplate, LineWatch
from tests.factories import people
from tests.search.test_templates import AT, _job, _lines, hash_of

pytestmark = pytest.mark.django_db
LINE = "error: no disk"
NUMBER = hash_of(LINE)


def minutes(number: float) -> datetime:
    return AT + timedelta(minutes=number)


def store(number: int, *, ended: float, read: float | None = None, experiment=None, text=LINE):
    """Store a log with the line of a job that ended and was read at these minutes."""
    job = _job(
        number,
        experiment=experiment or people.nova(),
        state=JobState.FAILED,
        ended_at=minutes(ended),
    )
    at = minutes(ended if read is None else read)
    store_templates([LogTemplates(job, _lines(text, "start"))], at=at)
    return job


def notified() -> list[tuple[list[str], str]]:
    """Return whom the events about watched lines name, and the experiment of the line."""
    rows = []
    for event in Event.objects.filter(kind="line.seen").order_by("pk"):
        template = LineTemplate.objects.get(pk=event.target_id)
        rows.append((event.data["mentioned"], template.experiment.key))
    return rows


@pytest.fixture
def watcher() -> User:
    store(1, ended=0)
    user = people.person("watcher", ("liaison", people.nova()))
    watch_line(user=user, line_hash=NUMBER, at=minutes(5))
    return user


def test_watcher_is_notified_of_jobs_that_end_later_once_an_hour(watcher) -> None:
    store(2, ended=4, read=10)  # ended before the watch
    store(3, ended=8, text="error: other")
    assert notified() == []
    store(4, ended=10)
    assert notified() == [(["watcher"], "NOVA")]
    store(5, ended=30)
    store(6, ended=69)
    assert len(notified()) == 1
    store(7, ended=70)
    assert len(notified()) == 2


def test_log_that_is_read_again_is_not_news(watcher) -> None:
    job = store(2, ended=10)
    later = minutes(200)
    store_templates([LogTemplates(job, _lines(LINE, "end"))], at=later)
    assert len(notified()) == 1
    store(3, ended=9, read=210)  # of a job before the last one that was reported
    assert len(notified()) == 1


def test_watchers_learn_of_jobs_that_they_may_see_now(watcher) -> None:
    dune = people.dune()
    everything = people.person("everything", ("shifter", None))
    watch_line(user=everything, line_hash=NUMBER, at=minutes(5))
    store(2, ended=10, experiment=dune)
    assert notified() == [(["everything"], "DUNE")]
    watcher.memberships.all().delete()
    store(3, ended=100)
    assert notified()[1:] == [(["everything"], "NOVA")]
    User.objects.filter(pk=everything.pk).update(is_active=False)
    store(4, ended=200)
    assert len(notified()) == 2


def test_watchers_of_one_line_share_an_event(watcher) -> None:
    other = people.person("other", ("liaison", people.nova()))
    watch_line(user=other, line_hash=NUMBER, at=minutes(6))
    store(2, ended=10)
    assert notified() == [(["watcher", "other"], "NOVA")]


def test_event_is_stored_with_the_log_or_not_at_all(watcher, monkeypatch) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("no events today")

    monkeypatch.setattr(line_watches, "publish", fail)
    with pytest.raises(RuntimeError):
        store(2, ended=10)
    assert LineWatch.objects.get().notified_at is None


def test_only_lines_that_the_user_may_see_can_be_watched() -> None:
    store(1, ended=0)
    stranger = people.person("stranger", ("liaison", people.dune()))
    for number in (NUMBER, hash_of("nobody wrote this")):
        with pytest.raises(InvalidFields):
            watch_line(user=stranger, line_hash=number, at=AT)
    assert not LineWatch.objects.exists()


def test_watch_is_made_once_removed_and_limited(watcher, monkeypatch) -> None:
    first = watches_of(watcher).get()
    assert watch_line(user=watcher, line_hash=NUMBER, at=minutes(50)) == first
    assert with_texts([first], user=watcher)[0].text == LINE
    monkeypatch.setattr(line_watches, "MOST_WATCHES", 1)
    with pytest.raises(InvalidFields, match="Remove a watch first"):
        watch_line(user=watcher, line_hash=hash_of("start"), at=AT)
    assert is_watched(user=watcher, line_hash=NUMBER)
    unwatch_line(user=watcher, line_hash=NUMBER)
    unwatch_line(user=watcher, line_hash=NUMBER)
    assert not is_watched(user=watcher, line_hash=NUMBER)
    store(2, ended=10)
    assert notified() == []


def test_text_of_a_line_is_gone_with_the_role(watcher) -> None:
    watcher.memberships.all().delete()
    user = User.objects.get(pk=watcher.pk)
    (line,) = with_texts(watches_of(user), user=user)
    assert line.text == ""


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_logs_notifies_once_an_hour_and_never_of_old_jobs(seed: int) -> None:
    """Logs are read late, out of order and again; two users watch since different times."""
    chooser = random.Random(seed)
    store(0, ended=0)
    created = {"early": 10, "late": 200}
    reads = sorted(chooser.randrange(11, 700) for _ in range(25))
    stored = []
    watching: list[str] = []
    for number, read in enumerate(reads, start=1):
        for name, minute in created.items():
            if name not in watching and minute <= read:
                user = people.person(name, ("liaison", people.nova()))
                watch_line(user=user, line_hash=NUMBER, at=minutes(minute))
                watching.append(name)
        ended = chooser.randrange(max(0, read - 150), read)
        store(number, ended=ended, read=read)
        stored.append((read, ended))

    times: dict[str, list[datetime]] = {name: [] for name in created}
    for event in Event.objects.filter(kind="line.seen").order_by("pk"):
        for name in event.data["mentioned"]:
            times[name].append(event.at)
    for name, moments in times.items():
        assert moments
        gaps = [later - first for first, later in pairwise(moments)]
        assert all(gap >= line_watches.PAUSE for gap in gaps)
        newest = created[name]
        for read, ended in stored:
            is_quiet = all(
                not moment <= minutes(read) < moment + line_watches.PAUSE for moment in moments
            )
            # Whoever was not notified within the hour had no reason to be.
            assert not (is_quiet and read >= created[name] and ended > newest)
            if minutes(read) in moments:
                newest = max(newest, ended)
