"""The page of a log: opens at the cause, folds, searches, steps, permalinks;
hostile and huge logs.
"""

import gzip
import time
from functools import partial
from unittest import mock

import pytest

from apps.accounts.models import User
from apps.core.bounded_pool import BudgetExceeded
from apps.core.domain.expressions import runs as expression_runs
from apps.diagnosis.domain.log_page.page import MOST_LINES, PageQuery, log_page
from apps.diagnosis.domain.log_page.rows import Fold, PageLine
from apps.diagnosis.domain.log_page.search import MOST_MARKS, MOST_MATCHES, LogSearch, search_log
from apps.diagnosis.domain.reading.log_texts import LogText, logs_of, open_log_text
from apps.diagnosis.domain.verdicts.harvest import harvest_log, queue_harvests
from apps.diagnosis.enums import Stream
from apps.diagnosis.models import LogHarvest
from tests.diagnosis.engine import slow_expressions
from tests.pumps import seconds_of

EVENTS = "".join(
    f"Begin processing the {n}th record. run: 32480\n" + ("DEBUG cache hit\n" if n % 3 == 0 else "")
    for n in range(900)
)
LOG = f"""Job 4711 on wn-7
==> 2026-11-22 06:20:48 phase 1/3: fetch input
ifdh cp in.raw
<== 2026-11-22 06:23:58 phase fetch input done, wall 190 s, cpu 3.1 s
==> 2026-11-22 06:23:58 phase 2/3: reco
{EVENTS}Art has completed
<== 2026-11-22 09:11:29 phase reco done, wall 10051 s, cpu 9000.0 s
==> 2026-11-22 09:11:29 phase 3/3: declare output
samweb declare <script>alert(1)</script>\u202e
[FATAL] Auth failed
cleaning up
"""


@pytest.fixture
def read(make_job, at):
    """Make a job with this log, harvested."""

    def make(log: str, number: int = 1, **fields):
        job = make_job(number, log=log, **fields)
        queue_harvests(job_pks=[job.pk], at=at)
        harvest_log(harvest=LogHarvest.objects.get(job=job), at=at)
        return job

    return make


def page_of(job, stream=None, user=None, **query):
    return log_page(job, user=user or User(pk=1), stream=stream, query=PageQuery(**query))


def rows_of(page):
    return [row for section in page.sections for row in section.rows]


def texts(page):
    return [
        "".join(piece.text for piece in row.pieces)
        for row in rows_of(page)
        if isinstance(row, PageLine)
    ]


def test_page_opens_at_the_cause_with_phases_and_folds(read):
    page = page_of(read(LOG))
    assert page.place == LOG.encode().index(b"[FATAL]")
    assert [(s.phase.name, s.phase.seconds, s.failed) for s in page.phases] == [
        ("fetch input", 190, False),
        ("reco", 10051, False),
        ("declare output", None, True),
    ]
    assert [error.mark.pattern for error in page.errors] == ["XRD-AUTH"]
    fold = max((row for row in rows_of(page) if isinstance(row, Fold)), key=lambda row: row.lines)
    assert fold.lines > 1000
    assert "× “Begin processing the”" in fold.text
    assert "300 debug" in fold.text
    assert len(texts(page)) < 60
    # Nothing is lost: what is shown and what is folded are all lines.
    assert sum(row.lines if isinstance(row, Fold) else 1 for row in rows_of(page)) == LOG.count(
        "\n"
    )
    numbers = {row.number for row in rows_of(page) if isinstance(row, PageLine)}
    assert LOG.split("\n").index("[FATAL] Auth failed") + 1 in numbers


def test_fold_opens_to_its_lines(read):
    job = read(LOG)
    fold = max(
        (row for row in rows_of(page_of(job)) if isinstance(row, Fold)), key=lambda row: row.lines
    )
    rows = rows_of(page_of(job, opened_fold=(fold.begin, fold.end)))
    assert len(rows) == 501
    assert rows[0].number == fold.number
    assert rows[-1].lines == fold.lines - 500
    assert rows[-1].end == fold.end
    rest = rows_of(page_of(job, opened_fold=(rows[-1].begin, rows[-1].end)))
    assert rest[0].offset == rows[-1].begin


def test_levels_lines_and_ranges(read):
    job = read(LOG)
    errors = page_of(job, level="error")
    assert texts(errors) == ["[FATAL] Auth failed"]
    assert errors.counts["debug"] == errors.hidden_debug == 300
    chosen = [
        row
        for row in rows_of(page_of(job, line=(10, 12)))
        if isinstance(row, PageLine) and row.is_selected
    ]
    assert [row.number for row in chosen] == [10, 11, 12]
    permalink = page_of(job, offset=chosen[0].offset, to=chosen[-1].offset)
    assert [
        row.number for row in rows_of(permalink) if isinstance(row, PageLine) and row.is_selected
    ] == [
        10,
        11,
        12,
    ]
    assert {row.number for row in rows_of(permalink) if isinstance(row, PageLine)} >= set(
        range(5, 23)
    )


