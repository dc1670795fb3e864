"""Synthetic production: users, requests in every state and their related rows, written in bulk.

`Filler(stages=8).add(count)` may be called again to add more; the rows equal those that the domain
functions write.
"""

import itertools
import random
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.contrib.auth.hashers import make_password

from apps.accounts.domain.experiments import ensure_experiment
from apps.accounts.enums import Role
from apps.accounts.models import Experiment, Membership, User
from apps.clusters.models import Cluster, Site
from apps.core.models import Event
from apps.jobs.models import Collection, QueueReading
from apps.notifications.models import Follow, Message, Notification, Preferences, Webhook
from apps.production.domain.content.model import FIELDS, STAGE_FIELDS, RequestContent, StageContent
from apps.production.domain.content.serialization import plain
from apps.production.domain.priority.rescoring import read_shares, score_entry
from apps.production.domain.types.versions import (
    load_builtin_workflows,
    newest_version,
    workflow_of,
)
from apps.production.enums import CLOSED, SCORED, SIGNED, RequestState, Verb
from apps.production.models import (
    ApprovalGroup,
    ApprovalRule,
    Comment,
    Delegation,
    QueueEntry,
    QueueState,
    Reminder,
    Request,
    RequestCounter,
    RequestRevision,
    RequestTemplate,
    Signature,
    Stage,
    WorkflowVersion,
)
from apps.statusboard.domain.states.history import rebuild
from apps.statusboard.models import DowntimeWindow, Service
from benchmarks.production_ends import Ends
from benchmarks.production_runs import Runs

S = RequestState
#: Each state in turn; many wait for signatures and in the queue, as those are what pages must sort
#: and count.
STATES = (
    *S,
    *(S.AWAITING_APPROVAL, S.QUEUED, S.QUEUED, S.QUEUED, S.RUNNING, S.DONE, S.ON_HOLD),
)
#: How a request came into its state.
WAY = {
    S.SUBMITTED: (S.DRAFT, Verb.SUBMIT),
    S.CHECKING: (S.SUBMITTED, Verb.CHECK),
    S.AWAITING_APPROVAL: (S.CHECKING, Verb.PASS),
    S.CHANGES_REQUESTED: (S.AWAITING_APPROVAL, Verb.REQUEST_CHANGES),
    S.REJECTED: (S.AWAITING_APPROVAL, Verb.REJECT),
    S.APPROVED: (S.AWAITING_APPROVAL, Verb.APPROVE),
    S.QUEUED: (S.APPROVED, Verb.QUEUE),
    S.TESTING: (S.QUEUED, Verb.TEST),
    S.RUNNING: (S.QUEUED, Verb.START),
    S.ON_HOLD: (S.RUNNING, Verb.HOLD),
    S.COMPLETING: (S.RUNNING, Verb.COMPLETE),
    S.DATA_QUALITY: (S.COMPLETING, Verb.REVIEW),
    S.DONE: (S.DATA_QUALITY, Verb.DONE),
    S.DONE_PARTIAL: (S.DATA_QUALITY, Verb.DONE_PARTIAL),
    S.CANCELLED: (S.QUEUED, Verb.CANCEL),
    S.SUPERSEDED: (S.QUEUED, Verb.SUPERSEDE),
}
KINDS = ("generation", "simulation", "reconstruction", "merge")
GROUPS = ("Computing", "Physics", "Simulation")
#: One experiment has every other request, the rest share the others.
LARGEST = 2


