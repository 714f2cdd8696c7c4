"""The live viewer: who may look and steer, what steering does, and whether what is shown is what is simulated."""

import http.client
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest
import viser
from msgspec import msgpack
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from surefoot.env import Env
from surefoot.errors import MissingExtra, SurefootError
from surefoot.policy import Policy, Random, Zero
from surefoot.tasks import env as make_env
from surefoot.tasks import resolve
from surefoot.tasks.rollout import contract
from surefoot.tasks.view.reward_bars import BAD, RewardBars
from surefoot.tasks.view.shapes import Scene, rgba_of, shown, surface
from surefoot.tasks.view.viewer import Live, serve, view

TOKEN = "a-secret-of-this-test-alone"
LOOPBACK = "0100007F"  # 127.0.0.1 as /proc/net/tcp writes it


def actors(name: str, still: bool = False) -> tuple[Policy, Env]:
    task = resolve(name)
    env = make_env(task, 1, task.belief, threads=1)
    told = contract(task, env.world)
    return (Zero(told) if still else Random(told)), env


@pytest.fixture(scope="module")
def server() -> Iterator[viser.ViserServer]:
    running = serve(TOKEN, port=0)
    yield running
    running.stop()


def get(port: int, path: str = f"/{TOKEN}/", **headers: str) -> tuple[int, bytes]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        line.request("GET", path, headers=headers)
        answer = line.getresponse()
        return answer.status, answer.read()
    finally:
        line.close()


def address(line: str) -> tuple[int, str]:
    """Port and path of the address that the viewer printed."""
    found = re.search(r"http://127.0.0.1:(\d+)(/\S+/)", line)
    assert found
    return int(found[1]), found[2]


def talk(port: int, path: str = f"/{TOKEN}", **how):
    """The page's websocket."""
    how = {"subprotocols": [f"viser-v{viser.__version__}"], "proxy": None} | how
    return connect(f"ws://127.0.0.1:{port}{path}", **how)


def raw(port: int, data: bytes) -> bytes:
    """What is answered to bytes as they are, until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as line:
        line.sendall(data)
        if b"\r\n\r\n" not in data:  # else the server would wait for the rest
            line.shutdown(socket.SHUT_WR)
        try:
            return b"".join(iter(lambda: line.recv(65536), b""))
        except ConnectionResetError:
            return b""


def listening(port: int) -> set[str]:
    """Addresses on which this machine listens at port."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows = Path(table).read_text().splitlines()[1:] if os.path.exists(table) else []
        for where, state in ((row.split()[1], row.split()[3]) for row in rows):
            if state == "0A" and int(where.split(":")[1], 16) == port:
                found.add(where.split(":")[0])
    return found


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="reads Linux's table of open ports")
def test_the_viewer_listens_on_loopback_alone_serves_its_page_and_steps_in_real_time() -> None:
    policy, env = actors("hover")
    said: list[str] = []

    def look(line: str) -> None:
        said.append(line)
        port, path = address(line)
        assert listening(port) == {LOOPBACK}
        status, page = get(port, path)
        assert (status, b"<html" in page) == (200, True)

    view(policy, env, port=0, say=look, steps=20)
    assert said[0].startswith("hover: http://127.0.0.1:")
    assert env.counter == 20
    assert listening(address(said[0])[0]) == set()


def test_other_sites_can_neither_read_the_viewer_nor_steer_it(server: viser.ViserServer) -> None:
    port = server.get_port()
    assert get(port, Host=f"localhost:{port}")[0] == 200
    assert get(port, Host="evil.example")[0] == 403
    assert get(port, Origin="http://evil.example")[0] == 403
    assert get(port, Origin="http://127.0.0.1:1")[0] == 403
    with pytest.raises(InvalidStatus, match="403"):
        talk(port, origin="http://evil.example")
    with talk(port, origin=f"http://127.0.0.1:{port}") as line:
        assert line.recv(timeout=10)  # the page's own script is told the scene
    assert server.request_share_url() is None


WRONG = [
    "/",
    "",
    "/index.html",
    "//",
    f"/?token={TOKEN}",
    f"/{TOKEN[:-1]}/",
    f"/{TOKEN}x/",
    f"/{TOKEN.upper()}/",
    "/%00/",
    "/\xff/",
]


