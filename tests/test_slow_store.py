"""The slow store that tests measure against: content, ranges, latency, bandwidth, failures, and that it stops."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from slow_store import SlowStore


def fetch(url: str, timeout: float = 10, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as response:
        return response.read()


def fetch_at_once(urls: list[str]) -> float:
    """Seconds until all have arrived."""
    begin = time.monotonic()
    with ThreadPoolExecutor(len(urls)) as pool:
        list(pool.map(fetch, urls))
    return time.monotonic() - begin


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "in side").mkdir()
    (tmp_path / "in side" / "a.bin").write_bytes(bytes(range(200)) * 500)
    return tmp_path


def test_store_serves_whole_files_and_ranges(folder):
    data = (folder / "in side" / "a.bin").read_bytes()
    with SlowStore(folder) as store:
        (url,) = store.urls()
        assert fetch(url) == data
        assert fetch(url, Range="bytes=5-14") == data[5:15]
        assert fetch(url, Range="bytes=99990-") == data[-10:]
        assert fetch(url, Range="bytes=-3") == data[-3:]
        assert store.requests() == 4
        assert store.sent_bytes() == len(data) + 23
        for wrong, status in ((f"{store.url}/none", 404), (f"{store.url}/../{folder.name}/x", 404)):
            with pytest.raises(urllib.error.HTTPError) as caught:
                fetch(wrong)
            caught.value.close()
            assert caught.value.code == status
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(url, Range="bytes=100000-")
        caught.value.close()
        assert caught.value.code == 416


def test_store_keeps_latency_and_bandwidth(folder):
    with SlowStore(folder, latency_s=0.1) as store:
        wall = fetch_at_once(store.urls() * 16)
    # All at once: each waits its own latency, none for the others.
    assert 0.1 <= wall < 16 * 0.1
    with SlowStore(folder, bytes_per_s=500_000) as store:
        wall = fetch_at_once(store.urls() * 4)
    # One link for all: 4 x 100 000 bytes at 500 000 bytes/s take 0.8 s, however many readers share it.
    assert wall >= 0.7


def test_store_fails_stalls_and_stops_for_certain(folder):
    with SlowStore(folder, fail_every=2, stall_every=3, stall_s=3600) as store:
        (url,) = store.urls()
        fetch(url)
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(url)
        caught.value.close()
        assert caught.value.code == 503
        with pytest.raises(TimeoutError):
            fetch(url, timeout=0.2)
        server, begin = psutil.Process(store._server.pid), time.monotonic()
    assert time.monotonic() - begin < 3
    assert not server.is_running()
    with pytest.raises(urllib.error.URLError):
        fetch(url, timeout=1)
