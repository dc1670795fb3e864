"""The log of a simulated attempt: wrapper, framework, events, reports, and at the end what its cause leaves there."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from random import Random

from apps.demo.simulation.causes import Kind
from apps.demo.simulation.endings import ending
from apps.demo.simulation.workload import Attempt, Submission
from apps.demo.simulation.world import DOMAIN, GIB, Campaign, cpu_of

_MODULES = {
    "generation": ("GENIEGen/generator", "SimpleCounter/pot", "EventWeight/genieknobs"),
    "simulation": ("LArG4/largeant", "DetSim/daq", "PhotonTransport/photrans"),
    "reconstruction": ("CalHit/calhit", "Slicer/slicer", "Tracker/kalmantrackmerge", "CVN/cvnmap"),
    "keep-up": ("RawDecoder/tpcrawdecoder", "Wire/caldata", "HitFinder/gaushit"),
    "merge": ("Concatenate/concat",),
    "analysis": ("Selection/numucuts", "Spectra/spectra"),
}
_LONG_LOG = 0.004  # share of the logs that run to thousands of lines
_EVENTS = {
    "generation": 5000,
    "simulation": 2500,
    "reconstruction": 2500,
    "keep-up": 1200,
    "merge": 20_000,
    "analysis": 40_000,
}


def log_of(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    """Yield the lines of the log, each with its line end."""
    campaign = submission.campaign
    payload = len(attempt.phases) - 3
    yield from _header(submission, attempt)
    if attempt.cause.kind is Kind.HOST:
        yield from ending(submission, attempt, random)
        return
    for index, (phase, began) in enumerate(zip(attempt.phases, attempt.marks, strict=False)):
        yield f"==> {_iso(began)} phase {index + 1}/{len(attempt.phases)}: {phase.name}\n"
        ends = attempt.marks[index + 1] if index + 1 < len(attempt.marks) else attempt.ended
        failed = index == len(attempt.marks) - 1 and attempt.cause.kind is not Kind.NONE
        if index == payload:
            yield from _payload(campaign, attempt, random, began, ends, failed)
        elif not failed:
            yield from _step(campaign, phase.name, random, began)
        if not failed:
            cpu = (ends - began) * attempt.cpu_share
            yield f"<== {_iso(ends)} phase {phase.name} done, wall {ends - began} s, cpu {cpu:.1f} s\n"
    if attempt.cause.kind is Kind.NONE:
        yield f"peak memory {attempt.memory_share * campaign.memory_mb:.0f} MB of {campaign.memory_mb} MB\n"
        yield f"{_iso(attempt.ended)} cleaning up scratch\njob script exit status 0\n"
    else:
        yield from ending(submission, attempt, random)


def _header(submission: Submission, attempt: Attempt) -> Iterator[str]:
    campaign = submission.campaign
    started = attempt.started or attempt.ended
    host = f"{attempt.host}.{DOMAIN}"
    yield f"Job {attempt.job_id} ({attempt.raw_id}) attempt {attempt.number} on {host} at {_iso(started)}\n"
    yield f"user {campaign.user}, {campaign.experiment} {campaign.stage}, {campaign.release}, {campaign.config}\n"
    yield "kernel 5.14.0-427.el9.x86_64, AlmaLinux release 9.4 (Seafoam Ocelot)\n"
    yield f"model name      : {cpu_of(attempt.host)}\n"
    yield f"memory limit {campaign.memory_mb} MB, time limit {campaign.limit_seconds // 60} min, 1 cpu\n"
    yield "Filesystem      Size  Used Avail Use% Mounted on\n/dev/nvme0n1p3  1.8T  612G  1.2T  35% /scratch\n"


def _step(campaign: Campaign, name: str, random: Random, began: int) -> Iterator[str]:
    experiment, stage, run = campaign.experiment.lower(), campaign.stage, random.randrange(11_000, 43_000)
    if name == "setup":
        yield f"source /cvmfs/{experiment}.example.org/setup.sh -r {campaign.release}\n"
        yield f"setting up {experiment}soft {campaign.release} -q e26:prof\n"
        yield "setting up ifdhc v2_7_2\nsetting up samweb_client v3_4\n"
    elif name == "fetch input":
        source = f"root://dcache.{DOMAIN}:1094/pnfs/{experiment}/{stage}/in_r{run:08d}_s{random.randrange(60):02d}.root"
        yield f"samweb project {experiment}_{stage}_{run} started\nifdh getNextFile: {source}\n"
        speed = random.uniform(40, 180)
        yield f"{_iso(began + 20)} fetched 1 file, {random.uniform(0.3, 2.8):.2f} GB, {speed:.1f} MB/s\n"
    elif name == "store output":
        target = f"https://dcache.{DOMAIN}:2880/pnfs/{experiment}/{stage}/r{run:08d}_{random.randrange(10**6):06d}.root"
        size, checksum = int(random.uniform(0.1, 1.9) * GIB), random.getrandbits(32)
        yield f"ifdh cp ./out.root {target}\n{_iso(began + 30)} {size} bytes copied, adler32 {checksum:08x}\n"
    else:
        yield f"samweb declareFile r{run:08d}_{stage}.root: ok, id {random.randrange(10**8, 10**9)}\n"


def _payload(
    campaign: Campaign, attempt: Attempt, random: Random, began: int, ends: int, failed: bool
) -> Iterator[str]:
    experiment = campaign.experiment.lower()
    yield f"{experiment} -c {campaign.config} -n {_EVENTS[campaign.kind]} -o out.root\n"
    if failed and attempt.cause.kind in (Kind.CONFIGURATION, Kind.OUTAGE):
        return
    yield f"%MSG-i MF_INIT_OK:  Early {_art(began)} JobSetup\nMessagelogger initialization complete.\n%MSG\n"
    yield f"{_iso(began + 2)} Initiating opening of input files\n{_iso(began + 3)} Successfully opened input files\n"
    yield from _events(campaign, random, began, ends, failed)
    if not failed:
        yield from _reports(campaign, attempt, random, ends - began)


def _events(campaign: Campaign, random: Random, began: int, ends: int, failed: bool) -> Iterator[str]:
    """One line for each of some records; the times in them run from the phase's begin to its end."""
    total = _EVENTS[campaign.kind]
    count = random.randrange(40, 90) if failed else random.randrange(20, 45)
    if random.random() < _LONG_LOG:
        count *= 200
    run, subrun = random.randrange(11_000, 43_000), random.randrange(60)
    last = total if not failed else max(1, int(total * random.uniform(0.05, 0.95)))
    modules = _MODULES[campaign.kind]
    for number in range(count):
        record = 1 + number * last // count
        where = f"run: {run} subRun: {subrun} event: {record}"
        moment = _art(began + 4 + int((ends - began - 6) * number / count))
        yield f"Begin processing the {_ordinal(record)} record. {where} at {moment}\n"
        if number % 17 == 5:
            module = modules[number % len(modules)].replace("/", ":")
            yield f"%MSG-w {module.partition(':')[0]}:  {module} {moment}  {where}\n"
            yield f"  {random.randrange(1, 40)} hits outside the readout window, ignored\n%MSG\n"


