"""Select the errors of a log that count: the causal chain that ends the job.

Errors from which the job recovered are left out.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import re2

from apps.diagnosis.engine.base import Block, Hit, JobFacts
from apps.diagnosis.engine.evidence.matchers import latin_options
from apps.diagnosis.engine.formats.chunks import matching_lines
from apps.diagnosis.engine.formats.condor_events import has_events
from apps.diagnosis.enums import VERDICT_OF, Category, Role, VerdictKind

#: With this many ordinary lines between two errors, the job had continued its work.
WORK_LINES = 40
#: With this many ordinary lines after the last crash or uncaught error, the job had survived it.
LAST_LINES = 120
#: A weak error that occurs at least this often is a habit of the program.
HABIT = 4
#: Only this many errors, the last ones, are examined.
CHAIN = 1000


def _compile(regex: str) -> re2._Regexp:
    return re2.compile(regex.encode(), latin_options())


_RETRY = _compile(
    r"(?i)\bre-?tr(?:y|ies|ying|ied)\b|\battempt(?:ing)?\s?#?\d|\btry(?:ing)? again\b|\bwill "
    r"(?:try|attempt)"
    r"|reconnect|trying to recover|back-?off|fall(?:ing)? ?back"
)
_EXHAUSTED = _compile(
    r"(?i)max(?:imum)? retries|retries? exceeded|retry count exceeded|giving up|gave up|no "
    r"more|exhausted"
    r"|after \d+ (?:attempts|retries|tries)|last attempt|all attempts"
)
_SUCCESS = _compile(
    r"(?i)\b(?:attempt|retry|try|connection|transfer|copy|download|upload|open|stage-?(?:in|out)"
    r"|request|read|write|access"
    r"|server|file|input)\w*\b.{0,80}\b(?:ok|succe\w+|opened|(?:re-?)?(?:connected|established)"
    r"|completed?|recovered"
    r"|restored|done|finished)\b"
    r"|\b(?:successfully|succeeded|recovered|reconnected|re-?established|restored|resumed)\b"
    r"|\b(?:opened|connected to|downloaded|copied|transferred)\b"
)
_FAILURE = _compile(r"(?i)\b(?:not|un\w+|fail\w*|error|could|cannot|without|never|dis\w+|0)\b")
_SUCCEEDED = re.compile(
    r"(?i)\bsuccess(?:ful|fully)?\b|\bsucceeded\b|\bnormal(?:ly)? terminat\w+|terminated "
    r"normally|\btests? passed\b"
    r"|exit(?:ed)?(?: with)?(?: code| status)?:? ?0\b|status 0\b|return value 0"
)
#: Words that end any log, also the log of a failed job: they outweigh only weak errors.
_ENDED = re.compile(
    r"(?i)\b(?:job|run|task|workflow|simulation|calculation|training|execution|script|program"
    r"|pipeline|process\w*"
    r"|analysis|step|all|everything)\b.{0,60}\b(?:completed?|finished|ended|done)\b"
    r"|execution complete|good ?bye|bye-bye|total (?:cpu |wall ?|elapsed |running |run "
    r")?time|elapsed time"
    r"|finish(?:ed)? (?:time|at|on)|end time|completed after|job done|all "
    r"done|(?:^|\s)done\.?$|time\s*:\s*\d"
)
#: The beginning of an ordinary line: not a stack frame, a list item or a ruler.
_ORDINARY = re.compile(rb"[\r\n](?![\s#\[|*=+\-~^>]|at |frame |\d{1,4}:\s|\Z)")
#: When one of these occurs, Slurm cancels the step because a task has failed.
_TASK_FAILED = (
    "SLURM-TASK-EXIT",
    "SLURM-TASK-SIGNAL",
    "SLURM-OOM",
    "SLURM-OOM-TASK",
    "SLURM-TIMELIMIT",
)
_TRACEBACK = b"\nTraceback (most recent call last)"
#: Words in the last errors of a program that is being cancelled.
_TERMINATED = re.compile(
    r"(?i)signal|sigterm|terminat|interrupt|kill|cancel|broken "
    r"pipe|connection|\bEOF|exit|rendezvous"
)
#: HTCondor writes this into a job's log on submission. Several submissions append to one file.
_SUBMITTED = re.compile(rb"^000 \((\d+)\.\d+\.\d+\) .{4,40} Job submitted from host", re.MULTILINE)


def causal_chain(facts: JobFacts, hits: Sequence[Hit], blocks: Sequence[Block]) -> list[Hit]:
    """Return the hits that may decide the verdict, in log order; the others remain evidence."""
    read = {}
    for hit in hits:
        if not _is_known(hit):
            read[(hit.stream, hit.offset)] = hit
    candidates = []
    for hit in hits:
        if (
            hit.pattern.role is not Role.NOISE
            and not hit.pattern.passive
            and not (_is_known(hit) and _contradicts(read.get((hit.stream, hit.offset)), hit))
        ):
            candidates.append(hit)
    chain: list[Hit] = []
    for block in blocks:
        own = [hit for hit in candidates if hit.stream == block.stream]
        begin = block.offset + _last_submission(block)
        ending = _chain_of_block(facts, [hit for hit in own if hit.offset >= begin], block)
        # Long before the end of a large log, an error counts only if it ends a job wherever it
        # occurs, and only if the end of the log shows no other.
        chain += ending or [hit for hit in own if hit.offset < block.offset and _is_strong(hit)]
    return chain


def _last_submission(block: Block) -> int:
    """Return where the last submission begins in an HTCondor log, 0 in any other log.

    The jobs of one submission share its cluster number.
    """
    if not has_events(block.data):
        return 0
    submissions = [(event[1], event.start()) for event in _SUBMITTED.finditer(block.data)]
    return next((start for cluster, start in submissions if cluster == submissions[-1][0]), 0)


def without_duplicates(hits: Sequence[Hit]) -> list[Hit]:
    """Drop hits of the grammar in lines that the catalogue explains equally well.

    Lines that the catalogue marks as noise are dropped as well.
    """
    known: dict[tuple[str, int], list[Hit]] = {}
    for hit in hits:
        if _is_known(hit) and not hit.pattern.passive:
            known.setdefault((hit.stream, hit.offset), []).append(hit)
    return [
        hit
        for hit in hits
        if _is_known(hit) or _adds_information(hit, known.get((hit.stream, hit.offset), ()))
    ]


def _adds_information(read: Hit, known: Sequence[Hit]) -> bool:
    """Return whether the grammar's hit in a line says more than the catalogue's hits there."""
    if any(hit.pattern.role is Role.NOISE for hit in known):
        return False
    return all(hit.pattern.category is Category.UNKNOWN or _contradicts(read, hit) for hit in known)


def _is_known(hit: Hit) -> bool:
    """Return whether a hit is from a catalogue; patterns of the grammar have no regex."""
    return bool(hit.pattern.regex)


def _contradicts(read: Hit | None, known: Hit) -> bool:
    """Return whether the grammar's hit is specific and contradicts a general pattern."""
    if read is None or known.pattern.role is Role.CAUSE or known.pattern.id == "PY-NOMODULE":
        return False
    vague = read.pattern.role is Role.CONSEQUENCE or read.pattern.id.startswith("UNCAUGHT")
    return not vague and VERDICT_OF[read.pattern.category] != VERDICT_OF[known.pattern.category]


