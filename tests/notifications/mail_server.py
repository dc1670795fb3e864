"""A real mail server on a real port, in a process of its own that can be killed:
`python -m tests.notifications.mail_server PORT DIR`.

Each mail that it says yes to is a file in DIR. What the file `mode` there says it does instead:
`refuse` the recipient for good, `defer` it, `reject` the contents, or `vanish` after the mail was
kept, before the yes.
"""

import asyncio
import email
import os
import signal
import socket
import subprocess
import sys
import time
from email.message import Message
from pathlib import Path

from dev.processes import free_port

ROOT = Path(__file__).parents[2]


class Keeper:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def mode(self) -> str:
        path = self.directory / "mode"
        return path.read_text() if path.exists() else ""

    async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: N802
        if (
            answer := {"refuse": "550 no such person", "defer": "450 later"}.get(self.mode())
        ) is not None:
            return answer
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        if self.mode() == "reject":
            return "554 not like this"
        number = len(list(self.directory.glob("*.eml")))
        (self.directory / f"{number:05d}.eml").write_bytes(
            b"X-To: " + ",".join(envelope.rcpt_tos).encode() + b"\r\n" + envelope.content
        )
        if self.mode() == "vanish":
            os.kill(os.getpid(), signal.SIGKILL)
        return "250 kept"


class MailServerProcess:
    """Starts and kills the server; it comes back on the same port, and keeps what it had."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    def start(self) -> None:
        module = "tests.notifications.mail_server"
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, str(self.port), str(self.directory)], cwd=ROOT
        )
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                assert self.process.poll() is None
                time.sleep(0.05)
        raise TimeoutError("the mail server does not listen")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=20)
            self.process = None

    def behave(self, mode: str) -> None:
        (self.directory / "mode").write_text(mode)

    @property
    def mails(self) -> list[Message]:
        paths = sorted(self.directory.glob("*.eml"))
        return [email.message_from_bytes(path.read_bytes()) for path in paths]


def text_of(mail: Message) -> str:
    part = next(part for part in mail.walk() if part.get_content_type() == "text/plain")
    return part.get_payload(decode=True).decode()


async def serve(port: int, directory: Path) -> None:
    from aiosmtpd.smtp import SMTP

    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(Keeper(directory), hostname="test"), "127.0.0.1", port
    )
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
