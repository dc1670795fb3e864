"""The counts of what is packed, and of variables that say nothing."""

import ast

from dev import plain

PACKED = """
a, b = 1, 2
c, d = pair()
e = [f for g in h for f in g]
i = {k: [l for l in m] for k in n}
o = p if q else r
for one in e:
    pass
"""


def test_packed_expressions_are_counted():
    assert plain.count_packed(PACKED) == {
        "tuple assignments": 2,
        "comprehensions": 3,
        "nested comprehensions": 2,
        "conditional expressions": 1,
    }


def test_long_lines_are_counted():
    assert plain.count_packed("a = 1  # " + "x" * 91 + "\n" + "b = 2  # " + "x" * 92) == {
        "lines over 100 columns": 1
    }


def test_vague_variables_and_parameters_are_named_with_their_line():
    source = "found = 1\n\n\ndef f(given, **words):\n    return [each for each in given]\n"
    assert sorted(plain.vague_names(source)) == [
        (1, "found"),
        (4, "given"),
        (4, "words"),
        (5, "each"),
    ]


def test_attributes_of_classes_are_no_variables():
    assert list(plain.vague_names("class Part:\n    words: str\n    found = 1\n")) == []
    assert list(plain.vague_names("class Part:\n    def f(self):\n        found = 1\n")) == [
        (3, "found")
    ]


def test_every_module_but_migrations_is_judged():
    paths = list(plain.modules())
    assert len(paths) > 700
    assert not [path for path in paths if "migrations" in path.parts]
    for path in paths[:3]:
        ast.parse(path.read_text())


def test_code_above_a_limit_fails(monkeypatch, capsys):
    few = list(plain.modules())[:20]
    monkeypatch.setattr(plain, "modules", lambda: few)
    monkeypatch.setitem(plain.MOST_PER_1000_LINES, "comprehensions", 0)
    assert plain.main() == 1
    assert "too many: comprehensions" in capsys.readouterr().out
