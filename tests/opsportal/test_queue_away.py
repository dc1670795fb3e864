"""Senders of background tasks while the queue is away."""

import socket
import threading

import pytest
from django.conf import settings
from kombu import Connection
from kombu.exceptions import OperationalError


def test_sender_tries_a_queue_that_is_away_once():
    """A person's click must not wait for it: its task has a row, and is sent again."""
    tries: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def refuse() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                tries.append(client)
                client.close()

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        options = settings.CELERY_BROKER_TRANSPORT_OPTIONS
        with (
            Connection(url, transport_options=options) as connection,
            pytest.raises(OperationalError),
        ):
            connection.default_channel.client.ping()
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert 1 <= len(tries) <= 2  # Redis's client may ask for its version on a connection of its own
