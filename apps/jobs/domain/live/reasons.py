"""Explanations of the reasons for which jobs wait or are held."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """The meaning of a scheduler's reason, and advice."""

    text: str
    advice: str = ""


_LIMIT = Reason(
    "Limit of the account or QOS reached", "Jobs start as others of the account finish."
)
_MISSING = Reason("Required hosts are down or reserved", "Check the site, or submit elsewhere.")

#: Reasons of Slurm (squeue(1), "JOB REASON CODES") and hold reason codes of HTCondor (manual,
#: "HoldReasonCode").
REASONS = {
    "Priority": Reason("Higher-priority jobs first"),
    "Resources": Reason(
        "No free slot of this size", "Smaller requests for cores or memory start sooner."
    ),
    "Dependency": Reason("Waits for other jobs"),
    "DependencyNeverSatisfied": Reason(
        "Waits for a job that failed", "Cancel it, or submit it again."
    ),
    "BeginTime": Reason("Start time not reached"),
    "JobArrayTaskLimit": Reason("Task limit of its array reached"),
    "JobHeldUser": Reason("Held by user", "Ask the user, or release it."),
    "JobHeldAdmin": Reason("Held by administrator", "Ask the site."),
    "Licenses": Reason("Waits for a license"),
    "PartitionDown": _MISSING,
    "PartitionInactive": _MISSING,
    "ReqNodeNotAvail": _MISSING,
    "Reservation": Reason("Waits for its reservation"),
    "PartitionTimeLimit": Reason("Time limit exceeds that of the partition", "Request less time."),
    "PartitionNodeLimit": Reason("Requests more hosts than the partition has", "Request fewer."),
    "InvalidAccount": Reason("Account is not valid", "Correct the account."),
    "launch failed requeued held": Reason(
        "Held after a failed launch", "Check the host, then release it."
    ),
    "1": Reason("Held by user", "Ask the user, or release it."),
    "3": Reason("Held by the job's own policy"),
    "4": Reason("Credentials are not valid", "Renew the proxy or token, then release it."),
    "5": Reason("Policy expression undefined", "Correct the expressions of the submit file."),
    "6": Reason("Executable cannot be run"),
    "7": Reason("Output file cannot be opened"),
    "8": Reason("Input file cannot be opened"),
    "12": Reason("Output transfer failed", "Check storage at the destination, then release it."),
    "13": Reason("Input transfer failed", "Check storage at the source, then release it."),
    "14": Reason("Working directory missing"),
    "16": Reason("Input files are being spooled"),
    "21": Reason("Held by the policy of the host"),
    "26": Reason("Held by the system's policy"),
    "34": Reason("Memory, disk or cores over the request", "Request more, then release it."),
    "45": Reason("Container runtime failed on the host", "Release it, and tell the site."),
    "46": Reason("Run time over the limit", "Request more time, then release it."),
}


def reason_of(code: str) -> Reason:
    """Return the explanation of a reason; an unknown reason is shown as the scheduler writes it."""
    name = code.partition(",")[0].strip().strip("()")
    if reason := REASONS.get(name):
        return reason
    if name.startswith(("Assoc", "QOS", "MaxJobs", "Grp")):
        return _LIMIT
    return Reason(name if name and name != "None" else "No reason given")
