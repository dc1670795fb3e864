"""Addresses to visit: every reading route of production and related apps, as each role."""

import base64
import itertools
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib import admin
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.archive.models import ArchivedJob
from apps.core.domain.pagination import _write
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.notifications.models import Notification, Webhook
from apps.production.domain.content.model import FIELDS, STAGE_FIELDS
from apps.production.domain.content.stages import content_of
from apps.production.domain.priority.ranks import ranked_requests
from apps.production.models import Delegation, Hold, Request, RequestTemplate
from apps.statusboard.models import Announcement, DowntimeWindow, Incident
from tests.routes import Route, all_routes

ROLES = {
    "liaison": "liaison-0-0",
    "signer": "signer-0",
    "approver": "approver-0",
    "shifter": "shifter-0",
    "admin": "admin-0",
    "nobody": "nobody",
}
#: All routes of these are visited, but for those that begin as in NOT: they are of other parts, or
#: no pages.
PARTS = ("production:", "submission:", "notifications:", "quality:", "portal:", "api:")
ALSO = (
    "jobs:", "progress:request", "diagnosis:failures", "diagnosis:failed-jobs", "diagnosis:verdict",
    "accounts:settings", "archive:jobs", "statusboard:board", "portal:service", "statusboard:sources",
    "statusboard:report-incident", "statusboard:schedule-window", "statusboard:post-announcement",
)  # fmt: skip
NOT = ("api:feed", "api:capture", "api:archived-job-tar", "notifications:change-webhook")
#: Whose row is meant by `pk` (of a verdict: `job`), by the beginning of the route; elsewhere it is
#: a hold's.
OF = {
    "api:announcement": Announcement,
    "api:archived-job": ArchivedJob,
    "api:delegation": Delegation,
    "api:incident": Incident,
    "api:job": Job,
    "api:template": RequestTemplate,
    "api:webhook": Webhook,
    "api:window": DowntimeWindow,
    "diagnosis:verdict": Job,
    "portal:job": Job,
}
#: The back office of these apps is visited as the admin.
OFFICES = (
    "production", "submission", "notifications", "core", "quality", "jobs", "archive", "diagnosis", "services",
    "clusters", "accounts",
)  # fmt: skip
#: These are visited for a request in each state, the others for the telling ones.
WHOLE = ("portal:request", "production:request-edit", "api:request-detail")
BRIEF = ("awaiting_approval", "running")
TELLING = ("draft", "awaiting_approval", "queued", "running", "done")
ORDERS = ("", "q=EXP00-0001", "o=1", "o=-2")


@dataclass(frozen=True)
class Visit:
    """One address, by one role. Its POST changes nothing."""

    route: str
    what: str
    role: str
    url: str
    data: str = ""
    client: Client = field(default_factory=Client, compare=False)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.route, self.what, self.role

    @property
    def method(self) -> str:
        return "POST" if self.data else "GET"

    def ask(self) -> Any:
        """Visit with the test client."""
        if self.data:
            return self.client.post(self.url, self.data, content_type="application/json")
        return self.client.get(self.url)

    def headers(self) -> dict[str, str]:
        """Return the headers of a client over a socket."""
        cookies = {name: morsel.value for name, morsel in self.client.cookies.items()} | {
            "csrftoken": "c" * 32
        }
        more = {"X-CSRFToken": "c" * 32, "Content-Type": "application/json"} if self.data else {}
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} | more


