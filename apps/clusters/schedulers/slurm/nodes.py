"""List the hosts of a cluster with scontrol.

The format is that of `slurm_sprint_node_table` (src/api/node_info.c), Slurm 20.11 to 24.05: one
line per node. Slurm does not know CPU models: the option `cpu_models` maps node features to models.
The state is a base state with flags, such as `IDLE+DRAIN`, and a sign such as `*` for no answer.
"""

import re
from collections.abc import Iterator, Mapping

from apps.clusters.schedulers.base import HostFacts, HostState
from apps.clusters.schedulers.commands import Commands
from apps.clusters.schedulers.slurm.sacct import read_time

#: Values of these fields have no spaces, and come before free text such as `Reason` and `Comment`.
_FIELD = re.compile(
    r"(?:^|\s)(NodeName|NodeAddr|CPUTot|RealMemory|ActiveFeatures|State|BootTime)=(\S*)"
)
#: The reason is free text, followed by who set it and when.
_REASON = re.compile(r"\sReason=(.*)", re.DOTALL)
_SET_BY = re.compile(r"\s\[[^\s\[\]]*@[^\s\[\]]*\]")
_MIB = 2**20
#: Signs after a base state that say the same as a flag.
_SIGNS = {"*": "NOT_RESPONDING", "~": "POWERED_DOWN", "$": "MAINTENANCE", "^": "REBOOT_ISSUED"}
#: What the flags and base states mean; the first that a node has decides.
_MEANINGS = (
    ({"REBOOT_ISSUED", "REBOOT"}, HostState.REBOOTING),
    ({"DOWN", "FAIL", "ERROR"}, HostState.DOWN),
    ({"NOT_RESPONDING", "NO_RESPOND"}, HostState.SILENT),
    ({"MAINTENANCE", "MAINT"}, HostState.MAINTENANCE),
    ({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}, HostState.OFF),
)
_BUSY = {"ALLOCATED", "MIXED", "COMPLETING", "ALLOC"}
_UP = {"IDLE", "RESERVED", "PLANNED"} | _BUSY


def read_cpu_models(option: str) -> dict[str, str]:
    """Return the CPU model of each feature, from `rome=AMD EPYC 7702, icelake=Xeon Gold 6330`.

    Raises `ValueError`.
    """
    models = {}
    for part in option.split(","):
        feature, equals, model = (text.strip() for text in part.partition("="))
        if part.strip() and not (feature and equals and model):
            raise ValueError(f"option cpu_models: {part.strip()!r} is not FEATURE=MODEL")
        models[feature] = model
    return {feature: model for feature, model in models.items() if feature}


def hosts(commands: Commands, cpu_models: Mapping[str, str]) -> Iterator[HostFacts]:
    """Yield the hosts known to slurmctld, with one command. Raises `SchedulerError`."""
    # Not splitlines(): a reason may have any of the characters that it takes for ends of lines.
    for line in commands.run("scontrol", "show", "nodes", "--oneliner").split("\n"):
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(line):
            fields.setdefault(name, value)
        if not fields.get("NodeName"):
            continue

        features = fields.get("ActiveFeatures", "").split(",")
        models = []
        for feature in features:
            if feature in cpu_models:
                models.append(cpu_models[feature])
        memory = _number(fields.get("RealMemory"))
        yield HostFacts(
            fields["NodeName"],
            cpu_model=models[0] if models else "",
            address=fields.get("NodeAddr", ""),
            cores=_number(fields.get("CPUTot")),
            memory_bytes=None if memory is None else memory * _MIB,
            state=read_state(fields.get("State", "")),
            state_words=fields.get("State", ""),
            reason=_reason(line),
            booted_at=read_time(fields.get("BootTime", "")),
        )


def read_state(state_words: str) -> HostState | None:
    """Return what a state such as `MIXED+DRAIN*` means; None without a state."""
    flags = set()
    for part in state_words.upper().split("+"):
        name = part.rstrip("*~#%$@^!-")
        flags.add(name)
        flags.update(_SIGNS[sign] for sign in part[len(name) :] if sign in _SIGNS)
    flags.discard("")
    if not flags:
        return None
    for names, state in _MEANINGS:
        if flags & names:
            return state
    if flags & {"DRAIN", "DRAINING", "DRAINED"}:
        return HostState.DRAINING if flags & _BUSY else HostState.DRAINED
    return HostState.UP if flags & _UP else HostState.OTHER


def _reason(line: str) -> str:
    """Return the reason without who set it and when, and without the fields after it."""
    match = _REASON.search(line)
    if match is None:
        return ""
    text = match[1]
    ends = list(_SET_BY.finditer(text))
    return (text[: ends[-1].start()] if ends else text).strip()


def _number(text: str | None) -> int | None:
    if text and text.isascii() and text.isdigit():
        return int(text)
    return None
