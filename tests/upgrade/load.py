"""Users, programs and a scheduler that use a portal while it is upgraded."""

import http.client
import itertools
import json
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass

import psycopg

from tests.archive.spool_writer import write_job
from tests.upgrade import databases

PAGES = ("/", "/requests/", "/jobs/", "/failures/", "/services/", "/archive/")
CALLS = ("/api/v1/requests/", "/api/v1/jobs/", "/api/v1/services/")
POSTED_TO = "/api/v1/announcements/"
#: Nobody sees them yet, so that no page grows by them.
STARTS_AT = "2099-01-01T00:00:00Z"
TIMEOUT_SECONDS = 60
#: A session of `user` in `session`, and a token of theirs in `token`, for programs that have `at`.
LOGGED_IN = """
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from apps.accounts.domain.api_tokens import create_token
session = SessionStore()
session[SESSION_KEY] = str(user.pk)
session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
session[HASH_SESSION_KEY] = user.get_session_auth_hash()
session.create()
token = create_token(user=user, name="load", days=1, by=user, at=at)
"""
SETUP = f"""
import json
import django
django.setup()
from datetime import timedelta
from django.utils import timezone
from apps.accounts.domain.users import ensure_user
from apps.accounts.domain.roles import grant_role
from apps.accounts.enums import Role
from apps.archive.domain.capture_hosts import create_capture_host
at = timezone.now()
user = ensure_user(username="ann", password_hash="!", by="test", at=at)
grant_role(user=user, experiment=None, role=Role.ADMIN, by=user, at=at)
{LOGGED_IN}
_, capture = create_capture_host(name="ctl1", clusters=["alps"], by="test", at=at)
print(json.dumps({{"session": session.session_key, "token": token, "capture": capture}}))
"""


@dataclass(frozen=True)
class Answer:
    """An answer to a request, or the error instead of one as `status`.

    `began` is a time of the monotonic clock, in seconds.
    """

    request: str
    status: int | str
    began: float
    seconds: float


class Load:
    """Reads pages, calls the API, posts, and lets the scheduler start jobs, until `stop`.

    `posted` are the titles of all posts, `accepted` those that were answered with 201. Each of
    the four waits `pause_seconds` after an answer. `asked_at` has the begin of each request that
    is not answered yet, by thread.
    """

    def __init__(self, port, secrets, spool, pause_seconds):
        self.port, self.spool, self.pause_seconds = port, spool, pause_seconds
        self.cookies = {"Cookie": f"sessionid={secrets['session']}"}
        self.token = {"Authorization": f"Token {secrets['token']}"}
        self.answers, self.posted, self.accepted = [], [], []
        self.asked_at = {}
        self.jobs = 0
        self.stopped = threading.Event()
        kinds = (self._read_pages, self._read_api, self._post, self._start_jobs)
        self.threads = [threading.Thread(target=kind, daemon=True) for kind in kinds]

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(timeout=2 * TIMEOUT_SECONDS)

    def failures(self):
        return [answer for answer in self.answers if answer.status not in {200, 201}]

    def _read_pages(self):
        for page in itertools.cycle(PAGES):
            if self.stopped.wait(self.pause_seconds):
                return
            self._ask("GET", page, self.cookies)

    def _read_api(self):
        for call in itertools.cycle(CALLS):
            if self.stopped.wait(self.pause_seconds):
                return
            self._ask("GET", call, self.token)

    def _post(self):
        for number in itertools.count():
            if self.stopped.wait(self.pause_seconds):
                return
            title = f"load {number}"
            self.posted.append(title)
            fields = {"title": title, "starts_at": STARTS_AT}
            if self._ask("POST", POSTED_TO, self.token, fields) == 201:
                self.accepted.append(title)

    def _start_jobs(self):
        for number in itertools.count(1):
            if self.stopped.wait(self.pause_seconds):
                return
            write_job(self.spool, number)
            self.jobs = number

    def _ask(self, method, path, headers, fields=None):
        """Make one request on a connection of its own, never a second time; return its status."""
        body = None
        if fields is not None:
            body = json.dumps(fields)
            headers = headers | {"Content-Type": "application/json"}
        began = self.asked_at[threading.get_ident()] = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_SECONDS)
        try:
            with closing(connection):
                connection.request(method, path, body, headers | {"Connection": "close"})
                answer = connection.getresponse()
                answer.read()
                status = answer.status
        except (OSError, http.client.HTTPException) as error:
            status = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - began
        self.answers.append(Answer(f"{method} {path}", status, began, seconds))
        del self.asked_at[threading.get_ident()]
        return status


def count_effects(database):
    """Return how often each announcement and each archived job is in the database."""
    with psycopg.connect(databases.url_of(database)) as connection:
        titles = connection.execute(
            "SELECT title, count(*) FROM statusboard_announcement GROUP BY title"
        )
        announcements = Counter(dict(titles))
        jobs = connection.execute(
            "SELECT job_id, count(*) FROM archive_archivedjob GROUP BY job_id"
        )
        return announcements, Counter(dict(jobs))