@dataclass
class Tour:
    """The visits of all roles: of routes whose name begins with `only`,
    and of the first or newest request of a state.

    A brief tour skips most states, filters and orders; with `among`, only these visits are made.
    """

    roles: tuple[str, ...] = tuple(ROLES)
    brief: bool = False
    only: str = ""
    newest: bool = False
    among: Collection[tuple[str, str, str]] | None = None

    def visits(self, ask: Callable[[Visit], Any] = Visit.ask) -> list[Visit]:
        """Visit all with `ask`; return the visits answered with a page: others are refused,
        or need a POST.
        """
        found, posts = [], set()
        for visit in itertools.chain(
            self._by_route(), self._lists(), self._details(), self._posts(), self._offices()
        ):
            if (
                visit.role not in self.roles
                or visit.route in posts
                or not visit.route.startswith(self.only)
            ):
                continue
            if self.among is not None and visit.key not in self.among:
                continue
            status = ask(visit).status_code
            if status >= 500 or (status == 400 and visit.data):
                raise AssertionError(f"{visit.role} {visit.url}: {status}")
            if status == 405:
                posts.add(visit.route)
            if status == 200:
                found.append(visit)
        return found

    def _visit(self, route: str, what: str, role: str, url: str, data: str = "") -> Visit:
        return Visit(route, what, role, url, data, self._clients[role])

    @cached_property
    def _clients(self) -> dict[str, Client]:
        clients = {}
        for role, name in ROLES.items():
            clients[role] = Client()
            clients[role].force_login(User.objects.get(username=name))
        return clients

    @cached_property
    def _requests(self) -> dict[str, str]:
        """Return the key of a request of the largest experiment in each state, by state."""
        rows = Request.objects.filter(experiment__key="EXP00").order_by(
            "state", "-pk" if self.newest else "pk"
        )
        return dict(rows.distinct("state").values_list("state", "key"))

    def _by_route(self) -> Iterator[Visit]:
        """Yield every route: those of requests in each state, as the roles that work on it;
        others as every role.
        """
        for route in all_routes():
            if not route.name.startswith((*PARTS, *ALSO)) or route.name.startswith(NOT):
                continue
            if not route.name.startswith(self.only):
                continue
            for what, values in self._values(route):
                if what in self._requests and not self._tells(what, route.name):
                    continue
                for role in ("liaison", "approver") if what in self._requests else self.roles:
                    filled = {
                        name: _token(role) if name == "token" else value
                        for name, value in values.items()
                    }
                    yield self._visit(route.name, what, role, reverse(route.name, kwargs=filled))

    def _tells(self, state: str, route: str) -> bool:
        """Return whether the request in this state is visited."""
        return state in BRIEF if self.brief else state in TELLING or route in WHOLE

    def _values(self, route: Route) -> list[tuple[str, dict[str, Any]]]:
        """Return values for the parameters of a route, each with a name;
        nothing for unknown parameters.
        """
        if not route.parameters:
            return [("", {})]
        fixed: dict[str, Any] = {
            "token": "",
            "number": 1,
            "verb": "submit",
            "slug": "service-0",
            **self._rows(route),
        }
        keys = self._requests
        if "workflow" in route.name:
            keys = {"any": "monte_carlo"}
        elif "experiment" in route.name:
            keys = {"any": "EXP00"}
        elif "key" not in route.parameters:
            keys = {"any": ""}
        if not {*fixed, "key"}.issuperset(route.parameters):
            return []
        return [
            (what, {name: key if name == "key" else fixed[name] for name in route.parameters})
            for what, key in keys.items()
        ]

    def _rows(self, route: Route) -> dict[str, Any]:
        """Return the keys of the rows that are visited, by the parameter that names them."""
        model = next((model for name, model in OF.items() if route.name.startswith(name)), Hold)
        if model not in self._first:
            rows = model._default_manager.order_by("pk")
            rows = rows.filter(lifted_at=None, experiment=None) if model is Hold else rows
            self._first[model] = rows.values_list("pk", flat=True).first()
        return {"pk": self._first[model], "job": self._failed}

    @cached_property
    def _first(self) -> dict[type[Model], Any]:
        return {}

    @cached_property
    def _failed(self) -> int | None:
        return Verdict.objects.order_by("pk").values_list("job", flat=True).first()

    def _lists(self) -> Iterator[Visit]:
        """Yield lists with filters, searches and their last pages."""
        words = (
            ("muons",)
            if self.brief
            else ("muons", "EXP00-0001", "exp.mc.7.generation", "nothing of this name")
        )
        queries: dict[str, list[dict[str, Any]]] = {
            "production:request-list": [
                *({"text": text} for text in words),
                *({"state": state} for state in ("queued", "awaiting_approval", "done")),
                {"experiment": "EXP00"},
                {"experiment": "EXP07"},
                {"mine": "turn"},
                {"mine": "yes"},
                {"text": "muons", "state": "queued", "mine": "turn", "experiment": "EXP00"},
                {"after": _last(Request, "created_at")},
            ],
            "production:holds": [{"after": _last(Hold, "at")}],
            "production:queue": [{"after": max(0, ranked_requests().count() - 50)}],
            "production:request-new": [{"workflow": "monte_carlo"}],
            "portal:find": [
                {"q": text}
                for text in ("muons", "EXP0", "nothing of this name", "generation", "wn-7")
            ],
            "notifications:list": [{"show": "unread"}, {"after": _last(Notification, "at")}],
            "api:request-list": [
                {"text": "muons"},
                {"state": "queued"},
                {"experiment": "EXP00"},
                {"mine": "turn"},
                {"mine": "yes"},
                {"text": "exp.mc.7.generation"},
                {"cursor": _cursor(Request)},
            ],
            "api:job-list": [
                {"state": "failed"},
                {"request": "EXP00-0009"},
                {"cursor": _cursor(Job)},
            ],
            "api:verdict-list": [{"verdict": "code"}, {"cursor": _cursor(Verdict)}],
            "api:archived-job-list": [{"text": "generation"}, {"request": "EXP00-0009"}],
            "api:notification-list": [{"unread": "true"}, {"cursor": _cursor(Notification)}],
            "api:queue-list": [{"after": max(0, ranked_requests().count() - 50)}],
        }
        for route, asked in queries.items():
            for query in asked:
                if (
                    self.brief
                    and not {"after", "cursor", "text", "mine", "workflow"} & query.keys()
                ):
                    continue
                for role in self.roles:
                    what = "last page" if {"after", "cursor"} & query.keys() else urlencode(query)
                    yield self._visit(route, what, role, f"{reverse(route)}?{urlencode(query)}")

    def _details(self) -> Iterator[Visit]:
        """Yield the forms of moves, and the form of a request with all findings of the checks."""
        for verb, state in (
            ("approve", "awaiting_approval"),
            ("reject", "awaiting_approval"),
            ("priority", "queued"),
        ):
            url = reverse("portal:request", args=[self._requests[state]])
            yield self._visit("portal:request", f"do={verb}", "approver", f"{url}?do={verb}")
        for state in ("draft", "changes_requested", "awaiting_approval", "queued"):
            url = reverse("production:request-edit", args=[self._requests[state]])
            yield self._visit(
                "production:request-edit", f"check=1 {state}", "liaison", f"{url}?check=1"
            )

    def _posts(self) -> Iterator[Visit]:
        """Yield checks and estimate of a copy of an existing request."""
        for state in ("draft", "queued"):
            data = _as_sent(Request.objects.get(key=self._requests[state]))
            for route in ("api:request-check", "api:request-estimate"):
                for role in ("liaison", "approver"):
                    yield self._visit(route, f"like one in {state}", role, reverse(route), data)

    def _offices(self) -> Iterator[Visit]:
        """Yield the lists of the admin: searched, reordered, their last page,
        and one row of each.
        """
        if "admin" not in self.roles:
            return
        for app in OFFICES:
            for model in (
                apps.get_app_config(app).get_models() if apps.is_installed(f"apps.{app}") else ()
            ):
                if model not in admin.site._registry:
                    continue
                name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
                rows = model._default_manager.order_by("-pk" if self.newest else "pk")
                last = f"p={max(1, -(-rows.count() // admin.site._registry[model].list_per_page))}"
                brief = ORDERS[:2] if admin.site._registry[model].search_fields else ORDERS[:1]
                for what in brief if self.brief else (*ORDERS, last):
                    label = "last page" if what == last else what
                    yield self._visit(
                        f"{name}_changelist",
                        label,
                        "admin",
                        f"{reverse(f'{name}_changelist')}?{what}",
                    )
                if row := rows.first():
                    yield self._visit(
                        f"{name}_change", "one", "admin", reverse(f"{name}_change", args=[row.pk])
                    )


