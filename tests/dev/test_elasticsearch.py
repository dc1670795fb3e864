"""The Elasticsearch of the tests starts with the classes of an earlier start."""

import subprocess
from pathlib import Path

import pytest

from dev import elasticsearch as dev_elasticsearch
from dev import jars

pytestmark = [pytest.mark.elasticsearch, pytest.mark.xdist_group("elasticsearch")]


def test_server_reads_kept_classes(elasticsearch):
    archive = jars.CACHE / f"elasticsearch-{dev_elasticsearch.VERSION}-classes" / "classes"
    pid = elasticsearch._server.pid()
    assert str(archive) in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("content", [None, b"", b"no classes"], ids=["missing", "empty", "broken"])
def test_java_starts_without_kept_classes(tmp_path, content):
    archive = tmp_path / "classes"
    if content is not None:
        archive.write_bytes(content)
    java = ["java", f"-XX:SharedArchiveFile={archive}", "-version"]
    assert subprocess.run(java, capture_output=True, check=False).returncode == 0


def test_server_starts_where_classes_cannot_be_kept(tmp_path, monkeypatch):
    no_directory = tmp_path / "file"
    no_directory.touch()
    monkeypatch.setattr(jars, "CACHE", no_directory)
    assert dev_elasticsearch._use_classes(Path("home")) == "-Xshare:auto"
