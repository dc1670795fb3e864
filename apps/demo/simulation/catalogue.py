"""The demo's dataset catalogue in the format of the built-in catalogue; some datasets grow."""

import json
from pathlib import Path
from typing import Any

import yaml

from apps.demo.simulation.world import DAY, HOUR, replace_file

#: How far back the files of a growing dataset go when the catalogue is first written.
_HOURS_BEFORE = 12
#: Older files are removed, so that the catalogue of a long-running demo stays small.
_LONGEST_DAYS = 30
_HOURS_PER_RUN = 3
_FILE_BYTES = 4_000_000_000
_DATASETS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())[
    "datasets"
]


def write_catalogue(path: Path, now: float) -> None:
    """Write the catalogue as of `now`, in seconds since the epoch.

    Files that were listed before are kept for a month.
    """
    content = json.loads(path.read_text()) if path.exists() else {}
    since = content.get("since", int(now) - _HOURS_BEFORE * HOUR)
    since = max(since, int(now) - _LONGEST_DAYS * DAY)
    datasets = []
    for dataset in _DATASETS:
        if "files_per_hour" in dataset:
            datasets.append(_grown(dataset, since, now))
        elif "listed" in dataset:
            datasets.append(_listed(dataset))
        else:
            datasets.append(dataset)
    replace_file(path, json.dumps({"since": since, "datasets": datasets}).encode())


def _listed(dataset: dict[str, Any]) -> dict[str, Any]:
    """Return a dataset with all of its files, which have equal numbers of events."""
    count = dataset["listed"]
    files = []
    for number in range(count):
        name = f"{dataset['name']}_{number:04d}.root"
        events = dataset["events"] // count
        files.append({"name": name, "events": events, "size_bytes": _FILE_BYTES})
    return {
        "name": dataset["name"],
        "files": count,
        "events": dataset["events"],
        "size_bytes": count * _FILE_BYTES,
        "file_list": files,
    }


def _grown(dataset: dict[str, Any], since: int, now: float) -> dict[str, Any]:
    """Return a dataset with the files written between two moments."""
    name = dataset["name"]
    seconds = HOUR // dataset["files_per_hour"]
    first = since // seconds + 1
    after_last = int(now) // seconds + 1
    files = []
    for number in range(first, after_last):
        run = number * seconds // (_HOURS_PER_RUN * HOUR)
        files.append({"name": f"{name}_r{run:06d}_{number:08d}.raw", "run": run})
    return {
        "name": name,
        "files": len(files),
        "size_bytes": len(files) * _FILE_BYTES,
        "file_list": files,
    }
