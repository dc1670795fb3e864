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
from tests.programs.s3_server import KillingRelay

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
def relay(s3):
    relay = KillingRelay(s3.port)
    yield relay
    relay.close()


def killed(place, relay, number):
    """Return whether a process that publishes NEW was killed before so many changes."""
    values = {**place.values, "contents": NEW, "number": number}
    if "url" in values:
        values["url"] = values["url"].replace(str(relay._target[1]), str(relay.port))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.jobs.months.publish", json.dumps(values)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
    )
    relay.pid, relay.changes_left = process.pid, number
    process.communicate(b"\n", timeout=120)
    assert process.returncode in {0, -9}
    return process.returncode == -9


def test_kill_at_any_change_leaves_a_whole_month_and_the_next_run_finishes(place, relay):
    publish(place.store, FORMER)
    seen = []
    for number in range(30):
        is_killed = killed(place, relay, number)
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
