"""The lab's server: who may come in is tasks/view/access.py's matter; here every visitor gets a session of their own."""

import asyncio
import contextlib
import io
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

from surefoot.lab.page import parsed
from surefoot.lab.pages import FIRST, PAGES
from surefoot.lab.subject import Subject
from surefoot.tasks.view.access import asked_page, loopback
from surefoot.tasks.view.viewer import serve
from surefoot.web.lab.session import Session


class Lab:
    """A running lab: its address, and the sessions of those who look at it."""

    def __init__(self, subject: Subject, host: str, port: int):
        self.subject, self.token = subject, secrets.token_urlsafe(32)
        self.sessions: dict[int, Session] = {}
        self.server = serve(self.token, host, port, pages=PAGES)
        address = f"[{host}]" if ":" in host else host
        self.url = f"http://{address}:{self.server.get_port()}/{self.token}/"
        self.server.gui.main_panel.dock_right()
        scene = self.server.scene  # plain light: colours mean something here, and shadows cost a laptop its frames
        scene.configure_environment_map(None)
        scene.configure_default_lights(cast_shadow=False)
        scene.add_light_ambient("/light", intensity=1.2)
        self.server.on_client_connect(self._come)
        self.server.on_client_disconnect(self._gone)

    async def _come(self, client: Any) -> None:
        """A page takes a moment to be made, in which the server goes on."""
        address = asked_page.get()
        await asyncio.get_running_loop().run_in_executor(None, self._begin, client, address)

    def _begin(self, client: Any, address: str) -> None:
        self.sessions[client.client_id] = Session(client, self.subject, address, f"/{self.token}")

    async def _gone(self, client: Any) -> None:
        session = self.sessions.pop(client.client_id, None)
        if session is not None:
            session.close()

    def close(self) -> None:
        for session in list(self.sessions.values()):
            session.close()
        for session in list(self.sessions.values()):
            session.thread.join(5.0)
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()


@contextlib.contextmanager
def running(subject: Subject, host: str = "127.0.0.1", port: int = 8080) -> Iterator[Lab]:
    lab = Lab(subject, host, port)
    try:
        yield lab
    finally:
        lab.close()


def open_lab(
    subject: Subject, page: str = FIRST, host: str = "127.0.0.1", port: int = 8080, say: Callable[[str], None] = print
) -> None:
    """Serve the lab until Ctrl-C."""
    PAGES[parsed(page)[0]]  # imported before anybody waits for it
    with running(subject, host, port) as lab:
        say(f"lab of {subject.given}: {lab.url}{page}  (Ctrl-C ends it)")
        if not loopback(host):
            say(f"whoever has this address and can reach {host} can use this lab")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            say("lab closed")
