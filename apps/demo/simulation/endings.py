"""The last lines of a failing log, by cause, in the words of the programs that would write them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

from apps.demo.simulation.causes import Kind
from apps.demo.simulation.workload import Attempt, Submission
from apps.demo.simulation.world import CONDITIONS, CVMFS, DCACHE, DOMAIN, SAMWEB


def ending(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    """Yield what the cause of the failure leaves in the log."""
    kind = attempt.cause.kind
    if kind in (Kind.OUTAGE, Kind.TRANSIENT):
        yield from _SERVICES[attempt.cause.blame](submission, attempt, random)
    elif kind in _ENDINGS:
        yield from _ENDINGS[kind](submission, attempt, random)
    exit_code = attempt.cause.end.exit_code
    if exit_code:
        yield f"{_at(attempt.ended)} cleaning up scratch\njob script exit status {exit_code}\n"


def _samweb(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    experiment = submission.campaign.experiment.lower()
    declares = attempt.cause.phase == len(attempt.phases) - 1
    api = "files" if declares else "projects"
    url = f"https://samweb.{DOMAIN}:8483/sam/{experiment}/api/{api}"
    for retry in range(1, 6):
        when = _at(attempt.ended - 60 * (6 - retry))
        yield f"{when} {url}: Timed out waiting for response: retrying in {2**retry} s\n"
    yield "HTTP error: 503 Service Unavailable\n"
    if declares:
        file = f"r{random.randrange(10**8):08d}_{submission.campaign.stage}.root"
        yield f"samweb declareFile {file}: retry 5 of 5 failed, giving up\n"
    else:
        yield f"Exception: {url} FetchError: Retry count exceeded\n"


def _dcache(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    if attempt.phases[attempt.cause.phase].name == "fetch input":
        yield "[2] Run: [ERROR] Server responded with an error: [3011] No servers are available to read the file.\n"
        yield "ifdh fetchInput returned status 1\n"
        return
    for retry in range(1, 4):
        yield f"{_at(attempt.ended - 50 * (4 - retry))} ifdh cp: try {retry} of 3\n"
        yield "gfal-copy error: 110 (Connection timed out) - Transfer canceled because the timeout expired\n"
    yield "ifdh cp failed with status 1.\n"


def _cvmfs(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    mount = f"/cvmfs/{submission.campaign.experiment.lower()}.example.org"
    yield f"ls: cannot access '{mount}': Transport endpoint is not connected\n"
    yield f"{_script(attempt)}: line 27: {mount}/setup.sh: Transport endpoint is not connected\n"


def _conditions(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    when = datetime.fromtimestamp(attempt.ended - 5, UTC).strftime("%a %b %d %H:%M:%S %Y")
    yield "warn  [fn-htclient.c:462]: Problem with server: Name or service not known\n"
    yield (
        "Can not get data (Additional Information: [frontier.c:1135]: No more proxies. "
        f"Last error was: Request 20 on chan 1 failed at {when}: -6 [fn-urlparse.c:176]: "
        f"host name conditions.{DOMAIN} problem: Name or service not known)\n"
    )
    yield "Cannot find a valid frontier connection\nArt has completed and will exit with status 1.\n"


def _farm(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    yield _slurmstepd(attempt, " DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")


def _bad_host(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    image = f"/scratch/slurm/{attempt.raw_id}/el9.sif"
    yield f"{_at(attempt.ended - 2)} starting container {image}\n"
    yield (
        "FATAL:   while extracting el9.sif: root filesystem extraction failed: extract command failed: "
        "ERROR  : Failed to create user namespace: user namespace disabled\n"
    )


def _memory(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    limit = submission.campaign.memory_mb
    yield f"%MSG-w MemoryTracker:  {_at(attempt.ended - 30)}\n  VmHWM {limit * 0.985:.0f} MB and growing\n%MSG\n"
    yield (
        f"slurmstepd: error: Detected 1 oom-kill event(s) in StepId={attempt.raw_id}.batch. "
        "Some of your processes may have been killed by the cgroup out-of-memory handler.\n"
    )


def _time_limit(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    yield _slurmstepd(attempt, " DUE TO TIME LIMIT")


def _crash(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    campaign, process = submission.campaign, random.randrange(2_000, 60_000)
    library = f"/cvmfs/{campaign.experiment.lower()}.example.org/{campaign.release}/lib"
    rule = "=" * 59
    yield "\n *** Break *** segmentation violation\n\n\n"
    yield f"{rule}\nThere was a crash.\nThis is the entire stack trace of all threads:\n{rule}\n"
    for depth, (symbol, name) in enumerate(_FRAMES):
        yield f"#{depth}  0x{random.randrange(2**44, 2**47):016x} in {symbol} from {library}/{name}\n"
    yield f"{_script(attempt)}: line 33: {process} Segmentation fault      (core dumped) "
    yield "$EXE -c $CONFIG -n $EVENTS -o out.root\n"


def _exception(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    run, event = random.randrange(11_000, 43_000), random.randrange(1, 5_000)
    when = datetime.fromtimestamp(attempt.ended - 3, UTC).strftime("%d-%b-%Y %H:%M:%S UTC")
    module = "KalmanTrack/kalmantrackmerge"
    yield f"""%MSG-s ArtException:  PostEndJob {when} ModuleEndJob
