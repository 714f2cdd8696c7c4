"""Robot models: MJCF, URDF, and the meshes, textures and height fields they name."""

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from .case import FORGED, Case, Place, text

OBJ = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"


def arm(pre: str = "", joint: str = "", geom: str = 'size=".1"', post: str = "", body: str = "", more: str = "") -> str:
    """One body on one hinge, with room for a defect anywhere."""
    return f'<mujoco>{pre}<worldbody><body name="arm" {body}>{more}<joint name="elbow" {joint}/><geom name="rod" {geom}/></body></worldbody>{post}</mujoco>'  # fmt: skip


def inertial(mass: str = "1", rest: str = 'diaginertia="1 1 1"') -> str:
    return f'<inertial pos="0 0 0" mass="{mass}" {rest}/>'


BOMB = '<!DOCTYPE m [<!ENTITY a "x">' + "".join(
    f'<!ENTITY {b} "{("&" + a + ";") * 10}">' for a, b in zip("abcdefgh", "bcdefghi")
)


def bodies(n: int, pre: str = "") -> str:
    rows = "".join(f'<body pos="{k} 0 0"><freejoint/><geom size=".1"/></body>' for k in range(n))
    return f"<mujoco>{pre}<worldbody>{rows}</worldbody></mujoco>"


def chain(n: int) -> str:
    return "<mujoco><worldbody>" + '<body><joint/><geom size=".1"/>' * n + "</body>" * n + "</worldbody></mujoco>"


def motor(attrs: str, kind: str = "motor") -> str:
    return arm(post=f'<actuator><{kind} name="m" joint="elbow" {attrs}/></actuator>')


