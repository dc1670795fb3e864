import pytest

from apps.archive.domain.shown_contents import (
    SHOWN_BYTES,
    SHOWN_LINES,
    ShownEnvironment,
    Variable,
    show_environment,
    show_script,
)
from tests.archive.spool_writer import environment_bytes


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        (b"#!/bin/sh\nls\n", ["#!/bin/sh", "ls"]),
        (b"no newline", ["no newline"]),
        (b"", [""]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\n\xff\t\x1b[31m\n", ["a\\r", "\\xff\t\\x1b[31m"]),
        ("x = 1 \u202e# hidden\n".encode(), ["x = 1 \\u202e# hidden"]),
        ("é日\n".encode(), ["é日"]),
    ],
)
def test_script_is_shown_line_by_line_with_nothing_hidden(script, lines):
    shown = show_script(script, size_bytes=len(script))

    assert (shown.lines, shown.whole) == (lines, True)


def test_long_script_is_shown_in_part():
    many_lines, one_line = b"\n" * (SHOWN_LINES + 5), b"x" * SHOWN_BYTES

    assert len(show_script(many_lines, size_bytes=len(many_lines)).lines) == SHOWN_LINES
    assert not show_script(many_lines, size_bytes=len(many_lines)).whole
    assert not show_script(one_line, size_bytes=SHOWN_BYTES + 1).whole
    assert show_script(one_line, size_bytes=SHOWN_BYTES).whole


def test_environment_is_shown_by_name_with_masked_values_marked():
    environment = environment_bytes(
        [("B", "x=y\nz"), ("A", "<masked:0123456789abcdef>"), ("C", b"\xff")]
    )

    assert show_environment(environment, size_bytes=len(environment)) == ShownEnvironment(
        [
            Variable("A", "<masked:0123456789abcdef>", masked=True),
            Variable("B", "x=y\nz", masked=False),
            Variable("C", "\\xff", masked=False),
        ],
        whole=True,
    )


def test_huge_environment_is_shown_in_part():
    environment = environment_bytes([("A", "1"), ("B", "x" * SHOWN_BYTES), ("C", "3")])

    shown = show_environment(environment, size_bytes=len(environment))

    assert (shown.variables, shown.whole) == ([Variable("A", "1", masked=False)], False)


@pytest.mark.parametrize("environment", [b"", b"\1\0", b"\0\0\0\0"])
def test_environment_without_variables_is_empty(environment):
    assert show_environment(environment, size_bytes=len(environment)) == ShownEnvironment(
        [], whole=True
    )


def test_environment_of_countless_variables_is_shown_in_part():
    shown = show_environment(b"\0\0\0\0" + b"\0" * 100_000, size_bytes=100_004)
    assert (len(shown.variables), shown.whole) == (5_000, False)
