"""What both stores of archived months do: a directory, and a bucket of a real S3 server."""

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from apps.jobs.domain.months.stores.base import BadArchive
from apps.jobs.domain.months.stores.directory import Directory
from apps.jobs.domain.months.stores.object_store import ObjectStore
from tests.jobs.months.publish import MARCH, publish
from tests.programs.s3_server import WatchedRelay

pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("s3")]

ROOT = Path(__file__).parents[3]
FEBRUARY = date(2026, 2, 1)
FORMER = {"jobs_job": "first", "diagnosis_verdict": "the same"}
NEW = {"jobs_job": "second", "diagnosis_verdict": "other"}


class InDirectory:
    def __init__(self, tmp_path):
        self.root = tmp_path / "months"
        self.store = Directory(self.root)
        self.values = {"directory": str(self.root)}

    def stored(self):
        """The paths of all that the store has, by name."""
        paths = (path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path for path in paths}


class InBucket:
    def __init__(self, s3, tmp_path):
        self.s3, self.url = s3, s3.new_url()
        local = tmp_path / "cache"
        self.store = ObjectStore(s3.target(self.url), local=local, max_bytes=1 << 20)
        self.values = {
            "url": self.url,
            "keys": [s3.access_key, s3.secret_key],
            "local": str(tmp_path / "other"),
        }

    def stored(self):
        return self.s3.objects(self.url)


@pytest.fixture(params=["directory", "bucket"])
def place(request, tmp_path):
    if request.param == "directory":
        return InDirectory(tmp_path)
    return InBucket(request.getfixturevalue("s3"), tmp_path)


def read(store, month=MARCH):
    """Return all files of a month, by table."""
    with store.files(month, store.read_manifest(month).tables) as paths:
        return {table: path.read_text() for table, path in paths.items()}


def test_month_is_read_as_it_was_written_until_it_is_replaced_or_deleted(place):
    store = place.store
    assert store.months() == []
    manifest = publish(store, FORMER)
    publish(store, {"jobs_job": "of February"}, FEBRUARY)
    assert store.months() == [FEBRUARY, MARCH]
    assert store.read_manifest(MARCH) == manifest
    store.verify(MARCH, manifest)
    assert read(store) == FORMER
    with store.files(MARCH, ["jobs_job", "unknown"], seconds=20) as paths:
        assert {table: path.read_text() for table, path in paths.items()} == {"jobs_job": "first"}

    publish(store, NEW)
    assert read(store) == NEW
    assert len(place.stored()) == 5  # nothing is left of the former month
    publish(store, {"jobs_job": "second"})
    assert read(store) == {"jobs_job": "second"}

    store.delete(MARCH)
    store.delete(MARCH)
    assert store.months() == [FEBRUARY]
    assert read(store, FEBRUARY) == {"jobs_job": "of February"}
    with pytest.raises(BadArchive, match="2026-03"):
        store.read_manifest(MARCH)
    assert len(place.stored()) == 2


@pytest.mark.parametrize("harm", ["changed", "missing", "no manifest", "bad manifest"])
def test_harm_is_named(place, harm):
    manifest = publish(place.store, FORMER)
    (name,) = [name for name in place.stored() if "diagnosis_verdict" in name]
    path = place.stored()["2026-03/month.json" if "manifest" in harm else name]
    if harm in {"changed", "bad manifest"}:
        path.write_text("changed" if harm == "changed" else "[]")
    else:
        path.unlink()

    def examine():
        place.store.verify(MARCH, manifest)
        place.store.read_manifest(MARCH)

    with pytest.raises(BadArchive, match="2026-03") as error:
        examine()
    if "manifest" not in harm:
        assert "diagnosis_verdict" in str(error.value)


def test_damaged_copy_is_fetched_again(s3, tmp_path):
    place = InBucket(s3, tmp_path)
    publish(place.store, FORMER)
    with place.store.files(MARCH, ["jobs_job"]) as paths:
        path = paths["jobs_job"]
    path.write_text("damaged")
    assert read(place.store) == FORMER


def test_probe_leaves_nothing(place):
    publish(place.store, FORMER)
    before = place.stored().keys()
    place.store.probe()
    assert place.stored().keys() == before


@pytest.fixture
def watched(s3):
    """Return the port of a relay to the server, which shows each request."""
    relays = []

    def start(watch):
        relays.append(WatchedRelay(s3.port, watch))
        return relays[-1].port

    yield start
    for relay in relays:
        relay.close()


def test_reader_of_a_month_that_is_replaced_meanwhile_gets_the_new_one(s3, tmp_path, watched):
    place = InBucket(s3, tmp_path)
    publish(place.store, FORMER)

    def replace(request):
        if request.startswith(b"HEAD ") and b"jobs_job" in request and read(place.store) == FORMER:
            publish(place.store, NEW)
        return True

    url = place.url.replace(str(s3.port), str(watched(replace)))
    reader = ObjectStore(s3.target(url), local=tmp_path / "reader", max_bytes=1 << 20)
    with reader.files(MARCH, ["jobs_job"]) as paths:
        assert paths["jobs_job"].read_text() == NEW["jobs_job"]


def killed(place, watched, number):
    """Return whether a process that publishes NEW was killed before so many changes."""
    values = {**place.values, "contents": NEW, "number": number}
    changes = 0

    def kill(request):
        nonlocal changes
        if request.startswith((b"PUT ", b"POST ", b"DELETE ")):
            if changes == number:
                process.kill()
                return False
            changes += 1
        return True

    if "url" in values:
        values["url"] = values["url"].replace(str(place.s3.port), str(watched(kill)))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.jobs.months.publish", json.dumps(values)], cwd=ROOT
    )
    process.communicate(timeout=120)
    assert process.returncode in {0, -9}
    return process.returncode == -9


def test_kill_at_any_change_leaves_a_whole_month_and_the_next_run_finishes(place, watched):
    publish(place.store, FORMER)
    seen = []
    for number in range(30):
        is_killed = killed(place, watched, number)
        seen.append(read(place.store))
        place.store.verify(MARCH, place.store.read_manifest(MARCH))
        assert place.store.months() == [MARCH]
        if not is_killed:
            break
    # Once the new month is there, another run replaces it by the same.
    first_new = seen.index(NEW)
    assert first_new >= 3
    assert seen == [FORMER] * first_new + [NEW] * (len(seen) - first_new)
    assert len(place.stored()) == 3
