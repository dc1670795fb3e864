"""Explanations of the reasons for which jobs wait or are held."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueReason:
    """The meaning of a scheduler's reason, and advice."""

    text: str
    advice: str = ""


_LIMIT = QueueReason(
    "Limit of the account or QOS reached", "Jobs start as others of the account finish."
)
_MISSING = QueueReason(
    "Required hosts are down or reserved", "Check the site, or submit elsewhere."
)

#: Reasons of Slurm (squeue(1), "JOB REASON CODES") and hold reason codes of HTCondor (manual,
#: "HoldReasonCode").
REASONS = {
    "Priority": QueueReason("Higher-priority jobs first"),
    "Resources": QueueReason(
        "No free slot of this size", "Smaller requests for cores or memory start sooner."
    ),
    "Dependency": QueueReason("Waits for other jobs"),
    "DependencyNeverSatisfied": QueueReason(
        "Waits for a job that failed", "Cancel it, or submit it again."
    ),
    "BeginTime": QueueReason("Start time not reached"),
    "JobArrayTaskLimit": QueueReason("Task limit of its array reached"),
    "JobHeldUser": QueueReason("Held by user", "Ask the user, or release it."),
    "JobHeldAdmin": QueueReason("Held by administrator", "Ask the site."),
    "Licenses": QueueReason("Waits for a license"),
    "PartitionDown": _MISSING,
    "PartitionInactive": _MISSING,
    "ReqNodeNotAvail": _MISSING,
    "Reservation": QueueReason("Waits for its reservation"),
    "PartitionTimeLimit": QueueReason(
        "Time limit exceeds that of the partition", "Request less time."
    ),
    "PartitionNodeLimit": QueueReason(
        "Requests more hosts than the partition has", "Request fewer."
    ),
    "InvalidAccount": QueueReason("Account is not valid", "Correct the account."),
    "launch failed requeued held": QueueReason(
        "Held after a failed launch", "Check the host, then release it."
    ),
    "user env retrieval failed requeued held": QueueReason(
        "Held after its environment could not be read", "Check the host, then release it."
    ),
    "job requeued in held state": QueueReason(
        "Requeued and held", "Ask whoever requeued it, or release it."
    ),
    "JobHoldMaxRequeue": QueueReason(
        "Held after too many requeues", "Check the hosts, then release it."
    ),
    "BadConstraints": QueueReason("No host has what it requests", "Request less, or cancel it."),
    "1": QueueReason("Held by user", "Ask the user, or release it."),
    "3": QueueReason("Held by the job's own policy"),
    "4": QueueReason("Credentials are not valid", "Renew the proxy or token, then release it."),
    "5": QueueReason("Policy expression undefined", "Correct the expressions of the submit file."),
    "6": QueueReason("Executable cannot be run"),
    "7": QueueReason("Output file cannot be opened"),
    "8": QueueReason("Input file cannot be opened"),
    "12": QueueReason(
        "Output transfer failed", "Check storage at the destination, then release it."
    ),
    "13": QueueReason("Input transfer failed", "Check storage at the source, then release it."),
    "14": QueueReason("Working directory missing"),
    "16": QueueReason("Input files are being spooled"),
    "21": QueueReason("Held by the policy of the host"),
    "26": QueueReason("Held by the system's policy"),
    "34": QueueReason("Memory, disk or cores over the request", "Request more, then release it."),
    "45": QueueReason("Container runtime failed on the host", "Release it, and tell the site."),
    "46": QueueReason("Run time over the limit", "Request more time, then release it."),
}


def reason_of(code: str) -> QueueReason:
    """Return the explanation of a reason; an unknown reason is shown as the scheduler writes it."""
    name = code.partition(",")[0].strip().strip("()")
    if reason := REASONS.get(name):
        return reason
    if name.startswith(("Assoc", "QOS", "MaxJobs", "Grp")):
        return _LIMIT
    return QueueReason(name if name and name != "None" else "No reason given")
