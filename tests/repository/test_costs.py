"""An answer that can cost more than a second of CPU is limited to one per user at a time: the rule,
over all routes.

A new route is added here: to COSTLY, and its view gets `one_at_a_time`; or to CHEAP after a
measurement with as much as its input and its lists may hold.
"""

from tests.routes import all_views

#: By route: what costs. Measured in November 2026 with 3 million jobs and the largest bodies.
COSTLY = {
    "api:archived-job-diff": "the comparison of two large scripts",
    "api:archived-job-tar": "500 MB of scripts and environments",
    "api:causes": "a search for common causes in a month of jobs: 1.3 s",
    "api:job-history-list": "archived months in other processes, up to 10 s",
    "api:job-records": "2.6 MB of records: 2.2 s",
    "api:known-error-import": "2 MB of YAML: 1.0 s",
    "api:request-import-yaml": "2 MB of YAML: 1.4 s",
    "api:retry-batch-bundle": "5,000 failed jobs",
    "api:retry-batch-dry-run": "5,000 failed jobs",
    "api:statistics": "jobs of years by three dimensions: 3.4 s",
    "api:submission-bundle": "the scripts of 100 stages, or of 200 points of a scan",
    "archive:diff": "the comparison of two large scripts",
    "archive:tar": "500 MB of scripts and environments",
    "diagnosis:compare-logs": "the comparison of 20,000 lines each",
    "diagnosis:raw-log": "a whole log, whose secrets become stars",
    "jobs:archived": "archived months in other processes, up to 10 s",
    "jobs:host": "jobs of years by three dimensions, with a chart",
    "jobs:site": "jobs of years by three dimensions, with a chart",
    "jobs:statistics": "jobs of years by three dimensions, with charts: 2.5 s",
    "jobs:user": "jobs of years by three dimensions, with a chart",
    "submission:bundle": "the scripts of 100 stages, or of 200 points of a scan",
    "submission:retry-jobs": "5,000 failed jobs",
}
#: By namespace: all others but the admin site, which is for staff. Expressions of users have a
#: budget of their own.
CHEAP = {
    "accounts": """
        change-password create-token forgotten-password login logout new-password openid openid-callback
        openid-logout
        revoke-token settings view-change view-save
    """,
    "api": """
        advice announcement-detail announcement-list announcement-pin announcement-read announcement-withdraw
        archived-job-description archived-job-detail archived-job-environment archived-job-list
        archived-job-pin archived-job-script archived-job-undo-choice archived-job-unpin
        archived-job-use-capture campaigns capture-batches capture-report
        change-of-known-error-approve change-of-known-error-detail change-of-known-error-list
        change-of-known-error-reject claim-accept claim-detail claim-withdraw comment-detail comment-list
        comment-reopen comment-resolve comment-withdraw dataset-list dataset-provenance
        debug-run-detail debug-run-list delegation-detail
        delegation-list delegation-revoke experiment-pack-approve experiment-pack-check experiment-pack-detail
        experiment-pack-list experiment-pack-reject failure-group-assign failure-group-detail
        failure-group-list failure-group-notes failure-group-status failure-group-unmute feed feed-addresses
        hand-over-note-list hold-detail hold-lift hold-list host-exclusion-detail host-exclusion-extend
        host-exclusion-list host-exclusion-return-host host-history-list inbox-list incident-close incident-detail
        incident-divide incident-impact incident-list index job-detail job-files job-history-detail job-list
        job-log job-logs known-error-change measured-state-list
        known-error-detail known-error-export known-error-list notification-list
        notification-preferences notification-read phase-tokens phases probe-results progress-detail quality-again
        quality-detail quality-files quality-histograms quality-results quality-waive
        quality-withdraw-waiver queue-detail queue-list queue-move queue-undo-move queue-what-if
        recovery-decision-detail recovery-decision-list recovery-rule-change recovery-rule-detail
        recovery-rule-list recovery-rule-switch reference request-approve request-cancel
        request-changes request-check request-check-saved
        request-clone request-combine request-complete request-detail request-done
        request-done-partial request-estimate request-events request-fail-test request-follow
        request-hold request-list request-next-names request-reject
        request-related request-release request-reopen request-report-detail request-request-changes
        request-reschedule request-resume request-return-to-queue request-review request-revision request-revisions
        request-set-priority request-signatures request-split request-start request-submit
        request-supersede request-test request-withdraw-signature request-yaml retry-batch-cancel
        retry-batch-detail retry-batch-list retry-batch-resume rules saved-view-detail
        saved-view-list schema service-detail service-history service-list shares shares-what-if
        made-dataset-detail made-dataset-make stage-located staging-ask staging-cancel staging-detail staging-stage
        files-count files-detail files-give-up files-inputs files-outputs files-request-missing files-take-back
        stage-outputs submission-accept submission-again submission-assign submission-cancel submission-detail
        submission-follow-advice submission-ignore-advice submission-limit submission-release submission-retry
        search submission-scouts
        submission-wait-again template-detail template-list template-make-draft verdict-correct verdict-detail
        verdict-harvest-again verdict-list version webhook-detail webhook-enable webhook-list webhook-new-secret
        line-watch-detail line-watch-list
        new-lines where-else weekly-report-all-experiments weekly-report-campaign weekly-report-detail
        weekly-report-list window-cancel window-detail window-list
        workflow-type-detail workflow-type-list
    """,
    "archive": """
        compare description environment job jobs line pin script undo-choice unpin use-capture
    """,
    "core": """
        healthz help help-contents readyz styleguide
    """,
    "datasets": """
        dataset list make stage stage-ask stage-cancel
    """,
    "diagnosis": """
        act-on-group act-on-groups line new-lines template watch-line where-else
        causes correct-verdict decide-known-error decide-pack exit-codes
        failed-jobs failures group harvest-again known-error known-error-change known-error-edit
        known-error-new known-errors known-errors-export known-errors-import log pack packs reclassification
        reclassifications running-log open-running-log slice-groups verdict
    """,
    "hosts": """
        exclude exclusion exclusions extend history of-host probes return
    """,
    "jobs": """
        accept-claims claims flagged host-rate list phases withdraw-claims
    """,
    "notifications": """
        add-webhook change-webhook feed-address feed-experiment feed-inbox feed-request list open read remove-watch
        request settings
    """,
    "portal": """
        find hand-over health home incident incident-act job live-jobs metrics notify-experiment request request-move
        request-priority request-reschedule search-feed service storage text-search
    """,
    "production": """
        campaigns check-new check-typed comment comment-change comment-edit delegation-revoke desk
        desk-approve desk-decide hand-over hold-lift holds inbox known queue queue-move queue-priority
        queue-undo request-changes request-clone request-combine request-edit request-import request-list
        request-new request-split request-start request-yaml rules shares signature-withdraw template-delete
        template-make template-rename templates workflow workflows
    """,
    "progress": """
        frozen-report request-progress request-report week-of-all week-of-campaign weekly-report weekly-reports
    """,
    "quality": """
        again request waiting waive withdraw
    """,
    "recovery": """
        all-decisions answer decisions edit export job mode move new owner owner-bundle questions rule rules week
    """,
    "statusboard": """
        board calendar cancel-window iri-event iri-events iri-incident iri-incidents iri-resource
        iri-resources map-alert pin-announcement post-announcement public-board read-announcement
        report-incident schedule-window source source-mapping source-new source-token sources status-badge
        status-calendar status-feed status-summary withdraw-announcement
    """,
    "submission": """
        accept again assign cancel debug-bundle debug-run file-list files files-count files-download files-give-up
        files-missing files-take-back output-list follow-advice ignore-advice limit release request
        retry retry-act retry-batch retry-batches script wait-again
    """,
}


def is_one_at_a_time(view) -> bool:
    cls = getattr(view, "cls", None)
    if cls is None:
        return hasattr(view, "is_one_at_a_time")
    names = view.actions.values() if getattr(view, "actions", None) else cls.http_method_names
    return any(hasattr(getattr(cls, name, None), "is_one_at_a_time") for name in names)


def test_costly_answers_are_limited_and_all_others_are_known():
    routes = {
        name: is_one_at_a_time(view) for name, view in all_views() if not name.startswith("admin:")
    }
    assert {name for name, is_limited in routes.items() if is_limited} == set(COSTLY)
    cheap = {f"{namespace}:{name}" for namespace, names in CHEAP.items() for name in names.split()}
    assert routes.keys() - set(COSTLY) == cheap
