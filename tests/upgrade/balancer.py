"""A load balancer for tests: connections go to the web hosts in turn."""

import asyncio
import itertools
import threading

CHUNK_BYTES = 65_536


class Balancer:
    """Listens on a port of this machine; `sockets` are those of the web hosts.

    A host that refuses a connection is passed over, and the next one is asked.
    """

    def __init__(self, sockets):
        self.turns = itertools.cycle(sockets)
        self.hosts = len(sockets)
        self.refused = 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        opening = asyncio.run_coroutine_threadsafe(self._open(), self.loop)
        self.port = opening.result(timeout=10)

    def close(self):
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(timeout=10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout=10)
        self.loop.close()

    async def _open(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[1]

    async def _close(self):
        self.server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader, writer):
        for _ in range(self.hosts):
            try:
                host_reader, host_writer = await asyncio.open_unix_connection(next(self.turns))
                break
            except OSError:
                self.refused += 1
        else:
            writer.close()
            return
        await asyncio.gather(_pass_on(reader, host_writer), _pass_on(host_reader, writer))


async def _pass_on(reader, writer):
    """Write what comes until its end, and then end the other side, too."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