def test_search_counts_all_matches_and_steps_through_them(read):
    job = read(LOG)
    page = page_of(job, search=LogSearch("BEGIN processing"))
    assert (page.match_steps.current, page.match_steps.count) == (1, 900)
    second = page_of(job, search=LogSearch("begin processing"), offset=page.match_steps.next)
    assert second.match_steps.current == 2
    assert any(
        piece.is_match
        for row in rows_of(second)
        if isinstance(row, PageLine)
        for piece in row.pieces
    )
    assert page_of(job, search=LogSearch("BEGIN", match_case=True)).match_steps.count == 0
    assert page_of(job, search=LogSearch(r"the 89\dth", regex=True)).match_steps.count == 10
    assert "RE2" in page_of(job, search=LogSearch(r"(?=x)", regex=True)).warning
    assert page_of(job, search=LogSearch("x*", regex=True)).warning


def test_costly_expression_ends_with_its_budget_and_the_page_says_so(read, client, shifter):
    job = read(slow_expressions.LOG)
    began = time.monotonic()
    page = page_of(job, search=LogSearch(slow_expressions.REGEX, regex=True))
    assert page.warning == "This is too costly: no result within 1 s. Use a simpler expression."
    assert time.monotonic() - began < 10
    assert texts(page)
    client.force_login(shifter)
    html = client.get(
        f"/jobs/{job.pk}/log/", {"find": "(?:a.{0,99}b){9}" * 6, "regex": "yes"}
    ).content.decode()
    assert "The expression is too costly: it compiles to 16,1" in html
    assert page_of(job, search=LogSearch("[ab]{60}", regex=True)).match_steps.count == 0


def test_expression_that_others_use_up_does_not_end_the_search_of_words(read, monkeypatch):
    job = read(LOG)
    monkeypatch.setattr(
        expression_runs.POOL,
        "call",
        mock.Mock(side_effect=BudgetExceeded("all processes are busy")),
    )
    assert (
        "Too many regular expressions are running"
        in page_of(job, search=LogSearch("8.th", regex=True)).warning
    )
    assert page_of(job, search=LogSearch("the 89th")).match_steps.count == 1


def test_search_goes_on_where_its_budget_ended(tmp_path):
    file = tmp_path / "log"
    file.write_bytes(
        b"x" * 3_000_000
        + b" needle\n"
        + b"plain line\n" * 300_000
        + b"needle\n" * (MOST_MATCHES + 1)
    )
    with file.open("rb") as opened:
        size = file.stat().st_size
        text = LogText(opened.fileno(), 0, size, size)
        first = search_log(text, LogSearch("needle"), user=User(pk=1), seconds=0)
        found, since = list(first.offsets), first.reached
        while since is not None:
            more = search_log(text, LogSearch("needle", since=since), user=User(pk=1), seconds=0)
            found, since = [*found, *more.offsets], more.reached
        assert sorted(set(found)) == sorted(found)
        assert len(found) == MOST_MATCHES + 2
        assert found[0] == 3_000_001


def test_compressed_log_is_read_beyond_its_excerpt(make_job, roots, at):
    job = make_job(1)
    (roots / "1.out").write_bytes(gzip.compress(LOG.encode() + b"tail line\n" * 20_000))
    queue_harvests(job_pks=[job.pk], at=at)
    harvest_log(harvest=LogHarvest.objects.get(), at=at)
    assert texts(page_of(job, offset=0))[0] == "Job 4711 on wn-7"
    (roots / "1.out").unlink()
    gone = page_of(job)
    assert "no such file" in gone.problem
    assert texts(gone)[-1] == "tail line"


def test_plain_lines_of_a_large_log_end_with_a_line_without_a_newline(read):
    job = read("a line of the log\n" * 70_000 + "the end")
    page = page_of(job, fold=False)
    lines = rows_of(page)
    assert texts(page)[-2:] == ["a line of the log", "the end"]
    assert (len(lines), lines[0].number, lines[-1].number) == (500, 69_502, 70_001)
    assert page.later is None