@pytest.mark.parametrize("path", WRONG)
def test_without_the_secret_neither_the_page_nor_its_websocket_is_served(server: viser.ViserServer, path: str) -> None:
    port = server.get_port()
    request = f"GET {path or '/'} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    for more in ("", upgrade + f"Sec-WebSocket-Protocol: viser-v{viser.__version__}\r\n"):
        answer = raw(port, (request + more + "\r\n").encode("latin-1"))
        assert answer.startswith(b"HTTP/1.1 403") and b"<html" not in answer
    assert get(port)[0] == 200


def test_every_start_has_another_secret_which_the_page_does_not_pass_on() -> None:
    policy, env = actors("balance")
    said: list[str] = []
    for _ in range(2):
        view(policy, env, port=0, say=said.append, steps=1)
    first, second = (address(line)[1].strip("/") for line in said)
    assert first != second and len(first) >= 43  # 256 bits in base 64
    with pytest.raises(SurefootError, match="token: expected at least 16 characters, found 0"):
        serve("", port=0)


def test_the_page_leaves_its_address_with_nobody(server: viser.ViserServer) -> None:
    answer = raw(server.get_port(), f"GET /{TOKEN}/ HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = answer.partition(b"\r\n\r\n")[0].decode().lower()
    for header in ("referrer-policy: no-referrer", "cache-control: no-store", "x-frame-options: deny"):
        assert header in head


TRAVERSALS = [
    "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/%252e%252e/etc/passwd", "/..\\..\\etc\\passwd", "/..%5c..%5cetc%5cpasswd",
    "//etc/passwd", "/%2fetc%2fpasswd", "/index.html%00.png", "/%00", "/index.html/../../_viser.py", "/" + "a" * 5000, "/./index.html",
    "/index.html/", "/C:/Windows/win.ini", "/file:///etc/passwd",
]  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_names_another_file_than_the_page(server: viser.ViserServer, path: str) -> None:
    asked = f"GET /{TOKEN}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    answer = raw(server.get_port(), asked.encode())
    assert answer.startswith(b"HTTP/1.1 404") and answer.endswith(b"there is one page here\n")


KEY = f"GET /{TOKEN}/ HTTP/1.1\r\n".encode()
BROKEN = [
    (KEY + b"Host: 127.0.0.1\r\nHost: evil.example\r\n\r\n", b"400"),
    (KEY + b"Host: 127.0.0.1\r\nhost: 127.0.0.1\r\n\r\n", b"400"),
    (KEY + b"Host: 127.0.0.1\r\nUpgrade: websocket\r\nUpgrade: x\r\n\r\n", b"400"),
    (KEY + b"Host: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nOrigin: http://evil.example\r\n\r\n", b"400"),
    (KEY + b"Host: 127.0.0.1\r\nAccept-Encoding: a\r\nAccept-Encoding: b\r\n\r\n", b"400"),
    (KEY + b"\r\n", b"400"),
    (KEY + b"Host: [::1\r\n\r\n", b"403"),
    (KEY + b"Host: 127.0.0.1.evil.example\r\n\r\n", b"403"),
    (KEY + b"Host: 127.0.0.1\r\nOrigin: null\r\n\r\n", b"403"),
    (KEY + b"Host: 127.0.0.1\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: viser-v0\r\n\r\n", b"400"),
    (KEY + b"Host: 127.0.0.1\r\nUpgrade: websocket\r\n\r\n", b"400"),
    (KEY.replace(b"GET", b"POST") + b"Host: 127.0.0.1\r\nContent-Length: 2\r\n\r\nhi", b""),
    (KEY + b"Host: 127.0.0.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n", b""),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), b""),  # the beginning of TLS
    (b"\x00" * 5000, b""),
    (b"GET\r\n\r\n", b""),
    (b"", b""),
]


def test_broken_requests_get_a_refusal_and_the_viewer_goes_on(capfd) -> None:
    """The first one, too, before viser has filtered its own log; where nothing is answered the connection is closed."""
    for data, status in BROKEN:
        running = serve(TOKEN, port=0)
        try:
            port = running.get_port()
            answer = raw(port, data)
            assert answer[9:12] == status if status else answer[9:10] in (b"", b"4"), (data[:80], answer[:80])
            assert get(port)[0] == 200
        finally:
            running.stop()
    assert printed(capfd) == ""


