"""A slow object store on the loopback interface: a folder over HTTP, with latency, bandwidth, stalls and errors set.

    with SlowStore(folder, latency_s=0.02) as store:
        urllib.request.urlopen(f"{store.url}/a.jpg")
        store.requests()

The server is a process of its own: its threads must not share the GIL with the code that is measured against it.
Run as a script this file *is* that server; it needs nothing but the standard library, so it starts in 0.1 s.
"""

from __future__ import annotations

import http.server
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

CHUNK_BYTES = 32 * 1024
STOP_S = 5.0


@dataclass(frozen=True)
class Traffic:
    """How the store behaves.

    latency_s: before each answer, give or take jitter_s. bytes_per_s: of the whole link, shared by all readers; None
    is no limit. fail_every, stall_every: each n-th request gets a 503, or no answer for stall_s seconds; 0 is never.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    fail_every: int = 0
    stall_every: int = 0
    stall_s: float = 0.0


class SlowStore:
    """Serves `folder` while the context is open. `url` has no slash at its end; nothing is left afterwards."""

    def __init__(self, folder: str | os.PathLike[str], **traffic):
        self.folder, self.traffic, self.url = Path(folder).resolve(), Traffic(**traffic), ""
        self._server: subprocess.Popen | None = None

    def __enter__(self) -> SlowStore:
        # -I: neither the folder nor the environment can put another module in the place of a standard one.
        command = [sys.executable, "-I", __file__, str(self.folder), json.dumps(asdict(self.traffic)), str(os.getpid())]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.url = f"http://127.0.0.1:{int(self._server.stdout.readline())}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        try:
            # Said, not only closed: forked workers may hold the other end of the pipe open.
            server.stdin.write("stop\n")
            server.stdin.flush()
            server.wait(STOP_S)
        except (OSError, subprocess.TimeoutExpired):
            server.kill()
            server.wait()
        finally:
            for pipe in (server.stdin, server.stdout):
                pipe.close()

    def urls(self, pattern: str = "*") -> list[str]:
        """The addresses of the files that match, sorted by path."""
        found = sorted(path for path in self.folder.rglob(pattern) if path.is_file())
        return [f"{self.url}/{quote(path.relative_to(self.folder).as_posix())}" for path in found]

    def requests(self) -> int:
        """Requests received so far, failed and stalled ones among them."""
        return self._ask()["requests"]

    def sent_bytes(self) -> int:
        """Bytes of content sent so far."""
        return self._ask()["sent_bytes"]

    def _ask(self) -> dict[str, int]:
        self._server.stdin.write("count\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())


# --- the server's side -------------------------------------------------------------------------------------------


class Link:
    """What all connections share: the counts, the dice and the wire."""

    def __init__(self, traffic: Traffic):
        self.traffic, self.lock, self.dice = traffic, threading.Lock(), random.Random(0)
        self.requests = self.sent_bytes = 0
        self.free_at = 0.0

    def arrive(self) -> tuple[int, float]:
        """Count a request: its number and the seconds it has to wait."""
        with self.lock:
            self.requests += 1
            wait = self.traffic.latency_s + self.traffic.jitter_s * self.dice.uniform(-1, 1)
            return self.requests, max(0.0, wait)

    def carry(self, size: int) -> None:
        """Wait until the wire has carried `size` bytes; readers queue for it, as on a real link."""
        with self.lock:
            self.sent_bytes += size
            if not self.traffic.bytes_per_s:
                return
            self.free_at = max(self.free_at, time.monotonic()) + size / self.traffic.bytes_per_s
            wait = self.free_at - time.monotonic()
        time.sleep(max(0.0, wait))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    folder: Path
    link: Link

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET(body=False)

    def do_GET(self, body: bool = True):
        traffic = self.link.traffic
        number, wait = self.link.arrive()
        time.sleep(wait)
        if traffic.stall_every and number % traffic.stall_every == 0:
            time.sleep(traffic.stall_s)
        if traffic.fail_every and number % traffic.fail_every == 0:
            return self.refuse(503)
        path = (self.folder / unquote(urlsplit(self.path).path).lstrip("/")).resolve()
        if not path.is_relative_to(self.folder) or not path.is_file():
            return self.refuse(404)
        self.send(path, body)

    def refuse(self, status: int, **headers: str):
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def send(self, path: Path, body: bool):
        size = path.stat().st_size
        first, last, status = self.wanted(size)
        if first > last and size:
            return self.refuse(416, Content_Range=f"bytes */{size}")
        self.send_response(status)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.end_headers()
        if body:
            self.copy(path, first, last - first + 1)

    def wanted(self, size: int) -> tuple[int, int, int]:
        """First and last byte and the status: "bytes=a-b", "bytes=a-" and "bytes=-n" are understood."""
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not match or not any(match.groups()):
            return 0, size - 1, 200
        if not match[1]:
            return max(0, size - int(match[2])), size - 1, 206
        return int(match[1]), min(int(match[2] or size - 1), size - 1), 206

    def copy(self, path: Path, first: int, left: int):
        with path.open("rb") as file:
            file.seek(first)
            while left > 0 and (piece := file.read(min(CHUNK_BYTES, left))):
                self.link.carry(len(piece))
                self.wfile.write(piece)
                left -= len(piece)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    # The default backlog of 5 makes the sixth reader that connects at once wait 1 s for a repeated SYN.
    request_queue_size = 256

    def handle_error(self, *_):
        """A client that hung up is no news."""


def serve(folder: str, traffic: str, owner: int) -> None:
    """Serve until told to stop, until the pipe closes, or until the owner is gone."""
    link = Link(Traffic(**json.loads(traffic)))
    handler = type("BoundHandler", (Handler,), {"folder": Path(folder), "link": link})
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=_follow, args=(owner,), daemon=True).start()
    print(server.server_address[1], flush=True)
    for line in sys.stdin:
        if line.strip() == "stop":
            break
        with link.lock:
            print(json.dumps({"requests": link.requests, "sent_bytes": link.sent_bytes}), flush=True)
    # At once: a connection may be in a stall of an hour.
    os._exit(0)


def _follow(owner: int) -> None:
    while os.name == "nt" or os.getppid() == owner:
        time.sleep(0.5)
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
