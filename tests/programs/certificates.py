"""Servers of the tests that speak TLS, by certificates that nobody else has signed."""

import shutil
import socketserver
import ssl
import subprocess
from pathlib import Path

import pytest

Certificate = tuple[Path, Path]


def self_signed(directory: Path, name: str) -> Certificate:
    """Make a certificate of a name such as `DNS:localhost`, and its key.

    Skips the test where there is no openssl.
    """
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    names = ["-subj", f"/CN={name.partition(':')[2]}", "-addext", f"subjectAltName={name}"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def speak_tls(server: socketserver.TCPServer, certificate: Certificate) -> None:
    """Have a server that was not asked yet answer by TLS alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
