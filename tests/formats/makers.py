"""Small valid logs in every format: a joint that swings at 1 Hz, q = sin(2 pi t), two parts, 100 Hz."""

import io
import json
import math
from pathlib import Path

import numpy as np

JOINT_STATE = """std_msgs/Header header
string[] name
float64[] position
float64[] velocity
float64[] effort
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
EPOCH = 1_700_000_000
NAMES = ["left", "right"]


def swing(n: int = 200, rate: float = 100.0) -> tuple[np.ndarray, np.ndarray]:
    t = np.arange(n) / rate
    return t, np.stack([np.sin(2 * math.pi * t), np.cos(2 * math.pi * t)], axis=1)


def ns(t: float) -> int:
    return EPOCH * 10**9 + round(t * 1e9)


def csv_file(path: Path, n: int = 200) -> Path:
    t, q = swing(n)
    rows = "\n".join(f"{a!r},{b!r},{c!r}" for a, (b, c) in zip(t.tolist(), q.tolist()))
    path.write_text("time,q0,q1\n" + rows + "\n")
    return path


def json_file(path: Path, n: int = 200) -> Path:
    t, q = swing(n)
    path.write_text(json.dumps([{"time": a, "q": b} for a, b in zip(t.tolist(), q.tolist())]))
    return path


def npz_file(path: Path, n: int = 200) -> Path:
    t, q = swing(n)
    np.savez_compressed(path, time=t, q=q, gain=3.5)
    return path


def mat_file(path: Path, n: int = 200) -> Path:
    from scipy.io import savemat

    t, q = swing(n)
    savemat(path, {"t": t[:, None], "q": q, "kp": 7.0}, do_compression=True)
    return path


def parquet_file(path: Path, n: int = 200) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    t, q = swing(n)
    table = {"time": t, "q": pa.array(q.tolist(), pa.list_(pa.float64())), "who": pa.array(["me"] * n)}
    pq.write_table(pa.table(table), path, write_page_checksum=True)
    return path


def mcap_file(path: Path, n: int = 200, compression: str = "ZSTD") -> Path:
    """/joints at 100 Hz in CDR and /imu at 50 Hz in JSON, which is 30 ms behind."""
    from mcap.writer import CompressionType
    from mcap_ros2.writer import Writer

    t, q = swing(n)
    with open(path, "wb") as file:
        writer = Writer(file, compression=CompressionType[compression])
        kind = writer.register_msgdef("sensor_msgs/JointState", JOINT_STATE)
        inner = writer._writer
        channel = inner.register_channel("/imu", "json", 0)
        for k in range(n):
            stamp = {"sec": EPOCH + int(t[k]), "nanosec": round((t[k] % 1) * 1e9)}
            message = {"header": {"stamp": stamp, "frame_id": ""}, "name": NAMES, "position": q[k].tolist(), "velocity": [], "effort": []}  # fmt: skip
            writer.write_message("/joints", kind, message, ns(t[k]), ns(t[k]), k)
            if k % 2 == 0:
                data = json.dumps({"w": {"z": math.sin(2 * math.pi * (t[k] - 0.03))}}).encode()
                inner.add_message(channel, ns(t[k]), data, ns(t[k]))
        writer.finish()
    return path


def rosbag2_folder(path: Path, n: int = 100) -> Path:
    """/joints at 100 Hz in a sqlite3 bag, written by rosbags."""
    from rosbags.rosbag2 import Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    State, Header, Time = (store.types[k] for k in ("sensor_msgs/msg/JointState", "std_msgs/msg/Header", "builtin_interfaces/msg/Time"))  # fmt: skip
    t, q = swing(n)
    with Writer(path, version=8) as bag:
        joints = bag.add_connection("/joints", State.__msgtype__, typestore=store)
        for k in range(n):
            header = Header(Time(EPOCH, round(t[k] * 1e9)), "")
            message = State(header, NAMES, q[k], np.zeros(0), np.zeros(0))
            bag.write(joints, ns(t[k]), store.serialize_cdr(message, State.__msgtype__))
    return path


def lerobot_folder(path: Path) -> Path:
    """Three episodes of 40, 50 and 60 frames at 50 Hz; action is the next state."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for part in ("meta/episodes/chunk-000", "data/chunk-000"):
        (path / part).mkdir(parents=True)
    lengths = [40, 50, 60]
    rows = [(e, k) for e, n in enumerate(lengths) for k in range(n)]
    state = [[e + 0.01 * k, float(k)] for e, k in rows]
    data = {
        "observation.state": pa.array(state, pa.list_(pa.float32(), 2)),
        "action": pa.array([[a + 0.01, b + 1] for a, b in state], pa.list_(pa.float32(), 2)),
        "timestamp": pa.array([k / 50 for _, k in rows], pa.float32()),
        "frame_index": [k for _, k in rows],
        "episode_index": [e for e, _ in rows],
        "index": list(range(len(rows))),
    }
    pq.write_table(pa.table(data), path / "data/chunk-000/file-000.parquet")
    episodes = {"episode_index": [0, 1, 2], "data/chunk_index": [0] * 3, "data/file_index": [0] * 3, "length": lengths}
    pq.write_table(pa.table(episodes), path / "meta/episodes/chunk-000/file-000.parquet")
    features = {k: {"dtype": "float32", "shape": [2], "names": NAMES} for k in ("observation.state", "action")}
    features["camera"] = {"dtype": "video", "shape": [3, 8, 8], "names": None}
    (path / "meta/info.json").write_text(json.dumps({"codebase_version": "v3.0", "fps": 50, "robot_type": "so101", "features": features}))  # fmt: skip
    return path


def npy(descr: str, shape: str) -> bytes:
    """A npy header that says what it is told to, and no data."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    text = text.ljust(118 - 1) + "\n"
    out = io.BytesIO()
    out.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode())
    return out.getvalue()


MAKERS = {"a.csv": csv_file, "a.json": json_file, "a.npz": npz_file, "a.mat": mat_file, "a.parquet": parquet_file, "a.mcap": mcap_file}  # fmt: skip
