"""A real JupyterLab in a real Chromium, private to one test: own settings, own token and port, nothing from outside."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import psutil

TOKEN = "for-this-test-only"
START_S, STOP_S = 90, 30
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
QUIET = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}


@dataclass
class Lab:
    """A running server. url: where it listens. scratch: the TMPDIR of its kernels. pids: all it ever started."""

    url: str
    scratch: Path
    process: psutil.Process
    pids: set[psutil.Process] = field(default_factory=set)

    def look(self) -> None:
        """Remember what runs now, so that `left` can tell later whether it ended."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.pids |= {self.process, *self.process.children(recursive=True)}

    def left(self) -> list[psutil.Process]:
        return psutil.wait_procs(self.pids, timeout=5)[1]


@contextlib.contextmanager
def jupyterlab(notebooks: Path, home: Path) -> Iterator[Lab]:
    """Serve a folder of notebooks.

    Args:
        notebooks: the folder the server shows, and writes to.
        home: an empty folder for settings, runtime files, the log and the kernels' temporary files.
    """
    port = _free_port()
    scratch = home / "tmp"
    scratch.mkdir(parents=True)
    _write_settings(home / "settings")
    with open(home / "lab.log", "wb") as log:
        server = subprocess.Popen(
            _command(notebooks, port), env=_environment(home, scratch), stdout=log, stderr=log, start_new_session=True
        )
        try:
            lab = Lab(f"http://127.0.0.1:{port}", scratch, psutil.Process(server.pid))
            _wait_for(lab.url, server, home / "lab.log")
            yield lab
            lab.look()
        finally:
            server.terminate()
            try:
                server.wait(STOP_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@contextlib.contextmanager
def chromium_page(executable: str, profile: Path) -> Iterator[Watched]:
    """One page of a fresh browser, watched for errors and requests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            profile, executable_path=executable, args=CHROMIUM_FLAGS, viewport={"width": 1280, "height": 1400}
        )
        try:
            yield Watched(browser.new_page())
        finally:
            browser.close()


class Watched:
    """A page, what went wrong on it, and whom it talked to."""

    def __init__(self, page):
        self.page, self.errors, self.hosts = page, [], set()
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._ask(request.url))
        page.on("websocket", lambda socket: self._ask(socket.url))

    def _ask(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob"):
            self.hosts.add(parts.hostname)

    def open(self, lab: Lab, name: str, timeout_s: float = 90) -> None:
        """Show a notebook and wait until its kernel is idle."""
        self.page.goto(f"{lab.url}/lab/tree/{name}?token={TOKEN}&reset", wait_until="domcontentloaded")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=1000 * timeout_s)
        self.page.wait_for_function(_KERNEL_IDLE, timeout=1000 * timeout_s)
        lab.look()

    def run_all(self, lab: Lab, timeout_s: float) -> list[dict]:
        """Run all cells; what `cells` gives afterwards."""
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
        self.page.wait_for_function(_ALL_RAN, timeout=1000 * timeout_s)
        lab.look()
        return self.cells()

    def cells(self) -> list[dict]:
        """The code cells as the notebook's model has them now: source, execution count, outputs."""
        return [cell for cell in self.page.evaluate(_CELLS) if cell["cell_type"] == "code"]

    def show_panel(self, title: str):
        """The panel of this title, scrolled to."""
        heading = self.page.locator(".jupyter-widgets", has_text=title).last
        self.page.evaluate(_SCROLL_TO, title)
        heading.wait_for(state="visible", timeout=30_000)
        return self.page.locator(".jp-OutputArea-output", has_text=title)


def with_parameters(notebook: Path, **values: object) -> None:
    """Change lines of the notebook's `parameters` cell, as another program may."""
    made = nbformat.read(notebook, as_version=4)
    cell = next(cell for cell in made.cells if "parameters" in cell.metadata.get("tags", []))
    lines = cell.source.splitlines()
    known = {line.split(" = ")[0] for line in lines}
    assert set(values) <= known, f"the notebook has no {set(values) - known}"
    changed = [f"{name} = {values[name]!r}" if (name := line.split(" = ")[0]) in values else line for line in lines]
    cell.source = "\n".join(changed)
    nbformat.write(made, notebook)


# --- in the browser ---------------------------------------------------------------------------------------------------

_KERNEL_IDLE = """() => {
  const kernel = window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel;
  return kernel && kernel.status === 'idle';
}"""
_CELLS = "() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells"
_ALL_RAN = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const code = panel.content.model.toJSON().cells.filter(cell => cell.cell_type === 'code');
  const failed = code.some(cell => cell.outputs.some(output => output.output_type === 'error'));
  const idle = panel.sessionContext.session.kernel.status === 'idle';
  return idle && (failed || code.every(cell => cell.execution_count));
}"""
# JupyterLab draws only the cells near the window, so the one that shows `title` is looked for in the model.
_SCROLL_TO = """async title => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  const drawn = () => [...document.querySelectorAll('.jupyter-widgets')].find(e => e.textContent.includes(title));
  for (let i = 0; i < notebook.widgets.length && !drawn(); i++) {
    if (notebook.widgets[i].model.type === 'code') { await notebook.scrollToItem(i); }
  }
  drawn()?.scrollIntoView({block: 'start'});
}"""


# --- the server -------------------------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def _command(notebooks: Path, port: int) -> list[str]:
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.root_dir": notebooks,
        "ServerApp.terminals_enabled": False,
        "IdentityProvider.token": TOKEN,
        "LabApp.expose_app_in_browser": True,
        "LabApp.news_url": "",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    return command + [f"--{name}={value}" for name, value in options.items()]


def _environment(home: Path, scratch: Path) -> dict[str, str]:
    private = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    # The tests' own setting would keep plots out of the notebook.
    inherited = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    return inherited | {name: str(home / folder) for name, folder in private.items()} | {"TMPDIR": str(scratch)}


def _write_settings(folder: Path) -> None:
    place = folder / "@jupyterlab" / "apputils-extension"
    place.mkdir(parents=True)
    (place / "notification.jupyterlab-settings").write_text(json.dumps(QUIET))


def _wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{url}/api?token={TOKEN}", timeout=2).close()
            return
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.1)
