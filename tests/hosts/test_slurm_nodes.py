"""Nodes as `scontrol show nodes --oneliner` prints them, with states, reasons and boots."""

from datetime import UTC, datetime

import pytest

from apps.clusters.schedulers.base import HostState
from apps.clusters.schedulers.slurm.nodes import hosts, read_state

#: Of Slurm 22.05, shortened, with SLURM_TIME_FORMAT=%s.
NODES = (
    "NodeName=wn1 Arch=x86_64 CPUTot=16 ActiveFeatures=(null) NodeAddr=127.0.0.1 RealMemory=24105 "
    "State=IDLE ThreadsPerCore=1 Partitions=batch BootTime=1795208838 SlurmdStartTime=1795214451 \n"
    "NodeName=wn2 CPUTot=16 NodeAddr=127.0.0.1 RealMemory=24105 State=DOWN*+DRAIN BootTime=None "
    "CfgTRES=cpu=16 Reason=disk\x0bNodeName=wn9 State=IDLE [x@y] [root@1795214000] Comment=none\n"
)


class Printed:
    """Commands that print one text."""

    def run(self, *command):
        return NODES


def test_nodes_have_state_reason_and_boot():
    first, second = hosts(Printed(), {})
    assert (first.name, first.state, first.state_words, first.reason) == (
        *("wn1", HostState.UP, "IDLE", ""),
    )
    assert first.booted_at == datetime.fromtimestamp(1795208838, UTC)
    assert (second.name, second.state, second.state_words) == (
        *("wn2", HostState.DOWN, "DOWN*+DRAIN"),
    )
    assert second.booted_at is None
    assert second.reason == "disk\x0bNodeName=wn9 State=IDLE [x@y]"


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("IDLE", "up"),
        ("ALLOCATED", "up"),
        ("MIXED+PLANNED", "up"),
        ("IDLE+DRAIN", "drained"),
        ("MIXED+DRAIN", "draining"),
        ("IDLE+COMPLETING+DRAIN", "draining"),
        ("DOWN+NOT_RESPONDING", "down"),
        ("IDLE*", "silent"),
        ("IDLE+MAINTENANCE+DRAIN", "maintenance"),
        ("DOWN+REBOOT_ISSUED", "rebooting"),
        ("IDLE~", "off"),
        ("FUTURE", "other"),
        ("", None),
    ],
)
def test_meaning_of_a_state(words, state):
    assert read_state(words) == state
