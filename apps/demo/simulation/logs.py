"""Generate the log of a simulated attempt: header, phases with events, and the end."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from apps.demo.simulation.causes import SERVICE_LOGS, CauseKind
from apps.demo.simulation.workload import SimulatedArray, SimulatedAttempt
from apps.demo.simulation.world import WorldCampaign, cpu_of

# Share of the logs with thousands of lines.
_LONG_LOG = 0.004
# Seconds before the end of an attempt: the earliest line in the texts of services.
_LONGEST_AGO = 300
_TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


@dataclass(frozen=True)
class _Computed:
    """A template value that depends on a number in brackets."""

    of: Callable[[int], object]

    def __getitem__(self, number: int) -> object:
        return self.of(number)


def log_of(submission: SimulatedArray, attempt: SimulatedAttempt, random: Random) -> Iterator[str]:
    """Yield the text of the log in whole lines."""
    campaign = submission.campaign
    cause = attempt.cause
    values = _values(campaign, attempt, random)
    yield _TEXTS["header"].format_map(values)
    for index, (phase, began) in enumerate(zip(attempt.phases, attempt.marks, strict=False)):
        if cause.kind is CauseKind.HOST:
            break
        yield f"==> {_iso(began)} phase {index + 1}/{len(attempt.phases)}: {phase.name}\n"
        is_last = index + 1 == len(attempt.marks)
        ends = attempt.ended if is_last else attempt.marks[index + 1]
        failed = is_last and cause.kind is not CauseKind.NONE
        if index == attempt.payload:
            yield from _payload(campaign, attempt, random, began, ends, failed)
        elif not failed:
            moment = datetime.fromtimestamp(began + 20, UTC)
            yield _TEXTS["phases"][phase.name].format_map(values | {"began": moment})
        if not failed:
            cpu = (ends - began) * attempt.cpu_share
            yield (
                f"<== {_iso(ends)} phase {phase.name} done, wall {ends - began} s, cpu {cpu:.1f} "
                "s\n"
            )
    if cause.kind is CauseKind.NONE:
        yield (
            f"peak memory {attempt.memory_share * campaign.memory_mb:.0f} MB of "
            f"{campaign.memory_mb} MB\n"
        )
    elif cause.kind in (CauseKind.OUTAGE, CauseKind.TRANSIENT):
        if cause.phase == attempt.payload:
            phase_name = "payload"
        else:
            phase_name = attempt.phases[cause.phase].name
        yield SERVICE_LOGS[cause.blame][phase_name].format_map(values)
    else:
        yield cause.end.log.format_map(values)
    if cause.kind is CauseKind.NONE or cause.end.exit_code:
        yield (
            f"{_iso(attempt.ended)} cleaning up scratch\njob script exit status "
            f"{cause.end.exit_code}\n"
        )


def _before_end(attempt: SimulatedAttempt, seconds: int) -> datetime:
    """Return a time before the end of an attempt; later in a short phase, so that it had begun."""
    if attempt.marks:
        began = attempt.marks[-1]
    else:
        began = attempt.started or attempt.ended
    share = min(1, (attempt.ended - began) / _LONGEST_AGO)
    return datetime.fromtimestamp(attempt.ended - int(seconds * share), UTC)


def _values(campaign: WorldCampaign, attempt: SimulatedAttempt, random: Random) -> dict[str, Any]:
    return campaign.values | {
        "ago": _Computed(lambda seconds: _before_end(attempt, seconds)),
        "digits": _Computed(lambda count: f"{random.randrange(10**count):0{count}d}"),
        "started": datetime.fromtimestamp(attempt.started or attempt.ended, UTC),
        "job_id": attempt.job_id,
        "raw_id": attempt.raw_id,
        "attempt": attempt.number,
        "host": attempt.host,
        "cpu": cpu_of(attempt.host),
        "script": f"/var/spool/slurmd/job{attempt.raw_id:05d}/slurm_script",
        "library": f"/cvmfs/{campaign.experiment.lower()}.example.org/{campaign.release}/lib",
        "limit_minutes": campaign.limit_seconds // 60,
    }


def _payload(
    campaign: WorldCampaign,
    attempt: SimulatedAttempt,
    random: Random,
    began: int,
    ends: int,
    failed: bool,
) -> Iterator[str]:
    program = _TEXTS["programs"][campaign.kind]
    total = program["events"]
    modules = program["modules"]
    yield f"{campaign.experiment.lower()} -c {campaign.config} -n {total} -o out.root\n"
    if failed and attempt.cause.kind in (CauseKind.CONFIGURATION, CauseKind.OUTAGE):
        return
    yield (
        f"%MSG-i MF_INIT_OK:  Early {_art(began)} JobSetup\nMessagelogger initialization "
        "complete.\n%MSG\n"
    )
    yield (
        f"{_iso(began + 2)} Initiating opening of input files\n{_iso(began + 3)} Successfully "
        "opened input files\n"
    )
    yield from _events(total, modules, random, began, ends, failed)
    if not failed:
        memory = attempt.memory_share * campaign.memory_mb
        yield from _reports(total, modules, random, ends - began, attempt.cpu_share, memory)


def _events(
    total: int, modules: list[str], random: Random, began: int, ends: int, failed: bool
) -> Iterator[str]:
    """Yield a line for each of some records, with times spread over the phase."""
    if failed:
        count = random.randrange(40, 90)
    else:
        count = random.randrange(20, 45)
    if random.random() < _LONG_LOG:
        count *= 200
    run = random.randrange(11_000, 43_000)
    subrun = random.randrange(60)
    if not failed:
        last = total
    else:
        last = max(1, int(total * random.uniform(0.05, 0.95)))
    for number in range(count):
        record = 1 + number * last // count
        where = f"run: {run} subRun: {subrun} event: {record}"
        moment = _art(began + 4 + int((ends - began - 6) * number / count))
        if record % 100 in (11, 12, 13):
            suffix = "th"
        else:
            suffix = {1: "st", 2: "nd", 3: "rd"}.get(record % 10, "th")
        yield f"Begin processing the {record}{suffix} record. {where} at {moment}\n"
        if number % 17 == 5:
            module = modules[number % len(modules)].replace("/", ":")
            yield f"%MSG-w {module.partition(':')[0]}:  {module} {moment}  {where}\n"
            yield f"  {random.randrange(1, 40)} hits outside the readout window, ignored\n%MSG\n"


def _reports(
    total: int, modules: list[str], random: Random, seconds: int, cpu_share: float, memory_mb: float
) -> Iterator[str]:
    yield "\nTrigReport ---------- Event summary -------------\n"
    yield f"TrigReport Events total = {total} passed = {total} failed = 0\n\n"
    titles = ("Min", "Avg", "Max", "Median", "RMS", "nEvts")
    columns = "".join(f"{title:<14}" for title in titles).rstrip()
    yield f"{'TimeTracker printout (sec)':<44}{columns}\n"
    for module in (
        "source:RootInput(read)",
        *modules,
        "[art]:TriggerResults:TriggerResultInserter",
    ):
        mean = seconds / total * random.uniform(0.1, 0.9)
        times = "".join(f"{mean * factor:<14.6g}" for factor in (0.4, 1, 9, 0.9, 0.7))
        yield f"{module:<44}{times}{total}\n"
    yield f"TimeReport CPU = {seconds * cpu_share:.3f} Real = {float(seconds):.3f}\n"
    yield f"MemReport VmPeak = {memory_mb * 1.3:.1f} VmHWM = {memory_mb:.1f}\n"
    yield "Art has completed and will exit with status 0.\n"


def _iso(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _art(moment: int) -> str:
    day, second = divmod(moment, 86_400)
    return f"{_art_day(day)} {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d} UTC"


@cache
def _art_day(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).strftime("%d-%b-%Y")