def _chain_of_block(facts: JobFacts, hits: Sequence[Hit], block: Block) -> list[Hit]:
    """Return the causal chain of a block: go back from its end while one error led to the next.

    A cause of the catalogue always counts. Unless the scheduler reports a failure, the log has to
    show it.
    """
    failed = facts.has_failed
    remaining = _not_recovered(hits[-CHAIN:], block)
    if not failed:
        remaining = _without_habits(remaining, block)
    chain: list[Hit] = []
    later = len(block.data)
    closed = False
    for hit in reversed(remaining):
        begin = hit.offset - block.offset
        worked = _work_between(block, begin, later) >= (
            WORK_LINES if chain or _is_weak(hit) else LAST_LINES
        )
        closed = closed or (worked and any(_explains_failure(later_hit) for later_hit in chain))
        if closed:
            break
        if worked and not chain and not failed and not _is_strong(hit):
            continue  # the job continued its work after this error
        chain.append(hit)
        later = begin
    chain.reverse()
    if (
        chain
        and not failed
        and not any(_is_strong(hit) for hit in chain)
        and _ended_well(block, chain)
    ):
        return []
    left = []
    for index, hit in enumerate(chain):
        if not _follows(hit, chain[:index], chain) and not _is_of_an_earlier_job(
            hit, chain[index + 1 :], block
        ):
            left.append(hit)
    return left


def _without_habits(hits: Sequence[Hit], block: Block) -> list[Hit]:
    """Drop weak errors that a program repeats while it works, unless it ends with them."""
    counts = Counter(masked(hit) for hit in hits if hit.pattern.role is Role.CONSEQUENCE)
    last = {masked(hit): hit for hit in hits}

    def is_habit(hit: Hit) -> bool:
        if counts[mask := masked(hit)] < HABIT:
            return False
        return _work_between(block, last[mask].offset - block.offset, len(block.data)) > 2

    return [hit for hit in hits if not is_habit(hit)]


