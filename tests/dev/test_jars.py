"""Fetching of Java servers, with a Maven that is made up."""

import os
from pathlib import Path

import pytest

from dev import jars
from dev.messages import SetupError

GOOD = """\
#!/bin/sh
for word; do case $word in -DoutputDirectory=*) mkdir "${word#*=}"; echo jar >"${word#*=}/one.jar";; esac; done
echo run >>"$(dirname "$0")/runs"
"""
BAD = """\
#!/bin/sh
echo "[WARNING] slow"; echo "[ERROR] no route to host"; exit 1
"""


@pytest.fixture
def maven(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(jars, "CACHE", tmp_path / "cache")

    def install(text):
        (programs / "mvn").write_text(text)
        (programs / "mvn").chmod(0o755)
        return programs

    return install


def fetch(prepare=lambda _: None) -> Path:
    return jars.server_home("server-1", ["org.example:server:1", "org.example:more:2"], prepare)


def test_server_is_fetched_once(maven):
    programs = maven(GOOD)
    prepared = []

    home = fetch(prepared.append)

    assert fetch(prepared.append) == home
    assert (home / "jars/one.jar").exists()
    assert "<artifactId>more</artifactId><version>2</version>" in (home / "pom.xml").read_text()
    assert (programs / "runs").read_text() == "run\n"
    assert len(prepared) == 1


def test_what_is_not_finished_is_not_used(maven):
    maven(GOOD)

    def fail(home):
        raise SetupError("no compiler")

    with pytest.raises(SetupError, match="no compiler"):
        fetch(fail)
    assert (fetch() / "jars/one.jar").exists()


def test_reason_is_told(maven):
    maven(BAD)
    with pytest.raises(SetupError, match=r"^mvn: \[ERROR\] no route to host$"):
        fetch()


def test_missing_maven_is_told_with_its_mend(maven, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(
        SetupError, match="mvn is not found: apt-get install default-jdk-headless maven"
    ):
        fetch()


def test_one_file_is_fetched_without_what_it_needs(maven, tmp_path):
    programs = maven('#!/bin/sh\necho "$@" >"$(dirname "$0")/arguments"\n')
    archive = jars.fetch_file("org.example:server:1:zip", tmp_path)
    assert archive == tmp_path / "server-1.zip"
    arguments = (programs / "arguments").read_text().split()
    assert "-Dartifact=org.example:server:1:zip" in arguments
    assert f"-DoutputDirectory={tmp_path}" in arguments


def test_file_of_a_classifier_has_it_in_its_name(maven, tmp_path):
    maven("#!/bin/sh\n")
    archive = jars.fetch_file("org.example:server:1:jar:all", tmp_path)
    assert archive == tmp_path / "server-1-all.jar"