def mjcf() -> Iterator[Case]:
    def one(name: str, content: Any, want: str = "refuse", **more: Any) -> Case:
        return text("mjcf", name, "robot.xml", content, "look", "robot.xml", want=want, **more)

    yield one("sound", arm(), "accept")
    many = "".join(f' a{k}="1"' for k in range(10**5))
    refused: dict[str, Any] = {
        "external entity": '<!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/hostname">]><mujoco model="x">&x;</mujoco>',
        "1e5 bodies deep": "<mujoco><worldbody>" + "<body>" * 100_000, "60k elements": "<mujoco>" + "<geom/>" * 60_000 + "</mujoco>", "1e5 attributes": f"<mujoco><option{many}/></mujoco>", "empty": "",
        "nul": b"<mujoco>\0</mujoco>",
        "replicate 1e7": '<mujoco><worldbody><replicate count="10000000"><geom size="1"/></replicate></worldbody></mujoco>', "replicate in replicate": "<mujoco><worldbody>" + '<replicate count="40">' * 4 + '<geom size="1"/>' + "</replicate>" * 4 + "</worldbody></mujoco>",
        "flexcomp 500^3": '<mujoco><worldbody><flexcomp name="f" type="grid" count="500 500 500"/></worldbody></mujoco>', "memory 1000T": '<mujoco><size memory="1000T"/><worldbody/></mujoco>', "texture 90000": '<mujoco><asset><texture name="t" type="2d" builtin="flat" width="90000" height="90000"/></asset></mujoco>',
        "plugin": '<mujoco><extension><plugin plugin="evil.so"/></extension><worldbody/></mujoco>',
        "mass nan": arm(more=inertial("nan")), "mass -1": arm(more=inertial("-1")), "inertia negative": arm(more=inertial("1", 'diaginertia="1 1 -1"')), "inertia triangle": arm(more=inertial("1", 'diaginertia="1 1 5"')),
        "damping -1": arm(joint='damping="-1"'), "pos nan": arm(body='pos="nan 0 0"'), "gravity inf": arm(pre='<option gravity="0 0 inf"/>'),
        "timestep 0.5": arm(pre='<option timestep="0.5"/>'), "timestep 1e-300": arm(pre='<option timestep="1e-300"/>'), "forcerange swapped": motor('forcerange="5 -5"'), "kp -5": motor('kp="-5"', "position"),
        "huge text": arm(pre=f'<custom><text name="t" data="{"x" * 10_000_000}"/></custom><bad/>'),
        "name forged in a defect": arm(joint='damping="-1"').replace("elbow", f"a&#10;{FORGED}"), "file forged": arm(pre=f'<include file="a&#10;{FORGED}.xml"/>'), "c1 in a defect": arm(joint='damping="-1"').replace("elbow", "a&#155;31m"),
        "lengthrange diverges": arm(pre='<compiler><lengthrange accel="1e15"/></compiler>', post='<actuator><muscle joint="elbow"/></actuator>'), "lengthrange of all": arm(pre='<compiler><lengthrange mode="all" inttotal="1e12"/></compiler>', post='<actuator><motor joint="elbow"/></actuator>'),
        "lengthrange": arm(pre='<compiler><lengthrange mode="all" timeconst="1e-9" timestep="1e-12" inttotal="1e12"/></compiler>', post='<actuator><muscle joint="elbow"/></actuator>'),
    }  # fmt: skip
    for name, content in refused.items():
        yield one(name, content)
    either: dict[str, Any] = {
        "encoding utf-7": '<?xml version="1.0" encoding="utf-7"?><mujoco model="+ADw-"><worldbody/></mujoco>', "escape in a name": arm().replace("<mujoco>", '<mujoco model="a&#27;]0;x">').replace("elbow", "a&#27;[2J"), "forged name": arm().replace("elbow", f"a&#10;{FORGED}"),
        "300 deep": chain(300), "mass 1e300": arm(geom='size=".1" mass="1e300"'), "timestep 1e-6": arm(pre='<option timestep="1e-6"/>'), "gear 1e300": motor('gear="1e300"'), "empty world": "<mujoco/>", "geomless": "<mujoco><worldbody/></mujoco>",
        "memory 1G": arm(pre='<size memory="1G"/>'), "solref nan": arm(geom='size=".1" solref="nan 1"'),
    }  # fmt: skip
    for name, content in either.items():
        yield one(name, content, "either")
    yield one("muscle", arm(joint='range="-60 60"', post='<actuator><muscle joint="elbow"/></actuator>'), "accept")
    slow = '<compiler><lengthrange timestep="1e-4" inttotal="1e3"/></compiler>'
    yield one(
        "lengthrange within bounds", arm(pre=slow, post='<actuator><muscle joint="elbow"/></actuator>'), heavy=True
    )
    for n in (900, 2500, 6000):
        yield one(f"{n} free bodies", lambda n=n: bodies(n), "either", heavy=True)
    yield one("900 free bodies in one place", lambda: re.sub('pos="[^"]*"', "", bodies(900)), "either", heavy=True)
    yield one("2000 geoms that touch", lambda: '<mujoco><worldbody><body><freejoint/>' + '<geom size="1"/>' * 2000 + '</body><body><freejoint/>' + '<geom size="1"/>' * 2000 + "</body></worldbody></mujoco>", "either", heavy=True)  # fmt: skip
    yield one("10k keys", lambda: arm(post="<keyframe>" + "<key/>" * 10_000 + "</keyframe>"), "either", heavy=True)
    yield one("20k sensors", lambda: arm(post="<sensor>" + '<jointpos joint="elbow"/>' * 20_000 + "</sensor>"), "either", heavy=True)  # fmt: skip
    yield one("5k actuators", lambda: arm(post="<actuator>" + '<motor joint="elbow"/>' * 5_000 + "</actuator>"), "either", heavy=True)  # fmt: skip
    yield Case("mjcf", "file of 1 TiB", lambda p: os.truncate(p.write("robot.xml", ""), 1 << 40), ("look", "robot.xml"))  # fmt: skip
    yield text("mjcf", "replay timestep 1e-300", "robot.xml", arm(pre='<option timestep="1e-300"/>'), "replay", "robot.xml", "{good}/swing.csv")  # fmt: skip
    yield text("mjcf", "gate model nan", "robot.xml", arm(more=inertial("nan")), "gate", "{good}/policy.onnx", "--model", "robot.xml", "--contract", "{good}/contract.json")  # fmt: skip
    yield text("mjcf", "gate model without joints", "robot.xml", "<mujoco><worldbody/></mujoco>", "gate", "{good}/policy.onnx", "--model", "robot.xml", "--contract", "{good}/contract.json")  # fmt: skip


def link(p: Place, name: str, to: str) -> None:
    (p.here / name).symlink_to(to.replace("OUT", str(p.outside)))