cet::exception caught in art
---- OtherArt BEGIN
  ---- EventProcessorFailure BEGIN
    EventProcessor: an exception occurred during current event processing
    ---- ScheduleExecutionFailure BEGIN
      Path: ProcessingStopped.
      ---- StdException BEGIN
        An exception was thrown while processing module {module} run: {run} subRun: 3 event: {event}
        vector::_M_range_check: __n (which is 5) >= this->size() (which is 5)
      ---- StdException END
      Exception going through path reco
    ---- ScheduleExecutionFailure END
  ---- EventProcessorFailure END
---- OtherArt END
%MSG
Art has completed and will exit with status 1.
"""


def _configuration(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    config = submission.campaign.config
    yield f"fhicl-dump {config} failed to run. May be missing a ups product, library, or fcl file.\n"


def _data(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    experiment = submission.campaign.experiment.lower()
    file = f"root://dcache.{DOMAIN}:1094/pnfs/{experiment}/in_r{random.randrange(10**8):08d}.root"
    yield "Error R__unzip: error -3 in inflate (zlib)\n"
    yield f"Error in <TBasket::ReadBasketBuffers>: fNbytes = 18203, fKeylen = 84, file {file}\n"


def _cancelled(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    yield _slurmstepd(attempt, "")


def _unexplained(submission: Submission, attempt: Attempt, random: Random) -> Iterator[str]:
    spill = random.randrange(10**6)
    yield f"{submission.campaign.experiment.lower()}: beam spill table has a hole after spill {spill}; stop\n"


def _slurmstepd(attempt: Attempt, why: str) -> str:
    when = datetime.fromtimestamp(attempt.ended, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"slurmstepd: error: *** JOB {attempt.raw_id} ON {attempt.host} CANCELLED AT {when}{why} ***\n"


def _script(attempt: Attempt) -> str:
    return f"/var/spool/slurmd/job{attempt.raw_id:05d}/slurm_script"


def _at(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S")


_FRAMES = (
    ("genie::hnl::FluxCreator::MakeTupleFluxEntry()", "libGTools.so"),
    ("evgb::GENIEHelper::Sample(simb::MCTruth&)", "libEventGeneratorBase.so"),
    ("evgen::GENIEGen::produce(art::Event&)", "libGENIEGen_module.so"),
    ("art::EDProducer::doEvent(art::EventPrincipal&)", "libart_Framework_Core.so"),
    ("art::EventProcessor::processEvent_()", "libart_Framework_EventProcessor.so"),
    ("art::run_art(int, char**)", "libart_Framework_Art.so"),
)
_SERVICES = {SAMWEB: _samweb, DCACHE: _dcache, CVMFS: _cvmfs, CONDITIONS: _conditions}
_ENDINGS = {
    Kind.NODE_LOST: _farm,
    Kind.HOST: _bad_host,
    Kind.MEMORY: _memory,
    Kind.TIME_LIMIT: _time_limit,
    Kind.CRASH: _crash,
    Kind.EXCEPTION: _exception,
    Kind.CONFIGURATION: _configuration,
    Kind.DATA: _data,
    Kind.CANCELLED: _cancelled,
    Kind.UNEXPLAINED: _unexplained,
}