@dataclass
class Filler:
    """Fills a database; `at` is now."""

    at: datetime
    stages: int = 8
    experiments: int = 30
    size: int = 1
    """How much of the rest hangs on a request: threads, signatures withdrawn, retries, jobs."""
    made: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.choose = random.Random(5)
        load_builtin_workflows(at=self.at)
        self.versions = [newest_version("monte_carlo"), newest_version("general")]
        self.workflows = {version.pk: workflow_of(version) for version in self.versions}
        self._places()
        self._people()
        self._rules()

    def add(self, count: int) -> list[Request]:
        """Add this number of requests with their related rows; return them."""
        first = len(self.made)
        requests = [self._request(number) for number in range(first, first + count)]
        Request.objects.bulk_create(requests, batch_size=1000)
        self._counters(requests)
        self._close(requests)
        stages = self._stages(requests)
        events = self._events(requests)
        self._writing(requests)
        self._signatures(requests)
        self._talk(requests)
        self._queue(requests)
        Runs(self, stages).add(requests)
        Ends(self).add(requests)
        self._tell(events)
        self.made += requests
        return requests

    # -- what is there before any request

    def _places(self) -> None:
        self.of = [
            ensure_experiment(key=f"EXP{n:02d}", name=f"Experiment {n}", by="fill", at=self.at)
            for n in range(self.experiments)
        ]
        since = self.at - timedelta(days=400)
        Service.objects.bulk_create(
            Service(
                slug=f"service-{n}", name=f"Service {n}", monitoring="manual", monitored_since=since
            )
            for n in range(12)
        )
        self.services = list(Service.objects.order_by("pk"))
        window = DowntimeWindow.objects.create(
            title="Move",
            starts_at=self.at + timedelta(days=3),
            ends_at=self.at + timedelta(days=4),
            scheduled_by="x",
        )
        window.services.set(self.services[:3])
        rebuild(service_ids=[service.pk for service in self.services])
        self.sites = Site.objects.bulk_create(Site(name=f"Site {n}") for n in range(5))
        self.clusters = Cluster.objects.bulk_create(
            Cluster(
                name=f"cluster-{n}",
                scheduler="simulated",
                site=self.sites[n],
                max_memory_bytes=64 * 10**9,
                max_wall_seconds=86_400,
                submits=True,
            )
            for n in range(3)
        )
        Collection.objects.bulk_create(
            Collection(
                cluster=cluster,
                collected_until=self.at,
                last_run_at=self.at,
                last_success_at=self.at,
            )
            for cluster in self.clusters
        )
        QueueReading.objects.bulk_create(
            QueueReading(cluster=cluster, at=self.at) for cluster in self.clusters
        )

    def _people(self) -> None:
        password = make_password("correct horse battery staple")
        roles: list[tuple[str, Role, Experiment | None]] = []
        for n, experiment in enumerate(self.of):
            roles += [(f"liaison-{n}-{m}", Role.LIAISON, experiment) for m in range(3)]
            roles += [
                (f"signer-{n}", Role.APPROVER, experiment),
                (f"watch-{n}", Role.SHIFTER, experiment),
            ]
        roles += [
            (f"{role}-{n}", role, None)
            for role in (Role.APPROVER, Role.SHIFTER, Role.ADMIN)
            for n in range(6)
        ]
        names = ["nobody", *(name for name, _, _ in roles)]
        staff = {name for name, role, of in roles if role is Role.ADMIN}
        User.objects.bulk_create(
            User(
                username=name, password=password, is_staff=name in staff, is_superuser=name in staff
            )
            for name in names
        )
        self.people = {user.username: user for user in User.objects.filter(username__in=names)}
        Membership.objects.bulk_create(
            Membership(user=self.people[name], role=role, experiment=of) for name, role, of in roles
        )
        Preferences.objects.bulk_create(
            Preferences(user=user, feed_name=uuid.uuid4().hex) for user in self.people.values()
        )
        Webhook.objects.bulk_create(
            Webhook(
                experiment=of,
                url="https://chat.example.org/",
                nonce="x",
                created_at=self.at,
                created_by=self.people["admin-0"],
            )
            for of in self.of
        )

    def _rules(self) -> None:
        self.groups = ApprovalGroup.objects.bulk_create(ApprovalGroup(name=name) for name in GROUPS)
        for n, group in enumerate(self.groups):
            group.members.set([self.people[f"approver-{n}"], self.people["approver-0"]])
        rule = ApprovalRule.objects.create(workflow=self.versions[0].type)
        rule.groups.set(self.groups)
        pairs = itertools.permutations([self.people[f"approver-{n}"] for n in range(6)], 2)
        Delegation.objects.bulk_create(
            Delegation(
                from_user=one,
                to_user=other,
                from_at=self.at - timedelta(days=n % 5 + 1),
                until_at=self.at + timedelta(days=n % 4 - 1, hours=1),
                created_at=self.at - timedelta(days=10),
            )
            for n, (one, other) in enumerate(pairs)
        )

    # -- requests

    def _request(self, number: int) -> Request:
        state, round_ = STATES[number % len(STATES)], number // len(STATES)
        n = 0 if round_ % LARGEST == 0 else 1 + (round_ // LARGEST) % (self.experiments - 1)
        version = self.versions[(number // 3) % 2]
        content = self._content(number, version)
        created = self.at - timedelta(minutes=200 + 37 * (5_000 - number % 5_000))
        by, boss = (
            self.people[f"liaison-{n}-{number % 3}"],
            self.people[f"approver-{number % 5 + 1}"],
        )
        sent = created + timedelta(minutes=20) if state != S.DRAFT else None
        signed = (
            created + timedelta(minutes=40)
            if state in (*SIGNED, S.SUPERSEDED, S.CANCELLED)
            else None
        )
        closed = created + timedelta(minutes=120) if state in CLOSED else None
        request = Request(
            key=f"EXP{n:02d}-{number + 1:04d}",
            experiment=self.of[n],
            workflow=version,
            arguments=dict(content.arguments),
            state=S.CANCELLED if state == S.SUPERSEDED else state,  # until it has a successor
            held_from=S.RUNNING if state == S.ON_HOLD else "",
            priority=number % 9 + 1 if state in SIGNED and number % 4 else None,
            priority_class=("", "normal", "high", "urgent")[number % 4] if state in SIGNED else "",
            version=number % 7 + 1,
            created_at=created,
            created_by=by,
            submitted_at=sent,
            submitted_by=by if sent else None,
            approved_at=signed,
            approved_by=boss if signed else None,
            closed_at=closed,
            closed_by=by if closed else None,
            **{name: getattr(content, name) for name in FIELDS},
        )
        request.end, request.content, request.way = state, content, _way(state)
        return request

    def _content(self, number: int, version: WorkflowVersion) -> RequestContent:
        workflow, chain = self.workflows[version.pk], version is self.versions[0]
        stages = tuple(self._stage(number, position, chain) for position in range(self.stages))
        runs = {
            "run_block": f"{1000 * number + 1}-{1000 * number + 900}",
            "first_seed": 4000 * number + 1,
        }
        return RequestContent(
            workflow=workflow,
            arguments=runs if chain else {},
            title=f"{('ND rock muons', 'FD cosmics', 'Beam neutrinos')[number % 3]} {number}",
            purpose="For the December analysis freeze. " * 5,
            deadline=(self.at + timedelta(days=30 + number % 60)).date(),
            requested_priority=("low", "normal", "high", "urgent")[number % 4],
            priority_reason="The conference." if number % 4 > 1 else "",
            stages=stages,
        )

    def _stage(self, number: int, position: int, chain: bool) -> StageContent:
        kind = KINDS[min(position, 2)] if position + 1 < self.stages else KINDS[3]
        name = kind if position < 3 else f"{kind}_{position}"
        tier = ("gen", "sim", "reco")[min(position, 2)]
        more = {
            "output_type": tier,
            "geometry": "v12",
            **({"input_type": "gen"} if position else {"generator": "G"}),
        }
        return StageContent(
            kind=kind if chain else "stage",
            name=name,
            release=f"v09_{number % 90:02d}",
            configuration=f"prod_{name}_{number % 11}.fcl",
            events=4_000_000,
            jobs=400,
            memory_bytes=4 * 10**9,
            wall_seconds=8 * 3600,
            output_dataset=f"exp.mc.{number}.{name}",
            services=("service-0", f"service-{1 + number % 11}"),
            arguments=more if chain else {},
        )

    def _counters(self, requests: list[Request]) -> None:
        for experiment in {request.experiment for request in requests}:
            RequestCounter.objects.update_or_create(experiment=experiment, defaults={"last": 9_000})

    def _close(self, requests: list[Request]) -> None:
        """Set the successor of each superseded request, and the original of some clones."""
        superseded = [request for request in requests if request.end == S.SUPERSEDED]
        for request in superseded:
            others = [
                candidate
                for candidate in requests
                if candidate.experiment_id == request.experiment_id and candidate is not request
            ]
            request.state, request.superseded_by = S.SUPERSEDED, others[0]
        Request.objects.bulk_update(superseded, ["state", "superseded_by"], batch_size=500)
        copies = [request for n, request in enumerate(requests) if n % 10 == 9]
        for request in copies:
            request.cloned_from = next(
                candidate
                for candidate in requests
                if candidate.experiment_id == request.experiment_id
            )
        Request.objects.bulk_update(copies, ["cloned_from"], batch_size=500)

    def _stages(self, requests: list[Request]) -> dict[int, list[Stage]]:
        rows = [
            Stage(
                request=request,
                position=position,
                kind=stage.kind,
                arguments=dict(stage.arguments),
                **{name: getattr(stage, name) for name in STAGE_FIELDS},
            )
            for request in requests
            for position, stage in enumerate(request.content.stages)
        ]
        Stage.objects.bulk_create(rows, batch_size=2000)
        ids = {service.slug: service.pk for service in self.services}
        through = Stage.services.through
        through.objects.bulk_create(
            (
                through(stage_id=row.pk, service_id=ids[slug])
                for row in rows
                for slug in row.request.content.stages[row.position].services
            ),
            batch_size=5000,
        )
        stages_by_request: dict[int, list[Stage]] = {}
        for row in rows:
            stages_by_request.setdefault(row.request_id, []).append(row)
        return stages_by_request

    # -- what happened to them

    def _events(self, requests: list[Request]) -> list[tuple[Event, Request]]:
        rows = [(event, request) for request in requests for event in self._events_of(request)]
        Event.objects.bulk_create([event for event, _ in rows], batch_size=2000)
        return rows

    def _events_of(self, request: Request) -> list[Event]:
        liaison, boss = str(request.created_by), "approver-2"
        changed = [
            {"path": f"stages.{n}.jobs", "old": "300", "new": "400"} for n in range(self.stages)
        ]
        told = [("created", liaison, "", S.DRAFT, "", {})]
        told += [("edited", liaison, "", "", "", {"changes": changed, "count": len(changed)})] * 3
        if request.end != S.DRAFT:
            told.append(
                ("priority_set", boss, "3", "5", "The freeze.", {"rank_old": 9, "rank_new": 4})
            )
        for old, verb, new in request.way:
            data = {"checks": [], "checks_count": 0} if verb is Verb.PASS else {}
            told.append(
                (
                    verb.name.lower(),
                    boss if old in SIGNED else liaison,
                    old,
                    new,
                    "It is time.",
                    data,
                )
            )
        return [
            Event(
                kind=f"request.{kind}",
                target_type="production.request",
                target_id=str(request.pk),
                target_label=request.key,
                actor=actor,
                at=request.created_at + timedelta(minutes=3 * n),
                old=old,
                new=new,
                reason=reason,
                data=data,
            )
            for n, (kind, actor, old, new, reason, data) in enumerate(told)
        ]

    def _writing(self, requests: list[Request]) -> None:
        RequestRevision.objects.bulk_create(
            (
                RequestRevision(
                    request=request,
                    version=version,
                    content=plain(request.content),
                    begun_at=request.created_at,
                    at=request.created_at + timedelta(minutes=version),
                    by=str(request.created_by),
                    is_submitted=version == 3 and request.end != S.DRAFT,
                )
                for request in requests
                for version in range(1, 4)
            ),
            batch_size=1000,
        )
        RequestTemplate.objects.bulk_create(
            RequestTemplate(
                experiment=request.experiment,
                name=f"Like {request.key}",
                workflow_key=request.content.workflow.key,
                workflow_number=request.content.workflow.number,
                content=plain(request.content),
                saved_at=self.at,
                saved_by="x",
            )
            for n, request in enumerate(requests)
            if n % 25 == 0
        )
        Reminder.objects.bulk_create(
            Reminder(request=request, state=request.state, since=request.submitted_at, at=self.at)
            for request in requests
            if request.end == S.AWAITING_APPROVAL
        )

    def _signatures(self, requests: list[Request]) -> None:
        rows = []
        for request in requests:
            groups = self.groups if request.workflow_id == self.versions[0].pk else [None]
            if request.end == S.AWAITING_APPROVAL:
                rows += [self._signature(request, group, held=False) for group in groups]
                rows += [self._signature(request, groups[0], held=True)] if groups[0] else []
            elif request.end in SIGNED:
                rows += [self._signature(request, group, held=True) for group in groups]
        Signature.objects.bulk_create(rows, batch_size=1000)

    def _signature(self, request: Request, group: ApprovalGroup | None, *, held: bool) -> Signature:
        gone = (
            {}
            if held
            else {
                "withdrawn_at": self.at,
                "withdrawn_by": "x",
                "withdrawn_reason": "It was changed.",
            }
        )
        return Signature(
            request=request,
            group=group,
            group_name=group.name if group else "",
            by=self.people["approver-5"],
            made_by=request.created_by,
            sent_by=request.submitted_by,
            at=request.created_at + timedelta(minutes=30),
            version=1,
            content=plain(request.content),
            **gone,
        )

    def _queue(self, requests: list[Request]) -> None:
        """Score them as the domain functions do, except for the estimate of their size,
        which is slow.
        """
        shares, entries = read_shares(), []
        for request in requests:
            if request.end in SCORED:
                size = {
                    "core_seconds": 400.0 * 7200 * self.stages,
                    "days": 3.5,
                    "size_basis": "3,200 past jobs",
                }
                entry = QueueEntry(request=request, tie=float(request.pk), sized_at=self.at, **size)
                entry.sized_version = request.version
                score_entry(entry, shares, self.at)
                entries.append(entry)
        QueueEntry.objects.bulk_create(entries, batch_size=1000)
        QueueState.objects.update_or_create(
            pk=1,
            defaults={
                "scored_at": self.at,
                "starts": 40,
                "starts_days": 60,
                "work_by_day": [3.6e8] * 30,
                "changed_by": "approver-1",
            },
        )

    def _talk(self, requests: list[Request]) -> None:
        def said(request: Request, text: str, thread: Comment | None = None) -> Comment:
            by = self.people["approver-3"] if thread else request.created_by
            return Comment(
                request=request,
                thread=thread,
                place="Title",
                field="title",
                text=text,
                by=by,
                at=self.at,
            )

        first = [
            said(request, "Is @approver-3 content?")
            for request in requests
            for _ in range(1 + self.size)
        ]
        Comment.objects.bulk_create(first, batch_size=1000)
        answers = [
            said(comment.request, "Yes.", comment) for comment in first for _ in range(self.size)
        ]
        Comment.objects.bulk_create(answers, batch_size=1000)
        # The newest begins a thread as the first does, because their pages are compared.
        said(requests[-1], "Thanks.").save()

    def _tell(self, events: list[tuple[Event, Request]]) -> None:
        """Notify the requester and some others of every move of a request."""
        moved = [(event, request) for event, request in events if event.new]
        others = [
            self.people[name] for name in ("approver-0", "approver-1", "shifter-0", "admin-0")
        ]
        rows, mails = [], []
        for n, (event, request) in enumerate(moved):
            for user in (request.created_by, others[n % 4]):
                read = self.at if n % 5 else None
                rows.append(
                    Notification(
                        user=user,
                        event=event,
                        request=request,
                        group="turn",
                        at=event.at,
                        read_at=read,
                    )
                )
            if n % 4 == 0:
                mails.append(
                    Message(
                        channel="mail",
                        user=request.created_by,
                        event=event,
                        state="sent",
                        created_at=event.at,
                        due_at=event.at,
                        sent_at=event.at,
                    )
                )
        Notification.objects.bulk_create(rows, batch_size=2000)
        Message.objects.bulk_create(mails, batch_size=2000)
        Follow.objects.bulk_create(
            Follow(user=others[n % 4], request=request, level="watching")
            for n, request in enumerate(dict.fromkeys(request for _, request in moved))
        )


def _way(state: RequestState) -> list[tuple[str, Verb, str]]:
    """Return the moves from draft to this state."""
    if state == S.DRAFT:
        return []
    before, verb = WAY[state]
    return [*_way(before), (before, verb, state)]