def test_huge_logs_and_lines_cost_a_window(read, roots):
    job = read("start\n")
    with (roots / "1.out").open("r+b") as file:
        file.truncate(4_000_000_000)  # one line of NULs, sparse
        file.seek(4_000_000_000)
        file.write(b"\n[FATAL] Auth failed\nthe end\n")
    page = page_of(job)
    assert texts(page)[-2:] == ["[FATAL] Auth failed", "the end"]
    assert rows_of(page_of(job, offset=2_000_000_000))[0].offset == 2_000_000_000 - 256
    with open_log_text(logs_of(job), Stream.STDOUT) as text:
        assert (
            search_log(text, LogSearch("Auth failed"), user=User(pk=1), seconds=0.05).reached
            is not None
        )


def test_lines_of_one_byte_cost_a_window(read):
    job = read("a\n" * 400_000 + "[FATAL] Auth failed\n" + "a\n" * 99_000)
    for query in ({}, {"offset": 0}, {"level": "error"}, {"opened_fold": (0, 900_000)}):
        assert seconds_of(partial(page_of, job, **query)) < 1.5
        page = page_of(job, **query)
        shown = sum(row.lines if isinstance(row, Fold) else 1 for row in rows_of(page))
        assert shown <= MOST_LINES
    around = page_of(job)
    assert "[FATAL] Auth failed" in texts(around)
    assert around.earlier is not None
    assert around.later is not None
    assert rows_of(page_of(job, opened_fold=(0, 900_000)))[-1].end == 900_000


def test_matches_that_are_marked_are_bounded(client, shifter, read):
    job = read("".join(f"{n:03} {'ab' * 490}\n" for n in range(500)))
    for query in ({"fold": True}, {"fold": False}):
        page = page_of(job, search=LogSearch("a"), **query)
        marks = [
            sum(piece.is_match for piece in row.pieces)
            for row in rows_of(page)
            if isinstance(row, PageLine)
        ]
        assert page.match_steps.count == 500
        assert sum(marks) <= MOST_MARKS
        assert min(marks) > 0
    client.force_login(shifter)
    read_page = partial(client.get, f"/jobs/{job.pk}/log/", {"find": "a", "fold": "no"})
    assert read_page().status_code == 200
    assert seconds_of(read_page) < 2


def test_search_stops_at_the_most_matches_of_a_window(read):
    job = read("a\n" * 100_000)
    with open_log_text(logs_of(job), Stream.STDOUT) as text:
        matches = search_log(text, LogSearch("a"), user=User(pk=1))
        assert len(matches.offsets) == MOST_MATCHES
        assert matches.reached == 2 * MOST_MATCHES
        more = search_log(text, LogSearch("a", since=matches.reached), user=User(pk=1))
        assert more.offsets[0] == matches.reached


def test_log_that_shrinks_while_it_is_read_is_shown_as_far_as_it_goes(read, roots):
    job = read(LOG)
    with open_log_text(logs_of(job), Stream.STDOUT) as text:
        (roots / "1.out").write_text("short\n")
        assert text.read(0, 10**6) == b"short\n"
        assert text.number_at(text.end) == 2
    assert texts(page_of(job, offset=10**9)) == ["short"]


def test_page_works_as_links_and_keeps_hostile_text_as_text(client, shifter, read):
    job = read(LOG)
    client.force_login(shifter)
    address = f"/jobs/{job.pk}/log/"
    html = client.get(address).content.decode()
    assert "<script>alert(1)</script>" not in html
    assert "⟨U+202E⟩" in html or "U+202E" in html
    assert f'#b{LOG.encode().index(b"[FATAL]")}" autofocus' in html
    for query in (
        {"find": "Auth"},
        {"find": "(", "regex": "yes"},
        {"level": "error"},
        {"line": "3-9"},
        {"fold": "no"},
    ):
        assert client.get(address, query).status_code == 200
    for query in (
        {"line": "99999999"},
        {"at": "9" * 18, "to": "1"},
        {"open": "5-2"},
        {"level": "x"},
        {"since": "-1"},
    ):
        assert client.get(address, query).status_code == 200
    wrong = ({"at": "x"}, {"line": "x"}, {"level": "x"}, {"stream": "x"})
    assert all(
        "is not a valid value of" in client.get(address, query).content.decode() for query in wrong
    )
    compared = client.get(f"/jobs/{job.pk}/log/compare/", {"with": "99999"}).content.decode()
    assert (
        "“99999” is not a valid value of “with”: expected the number of a job you may see."
        in compared
    )
    assert client.get(f"{address}raw/", {"stream": "x"}).status_code == 404
    part = client.get(address, {"open": "0-200"}, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert "Job 4711 on wn-7" in part
    raw = client.get(f"{address}raw/")
    assert b"".join(raw.streaming_content) == LOG.encode()
    assert raw["Content-Type"] == "text/plain; charset=utf-8"
    assert "attachment" in client.get(f"{address}raw/", {"download": "yes"})["Content-Disposition"]