def printed(capfd) -> str:
    """All that was printed, but for viser's word when it stops."""
    out, err = capfd.readouterr()
    return out.replace("(viser) Server stopped\n", "") + err


def frames(uuid: str) -> list[bytes | str]:
    """What no page sends: to a slider of that uuid, and in general."""

    def update(**updates) -> bytes:
        return msgpack.encode({"type": "GuiUpdateMessage", "uuid": uuid, "updates": updates})

    return [
        "text", json.dumps({"type": "GuiUpdateMessage"}), b"", b"\xc1", b"\x00" * 1000, b"\x91" * 100_000, bytes(range(256)),
        msgpack.encode([1, 2]), msgpack.encode({"type": 7}), msgpack.encode({"kind": "x"}),
        msgpack.encode({"type": "GuiUpdateMessage"}), msgpack.encode({"type": "ViewerCameraMessage"}),
        msgpack.encode({"type": "ViewerCameraMessage", "wxyz": "up"}),
        update(value="fast"), update(value=None), update(value=float("nan")), update(value=float("inf")), update(value=[1]),
        update(props=5), update(update_cb=[]), update(value=1, removed=True),
        msgpack.encode({"type": "GuiUpdateMessage", "uuid": uuid, "updates": {"value": 1}, "more": 1}), bytes((1 << 20) + 1),
    ]  # fmt: skip


def test_junk_frames_close_their_connection_alone_and_steer_nothing(capfd) -> None:
    running = serve(TOKEN, port=0)
    try:
        live = Live(*actors("balance"), running)
        slider = live.panel.speed
        for frame in frames(slider._impl.uuid):
            with talk(running.get_port()) as line:
                line.send(frame)
                with pytest.raises(ConnectionClosed):
                    while True:
                        line.recv(timeout=10)
        assert slider.value == 1.0
        live.run(steps=2)
        with talk(running.get_port()) as line:
            ignored = [
                {"type": "ShareUrlRequest"},
                {"type": "FileTransferStartUpload", "size_bytes": 1e9},
                {"type": "Nothing"},
            ]
            for message in ignored:
                line.send(msgpack.encode(message))
            line.send(
                msgpack.encode({"type": "GuiUpdateMessage", "uuid": slider._impl.uuid, "updates": {"value": 2.5}})
            )
            until = time.monotonic() + 10
            while slider.value != 2.5 and time.monotonic() < until:
                time.sleep(0.01)
        assert slider.value == 2.5
        assert get(running.get_port())[0] == 200
    finally:
        running.stop()
    assert printed(capfd) == ""


def test_ctrl_c_ends_the_viewer_cleanly_and_gives_the_env_back() -> None:
    policy, env = actors("walk")
    before = (env.task, env.belief, env.world.terms)
    said: list[str] = []
    view(Interrupted(policy.contract), env, port=0, say=said.append)
    assert said[-1] == "viewer closed"
    assert (env.task, env.belief, env.world.terms) == before


class Interrupted(Policy):
    """Someone presses Ctrl-C at the third step."""

    def __init__(self, contract) -> None:
        self.contract, self.left = contract, 3

    def step(self, s, obs: np.ndarray):
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return s, np.zeros((len(obs), len(self.contract.action.names)), np.float32)


def test_sliders_and_buttons_steer_the_env(server: viser.ViserServer) -> None:
    policy, env = actors("walk", still=True)
    live = Live(policy, env, server)
    panel = live.panel
    assert [s.label for s in panel.command_sliders] == ["vx", "vy", "yaw_rate"]
    assert [s.max for s in panel.command_sliders] == [1.0, 0.5, 1.0]
    panel.speed.value = 4.0
    for slider, value in zip(panel.command_sliders, (0.5, -0.25, 0.0)):
        slider.value = value
    live.run(steps=2)
    assert env.command[0].tolist() == [0.5, -0.25, 0.0]
    assert live.obs["actor"][0, 6:9].tolist() == [0.5, -0.25, 0.0]

    i = env.world.params.index("payload")
    panel.e_sliders[i].value = 4.0
    live.run(steps=1)
    assert env.world.state.e[0, i] != 4.0  # not in the middle of an episode
    panel.reset.value = True
    live.run(steps=1)
    assert env.world.state.e[0, i] == 4.0
    assert env.age[0] == 1

    panel.e_sliders[env.world.params.index("push")].value = 0.0  # else the world pushes as well
    panel.reset.value = panel.push.value = True
    live.run(steps=1)
    assert np.linalg.norm(env.world.batch.bind("qfrc_applied")[0, :2]) == pytest.approx(60.0)


