"""Every kind of event is declared once, by the app that publishes it, in words that read well."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.core.domain import event_kinds
from apps.core.domain.event_kinds import (
    EventKind,
    UndeclaredEvent,
    declare,
    declared_kinds,
    kind_named,
    what_was_done,
)
from apps.core.domain.events import publish
from apps.core.enums import Audience
from apps.core.models import Event, Heartbeat
from apps.production.enums import Verb
from apps.production.events import kind_of_move

ROOT = Path(__file__).parents[2]
APPS = sorted(path.name for path in (ROOT / "apps").iterdir() if (path / "__init__.py").exists())
KINDS = {kind.name: kind for kind in declared_kinds()}


def trees(app: str) -> Iterator[ast.Module]:
    for path in sorted((ROOT / "apps" / app).rglob("*.py")):
        if "migrations" not in path.parts and path.name != "events.py":
            yield ast.parse(path.read_text())


def called(node: ast.AST) -> str:
    """The name of the function that is called: `publish` of `events.publish(…)`."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def texts(node: ast.AST) -> set[str]:
    """The texts of an expression that look like a kind: `a.b`, also as a choice of two,
    or in a table.
    """
    found = {
        inner.value
        for inner in ast.walk(node)
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    }
    return {text for text in found if re.fullmatch(r"[a-z_]+\.[a-z_]+", text)}


class Publishing:
    """What an app may publish: each `kind=` of `publish`, traced to the texts that can reach it."""

    def __init__(self, app: str) -> None:
        self.trees = list(trees(app))
        self.kinds: set[str] = set()
        self.unclear: list[str] = []
        for tree in self.trees:
            for function in ast.walk(tree):
                if isinstance(function, ast.FunctionDef):
                    self.read(function)

    def read(self, function: ast.FunctionDef) -> None:
        for node in ast.walk(function):
            if called(node) in {"publish", "new_event"}:
                kind = next(keyword.value for keyword in node.keywords if keyword.arg == "kind")
                found = self.reaching(kind, function)
                self.kinds |= found
                if not found and function.name != "publish":
                    self.unclear.append(f"{function.name}: {ast.unparse(kind)}")

    def reaching(self, kind: ast.expr, function: ast.FunctionDef) -> set[str]:
        if called(kind) == "kind_of_move":
            return {kind_of_move(verb) for verb in Verb}
        if isinstance(kind, ast.Attribute):  # of the class: a table of its own or of a subclass
            return self.assigned(kind.attr)
        if not isinstance(kind, ast.Name):
            return texts(kind)
        parameters = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
        if kind.id in parameters:
            return self.passed(function.name, kind.id, parameters.index(kind.id))
        return {
            text
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for text in texts(node)
        }

    def assigned(self, name: str) -> set[str]:
        kinds = set()
        for tree in self.trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and name in ast.unparse(node.targets[0]):
                    kinds |= texts(node.value)
                    if isinstance(node.value, ast.DictComp):
                        kinds |= self.of_column(node.value.value)
        return kinds

    def of_column(self, value: ast.expr) -> set[str]:
        """The kinds in one column of a table of objects: `event` of `WAIT_KINDS[kind].event`."""
        kinds = set()
        if isinstance(value, ast.Attribute):
            for tree in self.trees:
                for node in ast.walk(tree):
                    if isinstance(node, ast.keyword) and node.arg == value.attr:
                        kinds |= texts(node.value)
        return kinds

    def passed(self, function: str, parameter: str, position: int) -> set[str]:
        """What callers hand to a function as its kind; where they look it up in a table,
        all of the table.
        """
        found = set()
        for call in (
            node for tree in self.trees for node in ast.walk(tree) if called(node) == function
        ):
            given = [
                keyword.value for keyword in call.keywords if keyword.arg == parameter
            ] or call.args[position:][:1]
            for one in given:
                table = (
                    one.value.id
                    if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name)
                    else ""
                )
                found |= self.assigned(table) if table else texts(one)
        return found


def declared_in(app: str) -> set[str]:
    """The names that an app's `events.py` declares."""
    path = ROOT / "apps" / app / "events.py"
    calls = ast.walk(ast.parse(path.read_text())) if path.exists() else ()
    return {call.args[0].value for call in calls if called(call) == "EventKind"}


@pytest.mark.parametrize("app", APPS)
def test_app_publishes_what_it_declares_and_nothing_else(app):
    publishing = Publishing(app)
    assert publishing.unclear == []
    assert publishing.kinds == declared_in(app)


def test_declarations_are_all_known():
    assert {name for app in APPS for name in declared_in(app)} == set(KINDS)


def test_undeclared_kind_cannot_be_published(db, at):
    target = Heartbeat.objects.create(name="x", at=at)
    with pytest.raises(UndeclaredEvent, match=r"declares the kind heart\.broke"):
        publish(kind="heart.broke", target=target, by="test", at=at)
    assert not Event.objects.exists()


def test_kind_is_declared_once():
    with pytest.raises(ValueError, match=r"two kinds of events are named request\.approve"):
        declare(EventKind("request.approve", "did it", "was done"))


def test_words_are_a_predicate_without_a_full_stop():
    words = [
        each
        for kind in KINDS.values()
        for each in (kind.did, kind.predicate, *kind.predicate_for.values())
    ]
    assert [
        word for word in words if not re.fullmatch(r"[a-z].*[^. ]", word) or len(word) > 80
    ] == []
    begins = r"(was|were|is|has|had|needs|did|failed|passed|lost|waits|continues|reports|stopped) "
    assert [kind for kind in KINDS.values() if not re.match(begins, kind.predicate + " ")] == []


def test_only_events_of_requests_holds_failures_proposals_and_webhooks_notify():
    unwatched = {Audience.MENTIONED, Audience.OWNER}
    for kind in KINDS.values():
        is_of_failures = kind.name.startswith(("group.", "impact.", "line.", "report.weekly"))
        is_of_proposals = kind.name.startswith(("known_error.", "pack.", "recovery."))
        others = unwatched | ({Audience.OPERATORS, Audience.LIAISONS} if is_of_failures else set())
        others |= {Audience.APPROVERS, Audience.REQUESTER} if is_of_proposals else set()
        has_recipients = (
            is_of_failures
            or is_of_proposals
            or kind.name.startswith(("request.", "hold.", "webhook.", "experiment."))
        )
        assert not kind.notifies or has_recipients, kind
        assert Audience.WATCHERS in kind.notifies or kind.notifies.keys() <= others, kind


def test_values_of_the_event_are_filled_in_and_missing_ones_are_a_dash():
    event = Event(kind="submission.limit_set", old="100", new="200", data={})
    assert what_was_done(event) == "changed the limit of concurrent jobs: 100 → 200"
    assert (
        what_was_done(Event(kind="submission.sent", data={"stage": "reco {x}"}))
        == "submitted jobs of reco {x}"
    )
    assert what_was_done(Event(kind="submission.sent", data={})) == "submitted jobs of –"


def test_event_of_an_app_that_is_gone_is_told_by_its_name(monkeypatch):
    monkeypatch.delitem(event_kinds._kinds, "request.approve")
    assert what_was_done(Event(kind="request.approve")) == "approve"
    with pytest.raises(UndeclaredEvent):
        kind_named("request.approve")


def test_stored_event_of_a_former_name_is_worded_as_the_new_one():
    assert what_was_done(Event(kind="harvest.asked")) == "requested a re-analysis of the log"
    with pytest.raises(UndeclaredEvent):
        kind_named("harvest.asked")
