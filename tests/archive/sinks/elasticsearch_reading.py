"""Reads documents as docs/elasticsearch.md says that they can be read,
without any code of the sink.
"""

import base64
from datetime import datetime
from typing import Any

from capture.wire.entry import CapturedJob


def job_of(document: dict[str, Any]) -> CapturedJob:
    document = document | dict.fromkeys(document.get("claimed", ()), "")  # as the environment says
    return CapturedJob(
        cluster=document["cluster"],
        scheduler=document["scheduler"],
        job_id=document["job_id"],
        submitted_at=datetime.fromisoformat(document["submitted_at"]),
        captured_at=datetime.fromisoformat(document["captured_at"]),
        script=_content(document, "script"),
        environment=base64.b64decode(document["environment_base64"]),
        request_key=document.get("request", ""),
        stage=document.get("stage", ""),
        masked_names=tuple(document.get("masked_names", ())),
        description=_content(document, "description"),
        **{
            name: document.get(name, "")
            for name in ("arguments", "user", "account", "name", "caveat")
        },
    )


def _content(document: dict[str, Any], name: str) -> bytes:
    exact = document.get(f"{name}_base64")
    return document.get(name, "").encode() if exact is None else base64.b64decode(exact)