def _token(role: str) -> str:
    return User.objects.get(username=ROLES[role]).notification_preferences.feed_token


def _last(model: type[Model], by: str) -> str:
    """Return the cursor of the last page of fifty."""
    row = list(model._default_manager.order_by(by, "pk")[:50])[-1]
    return _write(getattr(row, by), row.pk)


def _cursor(model: type[Model]) -> str:
    row = list(model._default_manager.order_by("pk")[:50])[-1]
    return base64.b64encode(urlencode({"p": row.pk}).encode()).decode()


def _as_sent(request: Request) -> str:
    """Return the body with which a client of the API writes this request."""
    content = content_of(request)
    stages = [
        {
            "kind": stage.kind,
            "services": list(stage.services),
            "arguments": dict(stage.arguments),
            **{name: getattr(stage, name) for name in STAGE_FIELDS},
        }
        for stage in content.stages
    ]
    fields = {name: getattr(content, name) for name in FIELDS} | {
        "arguments": dict(content.arguments)
    }
    sent = {
        "experiment": request.experiment.key,
        "workflow": content.workflow.key,
        "stages": stages,
        **fields,
    }
    return json.dumps(sent, default=str)


def keep(path: Path, few: dict[tuple[str, str, str], set[int]]) -> None:
    """Record the number of queries of each visit."""
    path.write_text(json.dumps([[*key, sorted(counts)] for key, counts in few.items()]))


def kept(path: Path) -> dict[tuple[str, str, str], set[int]]:
    return {
        (route, what, role): set(counts)
        for route, what, role, counts in json.loads(path.read_text())
    }
