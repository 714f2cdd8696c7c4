"""The live viewer: who may look and steer, what steering does, and whether what is shown is what is simulated."""

import http.client
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest
import viser
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from surefoot.env import Env
from surefoot.errors import MissingExtra, SurefootError
from surefoot.policy import Policy, Random, Zero
from surefoot.tasks import env as make_env
from surefoot.tasks import make
from surefoot.tasks.rollout import contract
from surefoot.tasks.shapes import Scene, _rgba, _surface
from surefoot.tasks.viewer import Live, serve, view

LOOPBACK = "0100007F"  # 127.0.0.1 as /proc/net/tcp writes it


def actors(name: str, still: bool = False) -> tuple[Policy, Env]:
    task = make(name)
    env = make_env(task, 1, task.belief, threads=1)
    told = contract(task, env.world.model)
    return (Zero(told) if still else Random(told)), env


@pytest.fixture(scope="module")
def server() -> Iterator[viser.ViserServer]:
    running = serve(port=0)
    yield running
    running.stop()


def get(port: int, **headers: str) -> tuple[int, bytes]:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        line.request("GET", "/", headers=headers)
        answer = line.getresponse()
        return answer.status, answer.read()
    finally:
        line.close()


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
        port = int(line.split()[1].rsplit(":", 1)[1])
        assert listening(port) == {LOOPBACK}
        status, page = get(port)
        assert (status, b"<html" in page) == (200, True)

    view(policy, env, port=0, say=look, steps=20)
    assert said[0].startswith("hover: http://127.0.0.1:")
    assert env.counter == 20
    assert listening(int(said[0].split()[1].rsplit(":", 1)[1])) == set()


def test_other_sites_can_neither_read_the_viewer_nor_steer_it(server: viser.ViserServer) -> None:
    port = server.get_port()
    assert get(port, Host=f"localhost:{port}")[0] == 200
    assert get(port, Host="evil.example")[0] == 403
    assert get(port, Origin="http://evil.example")[0] == 403
    assert get(port, Origin="http://127.0.0.1:1")[0] == 403
    spoken = [f"viser-v{viser.__version__}"]
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://127.0.0.1:{port}", origin="http://evil.example", subprotocols=spoken, proxy=None)
    with connect(f"ws://127.0.0.1:{port}", origin=f"http://127.0.0.1:{port}", subprotocols=spoken, proxy=None) as line:
        assert line.recv(timeout=10)  # the page's own script is told the scene
    assert server.request_share_url() is None


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

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return np.zeros((len(obs), len(self.contract.action_names)), np.float32)


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


def test_shapes_have_the_volume_of_their_closed_form() -> None:
    model = mujoco.MjModel.from_xml_string(SHAPES)
    exact = {2: 4 / 3 * np.pi * 0.5**3, 3: np.pi * 0.2**2 * (0.8 + 4 / 3 * 0.2), 4: np.pi * 0.3**2 * 1.2,
             5: 4 / 3 * np.pi * 0.1 * 0.2 * 0.3, 6: 1 / 6}  # fmt: skip
    for i, expected in exact.items():
        surface = _surface(model, mujoco.mjtGeom(model.geom_type[i]), model.geom_size[i], model.geom_dataid[i])
        assert surface is not None
        assert volume(*surface) == pytest.approx(expected, rel=0.03), f"geom {i}"
    ground = _surface(model, mujoco.mjtGeom.mjGEOM_HFIELD, model.geom_size[1], model.geom_dataid[1])
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
    np.testing.assert_allclose([_rgba(model, "geom", i) for i in range(4)], expected, atol=1e-6)


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
        serve(host="203.0.113.7")
    with pytest.raises(SurefootError, match="expected a host"):
        serve(host="")  # which would be every network
    with pytest.raises(SurefootError, match="port of 0 to 65535"):
        serve(port=70000)
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(MissingExtra, match=r"the viewer needs the 'play' extra: pip install 'surefoot\[play\]'"):
        view(*actors("balance"))