def outside() -> Iterator[Case]:
    """References that leave the model's folder."""

    def one(name: str, xml: str, *more: Callable[[Place], Any]) -> Case:
        def build(p: Place) -> None:
            (p.outside / "t.png").write_text("SECRET5d1c0ffee")
            p.write("robot.xml", xml.replace("OUT", str(p.outside)))
            for extra in more:
                extra(p)

        return Case("mjcf paths", name, build, ("look", "robot.xml"))

    asset = "<mujoco><asset>{}</asset></mujoco>"
    for name, xml in {
        "include up": '<mujoco><include file="../outside/secret.xml"/></mujoco>', "include absolute": '<mujoco><include file="OUT/secret.xml"/></mujoco>', "include newline": '<mujoco><include file="../outside/&#10;../secret.xml"/></mujoco>', "include nul": '<mujoco><include file="../outside/secret.xml&#0;.xml"/></mujoco>',
        "include itself": '<mujoco><include file="robot.xml"/></mujoco>', "mesh up": asset.format('<mesh name="m" file="../outside/secret.obj"/>'), "mesh absolute": asset.format('<mesh name="m" file="OUT/secret.obj"/>'), "mesh newline": asset.format('<mesh name="m" file="../outside/secret.obj&#10;"/>'), "mesh encoded": asset.format('<mesh name="m" file="%2e%2e/outside/secret.obj"/>'),
        "meshdir up": '<mujoco><compiler meshdir="../outside"/><asset><mesh file="secret.obj"/></asset></mujoco>', "assetdir absolute": '<mujoco><compiler assetdir="OUT"/><worldbody/></mujoco>', "cube side": asset.format('<texture name="t" type="cube" fileright="../outside/t.png"/>'), "hfield absolute": asset.format('<hfield name="h" file="OUT/t.png" size="1 1 1 1"/>'),
        "skin up": '<mujoco><deformable><skin name="s" file="../outside/secret.obj"/></deformable></mujoco>', "flexcomp up": '<mujoco><worldbody><flexcomp name="f" type="mesh" file="../outside/secret.obj"/></worldbody></mujoco>', "model up": asset.format('<model name="k" file="../outside/secret.xml"/>'), "strippath": '<mujoco><compiler strippath="true" meshdir="../outside"/><asset><mesh file="x/secret.obj"/></asset></mujoco>',
    }.items():  # fmt: skip
        yield one(name, xml)
    include, mesh = '<mujoco><include file="link.xml"/></mujoco>', asset.format('<mesh name="m" file="link.obj"/>')
    yield one("link to a model", include, lambda p: link(p, "link.xml", "OUT/secret.xml"))
    yield one("link to a mesh", mesh, lambda p: link(p, "link.obj", "OUT/secret.obj"))
    yield one("link to a folder", asset.format('<mesh file="far/secret.obj"/>'), lambda p: link(p, "far", "OUT"))
    yield one("link to zero", mesh, lambda p: link(p, "link.obj", "/dev/zero"))
    yield one("pipe", mesh, lambda p: os.mkfifo(p.here / "link.obj"))
    yield one("folder", mesh, lambda p: (p.here / "link.obj").mkdir())
    yield one("include hidden in an include", '<mujoco><include file="a.xml"/></mujoco>', lambda p: p.write("a.xml", '<x><include file="../outside/secret.xml"/></x>'))  # fmt: skip
    yield one("models of themselves", asset.format('<model name="k" file="robot.xml"/>'))
    yield Case("mjcf paths", "asset root is sound", lambda p: p.write("robot.xml", '<mujoco><worldbody><body><joint/><geom size="1"/></body></worldbody></mujoco>'), ("look", "robot.xml", "--asset-root", "."), "accept")  # fmt: skip
    yield Case("mjcf paths", "asset root a file", lambda p: p.write("robot.xml", arm()), ("look", "robot.xml", "--asset-root", "robot.xml"))  # fmt: skip


