"""Publishes a month, also as a program that may be killed: JSON has its store and the files."""

import json
import os
import signal
import sys
from datetime import date
from pathlib import Path

from apps.jobs.domain.months.stores.base import Content, Manifest, file_name, sha256_of
from apps.jobs.domain.months.stores.directory import Directory

MARCH = date(2026, 3, 1)


def publish(store, contents, month=MARCH):
    """Store a month of these files, by table."""
    new = store.new_directory(month)
    tables = {}
    for table, content in contents.items():
        path = new / file_name(table)
        path.write_text(content)
        tables[table] = Content(len(content), "", sha256_of(path))
    manifest = Manifest(f"{month:%Y-%m}", "2026-06-10", tables, {"a.b": [(1, 2)]})
    store.put_in_place(month, new, manifest)
    return manifest


def open_store(values):
    """Return the store of these values."""
    if "directory" in values:
        return Directory(Path(values["directory"]))
    # pyarrow takes a second.
    from apps.core.http.bucket_url import ObjectStoreURL
    from apps.jobs.domain.months.stores.bucket import BucketTarget
    from apps.jobs.domain.months.stores.object_store import ObjectStore

    target = BucketTarget(ObjectStoreURL.parse(values["url"]), *values["keys"])
    return ObjectStore(target, local=Path(values["local"]), max_bytes=1 << 20)


def kill_before_change(number):
    """Kill this process instead of the nth change of a directory, from 0."""
    changes = 0

    def look(event, arguments):
        nonlocal changes
        if event in {"os.rename", "os.remove", "os.rmdir", "os.mkdir"}:
            if changes == number:
                os.kill(os.getpid(), signal.SIGKILL)
            changes += 1

    sys.addaudithook(look)


if __name__ == "__main__":
    values = json.loads(sys.argv[1])
    store = open_store(values)
    if "directory" in values:
        kill_before_change(values["number"])
    publish(store, values["contents"])
