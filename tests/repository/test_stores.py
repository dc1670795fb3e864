"""No token stores without bound: the rule, over all routes.

What a user changes by the API counts for `ChangesThrottle`. Any other route that takes a change
from a sender without a login is listed here with what bounds it.
"""

from django.test import RequestFactory
from rest_framework.permissions import SAFE_METHODS
from rest_framework.views import APIView

from apps.core.api.throttles import ChangesThrottle
from tests.routes import all_views

#: By route: what bounds how much is stored, and the test of it.
BOUNDS = {
    "accounts:forgotten-password": "stores nothing; mails are counted by account (tests/accounts/test_passwords.py)",
    "accounts:login": "failures are counted by address (tests/accounts/test_logins.py)",
    "accounts:openid": "the state of a login, in the sender's session (tests/accounts/test_openid.py)",
    "accounts:openid-logout": "a message in the sender's session (tests/accounts/test_openid.py)",
    "accounts:openid-callback": "a session per login at the provider (tests/accounts/test_openid.py)",
    "accounts:new-password": "replaces the password of the link's account (tests/accounts/test_passwords.py)",
    "admin:login": "as accounts:login",
    "api:capture-batches": "bytes per host and day, and bytes that wait (tests/archive/test_capture_hosts.py)",
    "api:capture-report": "one row per host and cluster (tests/archive/test_capture_hosts.py)",
    "api:feed": "payloads per minute, and bytes per day (tests/statusboard/test_api.py)",
    "api:job-files": "by job, by stage, by experiment and day (tests/submission/arrays/test_job_files.py)",
    "api:job-logs": "by log, by token, by experiment and day (tests/diagnosis/reading/test_posted_logs.py)",
    "api:probe-results": "one result for each probe of a job that the portal planned (tests/hosts/test_probes.py)",
    "api:phases": "by job, by token, by experiment and day (tests/jobs/test_phases.py)",
}


def test_every_change_without_a_login_has_a_bound():
    unbounded = {
        name
        for name, view in all_views()
        if not counts_changes_of_users(view) and takes_changes(view)
    }
    assert unbounded == set(BOUNDS)


def counts_changes_of_users(view) -> bool:
    """Whether a view is for users only: of pages, with a session, or of the API,
    whose changes count.
    """
    cls = getattr(view, "cls", None)
    if cls is None:
        return getattr(view, "login_required", True)
    return (
        ChangesThrottle in cls.throttle_classes
        and cls.authentication_classes == APIView.authentication_classes
    )


def takes_changes(view) -> bool:
    cls = getattr(view, "cls", None)
    if cls is not None:
        methods = getattr(view, "actions", None) or [
            name for name in cls.http_method_names if hasattr(cls, name)
        ]
        return any(method.upper() not in {*SAFE_METHODS} for method in methods)
    try:
        return view(RequestFactory().post("/")).status_code != 405
    except Exception:  # it went on without the arguments of its address
        return True