def robot(mass: str = "1", inertia: str = 'ixx="1" iyy="1" izz="1"', limit: str = 'lower="-1" upper="1"', damping: str = "1", geometry: str = '<sphere radius="0.1"/>', pre: str = "") -> str:  # fmt: skip
    body = f'<inertial><mass value="{mass}"/><inertia {inertia} ixy="0" ixz="0" iyz="0"/></inertial>'
    return (
        f'<robot name="r">{pre}<link name="base">{body}</link><link name="tip">{body}<collision><geometry>{geometry}</geometry></collision></link>'
        f'<joint name="wrist" type="revolute"><parent link="base"/><child link="tip"/><axis xyz="0 0 1"/><limit {limit} effort="3" velocity="1"/>'
        f'<dynamics damping="{damping}" friction="0.1"/></joint></robot>'
    )  # fmt: skip


def urdf() -> Iterator[Case]:
    def one(name: str, content: Any, want: str = "refuse", *flags: str, **more: Any) -> Case:
        return text("urdf", name, "robot.urdf", content, "look", "robot.urdf", *flags, want=want, **more)

    mesh = '<mesh filename="{}"/>'
    yield one("sound", robot(), "accept")
    for name, content in {
        "mass nan": robot("nan"), "inertia nan": robot(inertia='ixx="nan" iyy="1" izz="5"'), "damping -1": robot(damping="-1"),
        "mesh up": robot(geometry=mesh.format("../outside/secret.obj")), "mesh package": robot(geometry=mesh.format("package://x/y.obj")), "mesh package up": robot(geometry=mesh.format("package://../outside/secret.obj")), "mesh forged": robot(geometry=mesh.format(f"a&#10;{FORGED}")),
        "entity bomb": BOMB + ']><robot name="&i;"/>', "loop of links": robot().replace("</robot>", '<joint name="j" type="fixed"><parent link="tip"/><child link="base"/></joint></robot>'), "xacro": robot(pre='<xacro:include filename="/etc/passwd"/>').replace("<robot", '<robot xmlns:xacro="x"').replace("revolute", "${type}"), "1e5 attributes": robot(pre="<x" + "".join(f' a{k}="1"' for k in range(10**5)) + "/>").replace("revolute", "warp"), "deep": '<robot name="r">' + "<link>" * 100_000,
        "name escape in a defect": robot("-1").replace("tip", "a&#27;b"), "axis 0": robot().replace("0 0 1", "0 0 0"),
    }.items():  # fmt: skip
        yield one(name, content)
    for name, content in {
        "no links": '<robot name="r"/>', "escape in a name": robot().replace("wrist", "a&#27;[2J"), "plugin": robot(pre='<gazebo><plugin filename="/tmp/evil.so"/></gazebo>'), "visual up": robot().replace("<collision>", '<visual><geometry><mesh filename="../outside/secret.obj"/></geometry></visual><collision>'), "discardvisual": robot(pre='<mujoco><compiler discardvisual="false" meshdir="../outside"/></mujoco>').replace("<collision>", '<visual><geometry><mesh filename="secret.obj"/></geometry></visual><collision>'), "600 links": '<robot name="r"><link name="l0"/>' + "".join(f'<link name="l{k}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link><joint name="j{k}" type="continuous"><parent link="l{k - 1}"/><child link="l{k}"/><axis xyz="0 0 1"/></joint>' for k in range(1, 600)) + "</robot>",
    }.items():  # fmt: skip
        yield one(name, content, "refuse" if name == "discardvisual" else "either")
    yield Case("urdf", "package root link", lambda p: (p.write("robot.urdf", robot(geometry=mesh.format("package://pkg/secret.obj"))), (p.here / "ros").mkdir(), link(p, "ros/pkg", "OUT")), ("look", "robot.urdf", "--asset-root", "ros"))  # fmt: skip