def _reports(campaign: Campaign, attempt: Attempt, random: Random, seconds: int) -> Iterator[str]:
    total, memory = _EVENTS[campaign.kind], attempt.memory_share * campaign.memory_mb
    yield "\nTrigReport ---------- Event summary -------------\n"
    yield f"TrigReport Events total = {total} passed = {total} failed = 0\n\n"
    titles = ("TimeTracker printout (sec)", "Min", "Avg", "Max", "Median", "RMS", "nEvts")
    yield "".join(f"{title:<{44 if title == titles[0] else 14}}" for title in titles).rstrip() + "\n"
    for module in ("source:RootInput(read)", *_MODULES[campaign.kind], "[art]:TriggerResults:TriggerResultInserter"):
        mean = seconds / total * random.uniform(0.1, 0.9)
        times = "".join(f"{mean * factor:<14.6g}" for factor in (0.4, 1, 9, 0.9, 0.7))
        yield f"{module:<44}{times}{total}\n"
    yield f"TimeReport CPU = {seconds * attempt.cpu_share:.3f} Real = {float(seconds):.3f}\n"
    yield f"MemReport VmPeak = {memory * 1.3:.1f} VmHWM = {memory:.1f}\n"
    yield "Art has completed and will exit with status 0.\n"


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _iso(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _art(moment: int) -> str:
    day, second = divmod(moment, 86_400)
    return f"{_art_day(day)} {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d} UTC"


@cache
def _art_day(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).strftime("%d-%b-%Y")