def masked(hit: Hit) -> str:
    """Return a key that is equal for errors that differ only in numbers."""
    return f"{hit.pattern.id} {re.sub(r'[0-9]+', '0', hit.text)}"


def _is_strong(hit: Hit) -> bool:
    """Return whether an error ends a job wherever it occurs in the log.

    Causes do, except causes at a service, which may be retried.
    """
    return hit.pattern.role is Role.CAUSE and not _is_service(hit)


def _is_weak(hit: Hit) -> bool:
    return hit.pattern.role is Role.CONSEQUENCE or _is_service(hit)


def _explains_failure(hit: Hit) -> bool:
    """Return whether a hit says why a job failed.

    A removal from the queue does not: its reason may be elsewhere.
    """
    removed = hit.pattern.id == "CONDOR-RM-USER"
    return (
        not removed
        and hit.pattern.role is not Role.CONSEQUENCE
        and hit.pattern.category is not Category.UNKNOWN
    )


def _is_service(hit: Hit) -> bool:
    return VERDICT_OF[hit.pattern.category] is VerdictKind.SERVICE


def _follows(hit: Hit, before: Sequence[Hit], chain: Sequence[Hit]) -> bool:
    """Return whether a hit is only a consequence of an earlier hit.

    A removal by the batch system is a consequence of an exceeded limit anywhere in the chain.
    """
    if hit.pattern.id == "BATCH-REMOVED":
        causes = []
        for other in chain:
            if other.pattern.role is Role.CAUSE:
                causes.append(other.pattern)
        return any(cause.category is Category.RESOURCE for cause in causes)
    if hit.pattern.id == "MISSING-FILE":  # the killed process would have written the file
        return any(other.pattern.id == "SHELL-KILLED" for other in before)
    if hit.pattern.id == "SLURM-CANCELLED":
        return any(
            other.pattern.id in _TASK_FAILED or other.pattern.service == "program"
            for other in before
        )
    return False


def _is_of_an_earlier_job(hit: Hit, after: Sequence[Hit], block: Block) -> bool:
    """Return whether a job was cancelled and a later job wrote its traceback into the file."""
    if (
        hit.pattern.id != "SLURM-CANCELLED"
        or _TRACEBACK not in block.data[hit.offset - block.offset :]
    ):
        return False
    return any(_explains_failure(other) and not _TERMINATED.search(other.text) for other in after)


def _not_recovered(hits: Sequence[Hit], block: Block) -> list[Hit]:
    """Drop errors of services that recovered.

    A later line reports the recovery, or the job retried and failed later for another reason.
    """
    remaining: list[Hit] = []
    other_failed = False
    for hit in reversed(hits):
        if not _is_service(hit):
            other_failed = other_failed or _explains_failure(hit)
            remaining.append(hit)
        elif not _recovered(hit, block, other_failed=other_failed):
            remaining.append(hit)
    remaining.reverse()
    return remaining


def _recovered(hit: Hit, block: Block, *, other_failed: bool) -> bool:
    """Return whether the service of an error worked again."""
    begin = hit.offset - block.offset
    lines = block.data[begin : begin + 16 * 1024].split(b"\n", WORK_LINES)[:WORK_LINES]
    if _EXHAUSTED.search(hit.text.encode("latin-1", "replace")):
        return False
    if other_failed and _RETRY.search(b"\n".join(lines[:3])):
        return True
    after = b"\n".join(lines[1:])
    return any(not _FAILURE.search(line) for _, line in matching_lines(_SUCCESS, after))


def _work_between(block: Block, begin: int, end: int) -> int:
    """Count ordinary lines between two positions, up to `LAST_LINES`.

    A distance of more than 256 kB counts as `LAST_LINES` without being read.
    """
    if end - begin > 256 * 1024:
        return LAST_LINES
    return sum(1 for _ in islice(_ORDINARY.finditer(block.data[begin:end]), LAST_LINES))


def _ended_well(block: Block, chain: Sequence[Hit]) -> bool:
    """Return whether the lines after the last error say that the job succeeded.

    After weak errors it is enough that the job ended.
    """
    begin = max(chain[-1].offset - block.offset, len(block.data) - 4096)
    lines = [
        line for line in block.data[begin:].decode("utf-8", "replace").split("\n") if line.strip()
    ]
    ending = [line for line in lines[1:][-12:] if not re.search(r"(?i)fail|error|abort", line)]
    weak = all(hit.pattern.role is Role.CONSEQUENCE for hit in chain)
    return any(_SUCCEEDED.search(line) or (weak and _ENDED.search(line)) for line in ending)
