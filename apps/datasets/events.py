"""Events of datasets that are brought to disk for requests, or made of their files."""

from apps.core.domain.event_kinds import EventKind, declare

declare(
    EventKind(
        "staging.requested",
        "requested {dataset} on {storage}",
        "has an input dataset to be staged",
    ),
    EventKind(
        "staging.complete", "saw {dataset} on disk", "has an input dataset that is now on disk"
    ),
    EventKind(
        "staging.refused",
        "had the staging of {dataset} refused by the catalogue",
        "has an input dataset that cannot be staged",
    ),
    EventKind(
        "staging.overdue",
        "stopped waiting for {dataset}: it is not on disk by the deadline",
        "has an input dataset that is not on disk by the deadline",
    ),
    EventKind(
        "staging.cancelled",
        "stopped waiting for {dataset} to be on disk",
        "has an input dataset whose staging is no longer followed",
    ),
    EventKind(
        "making.requested",
        "had the dataset {dataset} made in {catalogue}",
        "has a dataset to be made of its files",
    ),
    EventKind("making.made", "made {dataset} in {catalogue}", "has a new dataset of its files"),
    EventKind(
        "making.refused",
        "had {dataset} refused by {catalogue}",
        "has a dataset that the catalogue refuses to make",
    ),
)