def test_the_scene_is_where_the_simulation_is(server: viser.ViserServer) -> None:
    policy, env = actors("walk", still=True)
    live = Live(policy, env, server)
    live.run(steps=3)
    live.show()
    trunk = env.world.model.body("trunk").id
    assert live.scene.tracked == trunk
    assert live.scene.bodies[trunk].position == pytest.approx(env.world.state.q[0, :3])
    assert live.scene.bodies[trunk].wxyz == pytest.approx(env.world.state.q[0, 3:7])
    assert live.scene.world.position[:2] == pytest.approx(-env.world.state.q[0, :2])


SHAPES = """
<mujoco>
  <asset>
    <mesh name="tetra" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
    <hfield name="hill" nrow="3" ncol="4" size="2 1 .5 .1" elevation="0 0 0 0  0 1 1 0  0 0 0 0"/>
  </asset>
  <worldbody>
    <geom type="plane" size="1 1 .1"/> <geom type="hfield" hfield="hill"/>
    <geom type="sphere" size=".5"/> <geom type="capsule" size=".2 .4"/> <geom type="cylinder" size=".3 .6"/>
    <geom type="ellipsoid" size=".1 .2 .3"/> <geom type="mesh" mesh="tetra"/> <geom type="box" size=".1 .2 .3"/>
    <geom type="sphere" size="1" group="3"/> <geom type="sphere" size="1" rgba="1 0 0 0"/> <site size=".1"/>
  </worldbody>
</mujoco>"""


def volume(vertices: np.ndarray, faces: np.ndarray) -> float:
    """Signed: positive only if every triangle turns the same way, outwards."""
    a, b, c = (vertices[faces[:, k]].astype(float) for k in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6)


def test_every_visible_shape_is_shown(server: viser.ViserServer) -> None:
    model = mujoco.MjModel.from_xml_string(SHAPES)
    assert list(Scene(server, model).shapes) == [f"geom{i}" for i in range(8)] + ["site0"]


def test_a_robot_whose_shapes_are_all_hidden_is_drawn_by_them(server: viser.ViserServer) -> None:
    """As one of a file that has the colliding shapes alone, in the group that viewers hide."""
    text = (
        '<mujoco><worldbody><geom type="plane" size="1 1 .1"/><geom size=".1" group="3"/>'
        '<body><freejoint/><geom size=".1" group="3"/>{}</body></worldbody></mujoco>'
    )
    hidden = mujoco.MjModel.from_xml_string(text.format(""))
    assert [*shown(hidden)] == [1] * 6
    assert list(Scene(server, hidden).shapes) == ["geom0", "geom1", "geom2"]
    drawn = mujoco.MjModel.from_xml_string(text.format('<geom size=".1" group="2"/>'))
    assert [*shown(drawn)] == [1, 1, 1, 0, 0, 0]
    assert list(Scene(server, drawn).shapes) == ["geom0", "geom3"]


def test_shapes_have_the_volume_of_their_closed_form() -> None:
    model = mujoco.MjModel.from_xml_string(SHAPES)
    exact = {2: 4 / 3 * np.pi * 0.5**3, 3: np.pi * 0.2**2 * (0.8 + 4 / 3 * 0.2), 4: np.pi * 0.3**2 * 1.2,
             5: 4 / 3 * np.pi * 0.1 * 0.2 * 0.3, 6: 1 / 6, 7: 8 * 0.1 * 0.2 * 0.3}  # fmt: skip
    for i, expected in exact.items():
        found = surface(model, mujoco.mjtGeom(model.geom_type[i]), model.geom_size[i], model.geom_dataid[i])
        assert found is not None
        assert volume(*found) == pytest.approx(expected, rel=0.03), f"geom {i}"
    ground = surface(model, mujoco.mjtGeom.mjGEOM_HFIELD, model.geom_size[1], model.geom_dataid[1])
    assert ground is not None
    assert ground[0].min(0).tolist() == [-2, -1, 0]
    assert ground[0].max(0).tolist() == [2, 1, 0.5]
    assert len(ground[1]) == 2 * 2 * 3


