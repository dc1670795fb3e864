"""Events of the jobs that the portal submits for requests."""

from apps.core.domain.event_kinds import EventKind, declare

declare(
    EventKind(
        "submission.assigned", "assigned the request to {cluster}", "was assigned to a cluster"
    ),
    EventKind(
        "submission.limit_set",
        "changed the limit of concurrent jobs: {old} → {new}",
        "has a new job limit",
    ),
    EventKind(
        "submission.advice_ignored",
        "let its jobs be submitted until {until} although the advice is not to",
        "has jobs submitted against the advice",
    ),
    EventKind(
        "submission.advice_followed",
        "followed the advice on submissions again",
        "has its jobs submitted by the advice again",
    ),
    EventKind(
        "submission.files_given_up",
        "gave up {files} input files of {stage}",
        "has input files that were given up",
    ),
    EventKind(
        "submission.files_taken_back",
        "took back {files} input files of {stage} that were given up",
        "has input files that were taken back",
    ),
    EventKind(
        "submission.result_chosen",
        "chose which result of {file} counts in {stage}",
        "has another result that counts",
    ),
    EventKind("submission.planned", "planned jobs of {stage}", "has new jobs planned"),
    EventKind(
        "submission.resources_set",
        "set memory and time limit of the next jobs of {stage}: {old} → {new}",
        "has jobs with another memory and time limit",
    ),
    EventKind(
        "submission.planned_again",
        "planned refused jobs of {stage} again",
        "has refused jobs planned again",
    ),
    EventKind(
        "submission.cut", "split planned jobs of {stage} at the job limit", "had planned jobs split"
    ),
    EventKind(
        "submission.sending", "started submitting jobs of {stage}", "has jobs being submitted"
    ),
    EventKind("submission.sent", "submitted jobs of {stage}", "had jobs submitted"),
    EventKind(
        "submission.failed",
        "had jobs of {stage} refused by the scheduler",
        "had jobs refused by the scheduler",
    ),
    EventKind(
        "submission.unknown",
        "does not know whether jobs of {stage} were submitted, and will ask the scheduler",
        "has jobs that may not have been submitted",
    ),
    EventKind(
        "submission.one_too_many",
        "found jobs of {stage} submitted twice",
        "has jobs submitted twice",
    ),
    EventKind("submission.ended", "saw jobs of {stage} finish", "has finished jobs"),
    EventKind("submission.held", "put queued jobs of {stage} on hold", "has queued jobs on hold"),
    EventKind(
        "submission.release_requested",
        "requested the release of held jobs of {stage}",
        "has held jobs to be released",
    ),
    EventKind(
        "submission.release_refused",
        "had the release of held jobs of {stage} refused by the scheduler",
        "has held jobs that the scheduler did not release",
    ),
    EventKind("submission.released", "released queued jobs of {stage}", "had queued jobs released"),
    EventKind(
        "submission.cancel_asked",
        "requested that submitted jobs be cancelled",
        "has jobs to be cancelled",
    ),
    EventKind("submission.cancelled", "cancelled jobs of {stage}", "had jobs cancelled"),
    EventKind(
        "job.debug_planned",
        "planned a debug re-run with the profile “{profile}”",
        "has a debug re-run planned",
    ),
    EventKind("retry.planned", "planned retries of {jobs} jobs", "has retries planned"),
    EventKind("retry.resumed", "resumed the retries", "has its retries resumed"),
    EventKind(
        "retry.cancelled",
        "cancelled {jobs} retries that were not released",
        "had retries cancelled",
    ),
    EventKind(
        "retry.stopped",
        "stopped the retries: {failed} jobs failed again",
        "has retries stopped: too many failed again",
    ),
    EventKind(
        "retry.finished",
        "counted the retries: {succeeded} of {jobs} succeeded",
        "has finished retries",
    ),
)
