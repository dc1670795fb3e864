"""What a retry requests that the failed attempt did not: memory, time, hosts, cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class ResourceChanges:
    """Changed resources of a retry. Zero and empty mean: as the stage requests.

    `memory_bytes` and `time_limit_seconds` replace the values of the stage; the retry does not
    start on `avoided_hosts`. It runs on the cluster named `cluster` instead of that of the failed
    attempt. It produces one part of `events_part` of the events of its job; the others are missing.
    """

    memory_bytes: int = 0
    time_limit_seconds: int = 0
    avoided_hosts: tuple[str, ...] = ()
    cluster: str = ""
    events_part: int = 0

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "ResourceChanges":
        """Return the changes that `as_stored` returned."""
        return cls(
            memory_bytes=stored.get("memory_bytes", 0),
            time_limit_seconds=stored.get("time_limit_seconds", 0),
            avoided_hosts=tuple(stored.get("avoided_hosts", ())),
            cluster=stored.get("cluster", ""),
            events_part=stored.get("events_part", 0),
        )

    def as_stored(self) -> dict[str, Any]:
        """Return the changed values by name, for a JSON field."""
        values = {
            "memory_bytes": self.memory_bytes,
            "time_limit_seconds": self.time_limit_seconds,
            "avoided_hosts": list(self.avoided_hosts),
            "cluster": self.cluster,
            "events_part": self.events_part,
        }
        return {name: value for name, value in values.items() if value}

    def as_requested(self) -> dict[str, Any]:
        """Return the changed values that are requested of a scheduler, by name."""
        return replace(self, cluster="", events_part=0).as_stored()

    def without_reductions(
        self, *, memory_bytes: int, time_limit_seconds: int
    ) -> "ResourceChanges":
        """Return the changes without memory and time that do not exceed those of the stage."""
        return replace(
            self,
            memory_bytes=self.memory_bytes if self.memory_bytes > memory_bytes else 0,
            time_limit_seconds=(
                self.time_limit_seconds if self.time_limit_seconds > time_limit_seconds else 0
            ),
        )

    def combined_with(self, earlier: "ResourceChanges") -> "ResourceChanges":
        """Return the changes of a retry of a retry, which had the `earlier` changes.

        It never gets fewer resources than before, nor more events. Schedulers do not know the hosts
        of other clusters, so avoided hosts of the earlier attempt count only on its cluster.
        """
        hosts = set(self.avoided_hosts)
        if not self.cluster:
            hosts.update(earlier.avoided_hosts)
        return ResourceChanges(
            memory_bytes=max(self.memory_bytes, earlier.memory_bytes),
            time_limit_seconds=max(self.time_limit_seconds, earlier.time_limit_seconds),
            avoided_hosts=tuple(sorted(hosts)),
            cluster=self.cluster,
            events_part=max(self.events_part, earlier.events_part),
        )


NO_CHANGES = ResourceChanges()