def test_a_texture_shows_as_its_mean_colour_times_its_material() -> None:
    model = mujoco.MjModel.from_xml_string("""
<mujoco>
  <asset>
    <texture name="t" type="2d" builtin="checker" rgb1="1 0 0" rgb2="0 0 1" width="16" height="16"/>
    <material name="m" texture="t" rgba=".5 1 1 .8"/> <material name="plain" rgba="0 1 0 1"/>
  </asset>
  <worldbody>
    <geom size="1" material="m"/> <geom size="1" material="plain"/> <geom size="1" material="m" rgba="1 1 0 1"/>
    <geom size="1"/>
  </worldbody>
</mujoco>""")
    expected = [[0.25, 0, 0.5, 0.8], [0, 1, 0, 1], [1, 1, 0, 1], [0.5, 0.5, 0.5, 1]]
    np.testing.assert_allclose([rgba_of(model, "geom", i) for i in range(4)], expected, atol=1e-6)


def test_a_height_field_is_light_and_dark_in_equal_parts(server: viser.ViserServer) -> None:
    xml = SHAPES.replace('nrow="3" ncol="4" size="2 1 .5 .1" elevation="0 0 0 0  0 1 1 0  0 0 0 0"',
                         'nrow="21" ncol="41" size="2 1 .5 .1"')  # fmt: skip
    model = mujoco.MjModel.from_xml_string(xml)
    parts: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.scene, "add_mesh_simple", lambda name, v, f, **_: parts.update({name: len(f)}))
        Scene(server, model)
    assert parts["/world/body0/geom1/light"] == parts["/world/body0/geom1/dark"] == 20 * 40  # of 2 a cell


def test_what_is_followed_is_the_cameras_body_else_the_first_that_moves(server: viser.ViserServer) -> None:
    for name, followed, begins in (("walk", "trunk", True), ("hover", "drone", False), ("balance", "cart", False)):
        live = Live(*actors(name), server)
        assert live.model.body(live.scene.tracked).name == followed
        assert live.panel.follow.value is live.scene.follows is begins
        live.scene.update(live.data, follow=True)
        shown = live.scene.world.position[:2] + live.data.xpos[live.scene.tracked][:2]
        assert shown == pytest.approx([0, 0])  # over the origin, where the page looks
    assert Scene(server, mujoco.MjModel.from_xml_string(SHAPES)).tracked == 0  # nothing moves


def test_the_viewer_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SurefootError, match="an address of this computer, found '203.0.113.7'"):
        serve(TOKEN, host="203.0.113.7")
    with pytest.raises(SurefootError, match="expected a host"):
        serve(TOKEN, host="")  # which would be every network
    with pytest.raises(SurefootError, match="port of 0 to 65535"):
        serve(TOKEN, port=70000)
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(MissingExtra, match=r"the viewer needs the 'play' extra: pip install 'surefoot\[play\]'"):
        view(*actors("balance"))


def test_bars_show_each_reward_term_a_second_as_the_env_pays_it(server: viser.ViserServer) -> None:
    """Of balance: 50 for each second the pole stays up, whatever is done; of hover, names are text and costs are red."""
    live = Live(*actors("balance", still=True), server)
    live.run(steps=10)  # 0.2 s
    assert ">upright<" in live.panel.rewards.picture.content and "+50<" in live.panel.rewards.picture.content
    _, env = actors("hover")
    env.task.rewards["<b>odd</b>"] = env.task.rewards["far"]
    env.reward_sums = np.zeros((len(env.task.rewards), env.n))
    bars = RewardBars(server.gui, env)
    shown = bars.drawn(np.arange(-3.0, len(env.task.rewards) - 3))
    assert "&lt;b&gt;odd" in shown and "<b>" not in shown and shown.count(BAD) == 3 and "width:100.0%" in shown