def png(width: int, height: int, data: bytes = b"", cut: int = 0) -> bytes:
    def part(tag: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + tag + body + struct.pack(">I", zlib.crc32(tag + body))

    head = b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    whole = head + part(b"IDAT", data or zlib.compress(bytes((width + 1) * height))) + part(b"IEND", b"")
    return whole[: len(whole) - cut]


def assets() -> Iterator[Case]:
    def one(name: str, file: str, content: Any, want: str = "refuse", attrs: str = "", **more: Any) -> Case:
        kind = {"png": "texture", "hf": "hfield"}.get(file.rsplit(".", 1)[-1], "mesh")
        element = {"texture": f'<texture name="a" type="2d" file="{file}" {attrs}/>', "hfield": f'<hfield name="a" size="1 1 1 1" file="{file}" {attrs}/>', "mesh": f'<mesh name="a" file="{file}" {attrs}/>'}[kind]  # fmt: skip
        shape = {"mesh": 'type="mesh" mesh="a"', "hfield": 'type="hfield" hfield="a"', "texture": 'size=".1"'}[kind]
        world = "<body><joint/><geom size='.1'/></body>"
        xml = f"<mujoco><asset>{element}</asset><worldbody>{world}<geom {shape}/></worldbody></mujoco>"
        if kind == "texture":
            xml = xml.replace("</asset>", '<material name="m" texture="a"/></asset>').replace('size=".1"/></world', 'size=".1" material="m"/></world')  # fmt: skip

        def build(p: Place) -> None:
            p.write(file, content() if callable(content) else content)
            p.write("robot.xml", xml)

        return Case("assets", name, build, ("look", "robot.xml"), want, **more)

    stl = bytes(80) + struct.pack("<I", 4) + bytes(200)
    yield one("sound obj", "m.obj", OBJ, "accept")
    yield one("sound png", "t.png", png(8, 8), "accept")
    yield one("sound hfield", "h.hf", struct.pack("<ii", 4, 4) + bytes(64), "either")
    for name, file, content in (
        ("stl of 1e9 triangles", "m.stl", bytes(80) + struct.pack("<I", 10**9)), ("stl of zeros", "m.stl", stl), ("stl nan", "m.stl", stl[:84] + b"\xff" * 200),
        ("msh negative", "m.msh", struct.pack("<4i", -5, 0, 0, 0) + bytes(64)), ("msh face beyond", "m.msh", struct.pack("<4i", 4, 0, 0, 4) + struct.pack("<12f", *range(12)) + struct.pack("<12i", *[99] * 12)), ("msh face negative", "m.msh", struct.pack("<4i", 4, 0, 0, 1) + struct.pack("<12f", *[(7 * k) % 5 for k in range(12)]) + struct.pack("<3i", -1, -2, -3)),
        ("obj nan", "m.obj", OBJ.replace("v 1 0 0", "v nan 0 0")), ("obj face beyond", "m.obj", OBJ + "f 1 2 99999999\n"), ("obj face -99", "m.obj", OBJ + "f -99 -98 -97\n"), ("obj binary", "m.obj", bytes(range(256)) * 9),
        ("png of 2^31", "t.png", png(1, 1).replace(struct.pack(">II", 1, 1), struct.pack(">II", 2**31 - 1, 2**31 - 1))), ("png data short", "t.png", png(8, 8, zlib.compress(b"x"))), ("png a jpeg", "t.png", b"\xff\xd8\xff\xe0" + bytes(100)),
        ("hfield of 1e9 rows", "h.hf", struct.pack("<ii", 10**9, 10**9)), ("hfield nan", "h.hf", struct.pack("<ii", 4, 4) + b"\xff" * 64),
    ):  # fmt: skip
        yield one(name, file, content, "either" if name in ("msh nan", "stl nan", "png data short", "png crc wrong", "obj face 0") else "refuse")  # fmt: skip
    yield one("obj mtl up", "m.obj", "mtllib ../outside/secret.txt\n" + OBJ, "either")
    yield one("obj 1e5 faces of one vertex", "m.obj", OBJ + "f 1 1 1\n" * 10**5, "either")
    yield one("obj polygon of 1e5", "m.obj", OBJ + "f " + "1 2 3 " * 33_000 + "\n", "either")
    yield one("obj 3e5 vertices", "m.obj", lambda: OBJ + "".join(f"v {k % 97} {k % 89} {k % 83}\n" for k in range(300_000)), "either", heavy=True)  # fmt: skip
    yield one("png bomb of 64 MB", "t.png", lambda: png(8000, 8000), "either", heavy=True)
    yield one("content type lies", "m.obj", bytes(80) + struct.pack("<I", 10**9), "refuse", 'content_type="model/stl"')
    yield one("scale nan", "m.obj", OBJ, "refuse", 'scale="nan 1 1"')


def everything() -> Iterator[Case]:
    yield from mjcf()
    yield from outside()
    yield from urdf()
    yield from assets()
