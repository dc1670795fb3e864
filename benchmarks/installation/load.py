"""A light load on the site: users who read pages, a program that calls the API, and jobs."""

import http.client
import itertools
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.installation.site import HOST, Site
from tests.upgrade.load import CALLS, LOGGED_IN, PAGES

REQUEST_SECONDS = 0.1
JOB_SECONDS = 3
#: Longer than nginx waits.
TIMEOUT_SECONDS = 70
#: More than come while the web server restarts.
THREADS = 400
JOB = """#!/bin/bash
sleep 5
echo "samweb: HTTP error: 503 Service Unavailable: https://samweb.example.org:8483/sam/nova/api"
exit 1
"""
#: A session and a token of the admin that the guide creates.
LOG_IN = f"""
import json
import django
django.setup()
from django.contrib.auth import get_user_model
from django.utils import timezone
from apps.accounts.domain.roles import grant_role
from apps.accounts.enums import Role
at = timezone.now()
user = get_user_model().objects.get(username="ann")
if not user.memberships.exists():
    grant_role(user=user, experiment=None, role=Role.ADMIN, by=user, at=at)
{LOGGED_IN}
print(json.dumps({{"session": session.session_key, "token": token}}))
"""


@dataclass(frozen=True)
class Answer:
    """An answer to a request, or the error instead of one as `status`.

    `began` and `ended` are times of the monotonic clock, in seconds.
    """

    path: str
    status: int | str
    began: float
    ended: float
    body: bytes = b""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Load:
    """Asks a page or the API every 0.1 s, whether others wait or not, and submits jobs."""

    def __init__(self, site: Site, secrets: dict[str, str]) -> None:
        self.site = site
        self.cookies = {"Cookie": f"sessionid={secrets['session']}"}
        self.token = {"Authorization": f"Token {secrets['token']}"}
        self.answers: list[Answer] = []
        self.jobs: list[str] = []
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._stopped.clear()
        self.answers = []
        self.jobs = []
        self._threads = []
        for work in (self._make_requests, self._submit_jobs):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop, and wait for the last answers."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT_SECONDS)

    def _make_requests(self) -> None:
        requests = _requests(self.cookies, self.token)
        with ThreadPoolExecutor(THREADS) as pool:
            self._repeat(REQUEST_SECONDS, lambda: pool.submit(self._keep_answer, *next(requests)))

    def _keep_answer(self, path: str, headers: dict[str, str]) -> None:
        self.answers.append(ask(path, headers))

    def _submit_jobs(self) -> None:
        self._repeat(JOB_SECONDS, lambda: self.jobs.append(self.site.submit(JOB)))

    def _repeat(self, seconds: float, do: Callable[[], object]) -> None:
        due = time.monotonic()
        while not self._stopped.wait(max(0, due - time.monotonic())):
            do()
            due += seconds


def _requests(cookies: dict[str, str], token: dict[str, str]):
    for page, call in zip(itertools.cycle(PAGES), itertools.cycle(CALLS), strict=False):
        yield page, cookies
        yield call, token


def ask(path: str, headers: dict[str, str]) -> Answer:
    """Make one request through nginx on a connection of its own, never a second time."""
    began = time.monotonic()
    status: int | str
    body = b""
    # The certificate is the guide's own.
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", timeout=TIMEOUT_SECONDS, context=context)
    try:
        with closing(connection):
            connection.request("GET", path, headers=headers | {"Host": HOST, "Connection": "close"})
            response = connection.getresponse()
            body = response.read()
            status = response.status
    except (OSError, http.client.HTTPException) as error:
        status = f"{type(error).__name__}: {error}"
    return Answer(path, status, began, time.monotonic(), body if path == "/" else b"")


@dataclass(frozen=True)
class Summary:
    """What users saw.

    An outage is the time in which requests failed, and a pause one in which none was answered well.
    """

    requests: int
    failures: list[Answer]
    longest_answer: float
    median: float
    longest_outage: float
    longest_pause: float


def summarize(answers: list[Answer]) -> Summary:
    ordered = sorted(answers, key=lambda answer: answer.began)
    failures = []
    outage = 0.0
    failing_since = None
    for answer in ordered:
        if answer.status == 200:
            failing_since = None
            continue
        failures.append(answer)
        failing_since = failing_since or answer
        outage = max(outage, answer.ended - failing_since.began)
    seconds = sorted(answer.seconds for answer in answers)
    return Summary(
        requests=len(answers),
        failures=failures,
        longest_answer=seconds[-1],
        median=seconds[len(seconds) // 2],
        longest_outage=outage,
        longest_pause=_longest_pause(answers),
    )


def _longest_pause(answers: list[Answer]) -> float:
    good = sorted(answer.ended for answer in answers if answer.status == 200)
    pauses = [following - ended for ended, following in pairwise(good)]
    return max(pauses, default=0.0)
