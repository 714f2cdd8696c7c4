"""The verbs, in four groups. Each is a file in the room of its group: a frozen dataclass of arguments, whose `run(watch)`
is a Report.

A verb prints nothing and writes no page: it returns a Report, and its callers show it. This file imports none of
them, so that `surefoot --help` loads only what it needs.
"""

from importlib import import_module
from typing import Any, NamedTuple

from surefoot import shipped
from surefoot.errors import unknown


class Verb(NamedTuple):
    """What `surefoot VERB --help` begins with."""

    about: str
    examples: tuple[str, ...]
    """arguments, as they are typed"""
    common: str = ""
    """flags to show first; empty: all of them, in the order of the fields"""


GROUPS: dict[str, dict[str, Verb]] = {
    "model": {
        "new": Verb(
            "Write a task file for your robot's model. It trains without edits; a comment gives each number's source.",
            ("velocity go2.xml", "reach arm/scene.xml --out task.py"),
        ),
        "tasks": Verb(
            "List the ready tasks, what counts as success in each, and which have a trained policy.", ("", "--json")
        ),
        "look": Verb(
            "Show a robot or a task: joints, actuators, unknowns with ranges, and what looks wrong in the model.",
            ("hover", "robot.xml"),
        ),
        "presets": Verb(
            "List published randomization ranges, or show one with its source, applied to a task.",
            ("--task walk", "unitree-go2"),
        ),
        "try": Verb(
            "Run a policy that needs no training, to check a task before training on it.",
            ("hover", "walk --policy random --episodes 50"),
        ),
        "motion": Verb(
            "Show a motion of a person (bvh, c3d, AMASS npz) or a robot, as a film; cut, resample, mirror, save it.",
            ("walk.bvh --page walk.html", "walk.bvh --cut 0.5 2.5 --rate 50 --mirror --save walk.npz"),
            "file robot rate cut mirror save page",
        ),
        "retarget": Verb(
            "Turn a person's motion into a robot's: feet stay where they stand, joints stay within their ranges.",
            (
                "walk.bvh humanoid --out walk.npz",
                "carry.bvh g1.xml --box box.json --variants 8 --out carry.npz",
            ),
            "clip robot out rate cut mirror box wall step object-size object-shift variants policy page",
        ),
        "plan": Verb(
            "Find controls under which physics itself follows a motion, open loop: the forces that kinematics lacks.",
            ("squat.npz humanoid.xml --out plan.npz", "lift --worlds 2"),
            "motion robot out worlds cut rate guide seed page",
        ),
    },
    "train": {
        "train": Verb(
            "Train a policy. Ctrl-C saves it and prints how to resume.",
            ("hover --out runs/hover", "walk --steps 5000000 --judge-every 500000 --range friction=0.3..1.2"),
            "task out learner steps envs seed belief range settings judge-every adapt resume",
        ),
        "clone": Verb(
            "Clone a policy from logs of a robot driven well: by diffusion, a flow, or the mean of what they show.",
            ("arm demo1.npz demo2.npz", "arm demos/*.npz --by flow --chunk 8 --out runs/arm-clone"),
        ),
        "tune": Verb(
            "Search for good training settings: each trial is a run, and the scores so far decide the next trial.",
            (
                "balance --over lr=1e-4..1e-2:log --trials 12 --steps 100000",
                "hover --over lr=3e-4..3e-3:log entropy=0..0.01 --on local:2",
            ),
        ),
        "runs": Verb(
            "List what has been trained: ranked, compared over seeds, cleaned, or shared at an address.",
            ("", "runs/walk --rank return --top 5 --compare --out runs.html"),
        ),
        "play": Verb(
            "Watch a policy in the browser (this computer only), or write a short film.",
            ("runs/hover", "runs/hover --record hover.gif --seconds 4"),
        ),
        "lab": Verb(
            "Sim-to-real in the browser, live: many worlds, randomization width, drift, adaptation, actuators, a run.",
            ("", "runs/hover --page run"),
        ),
        "export": Verb(
            "Write a bundle for a robot's computer: policy, contract, limits, verdict, golden vectors; all checked.",
            ("runs/hover", "runs/hover --best --out hover.zip --limit torque=20,power=300"),
        ),
        "prompt": Verb(
            "Ask a run of --learner fb for a behaviour without training: a reward in words, a goal, or a motion.",
            (
                "runs/arm --reward '1 - abs(joint_pos.elbow - 1)'",
                "runs/arm --goal joint_pos=0.4,1.2 joint_vel=0,0 --search 5",
            ),
        ),
        "guard": Verb(
            "Learn where a policy will fail, and write its safety layers: recovery, and limits of joints.",
            ("runs/walk", "runs/arm --speed 4 --out runs/arm/safe"),
        ),
        "cross": Verb(
            "The whole loop: train, try on a hidden robot, diagnose, treat, train again; with a page of evidence.",
            ("hover", "arm --reality 3 --budget '60 s of robot, 20 min of compute'"),
        ),
    },
    "judge": {
        "eval": Verb(
            "Measure a policy's success rate, with an exact 95 % interval.",
            ("runs/hover", "runs/hover --best --episodes 1000 --range mass=0.8..1.2x"),
        ),
        "sweep": Verb(
            "Plot success against one unknown, for one policy or several on the same episodes.",
            ("runs/hover --over mass", "runs/one runs/two --over latency --points 12"),
        ),
        "adapt": Verb(
            "Show what an adaptive policy has inferred about its world, and how fast it follows a sudden change.",
            ("runs/hover/student", "runs/hover/student --show mass --before 0.9 --after 1.1"),
        ),
        "gate": Verb(
            "Decide whether a policy may leave the simulator: success, limits and margins; exit code 1 means no.",
            ("runs/hover", "runs/hover --in mujoco,bullet --reality all --limit latency=2"),
            "policy best belief range in reality episodes claim limit out junit",
        ),
        "bundle": Verb(
            "Recompute everything in a bundle; exit code 1 if a file differs, with its name and the field.",
            ("check runs/hover/bundle", "check hover.zip --key key.pub"),
        ),
        "doctor": Verb(
            "Find out why a policy failed on its robot: a log against contract, timing and model; ranked causes.",
            ("runs/hover fall.npz", "runs/hover fall.npz --task hover"),
        ),
    },
    "robot": {
        "robot": Verb(
            "Simulate a robot in a process of its own, in real time, for `surefoot run` to drive.",
            ("balance", "hover --reality 3 --latency 0.005 --loss 0.01"),
        ),
        "run": Verb(
            "Run a bundle's policy on a robot, with limiter, watchdog, stop key and log; sends nothing without --live.",
            ("balance-bundle --link udp://127.0.0.1:9870", "hover.zip --link udp://127.0.0.1:9870 --live --seconds 20"),
        ),
        "record": Verb(
            "Record a log on a simulated robot with hidden physics, playing a policy, a plan or random controls.",
            ("hover --reality 3 --policy runs/hover", "arm --ingredient stiction=0.5,sensor_noise=0.2 --tell"),
        ),
        "explore": Verb(
            "Plan the most informative motion for identifying chosen unknowns of a robot.",
            ("arm --learn fore_mass,shoulder_damping", "robot.xml --machine.fixed --learn armature:kinds,damping"),
            "model learn noise rate out machine.fixed machine.kp machine.kd",
        ),
        "log": Verb(
            "Show a robot's log (csv, json, npz, mat, parquet, mcap, rosbag2, LeRobot v3); plot, resample, save it.",
            ("run.csv --map mapping.json", "run.mcap --plot run.png"),
        ),
        "preflight": Verb(
            "Check a log before use: swapped joints, wrong signs, degrees, wrong axes, clock offsets, bad stamps.",
            ("hover log.npz", "robot.xml run.csv --map mapping.json"),
        ),
        "replay": Verb(
            "Run a log's controls through a model and compare its motion with the robot's.",
            ("hover log.npz", "robot.xml run.csv --map mapping.json --plot replay.html"),
        ),
        "identify": Verb(
            "Fit a model's unknowns to real logs, with confidence intervals.",
            ("arm log.npz --save belief.json", "robot.xml run.csv --learn armature:kinds,damping:kinds,delay"),
        ),
        "believe": Verb(
            "Turn a log into p(e): as wide as the model needs (dropo), or a posterior (sbi).",
            (
                "arm log.npz --learn upper_mass,fore_mass",
                "arm log.npz --how sbi --noise joint_pos=0.001,joint_vel=0.02",
            ),
            "model log how learn noise save map window",
        ),
        "missing": Verb(
            "Learn from a log the force a model lacks, such as drag or ground effect, and how much it explains.",
            ("hover flight.npz", "hover flight.npz --belief belief.json"),
        ),
        "delta": Verb(
            "Learn from a log what to add to a task's actions so that the simulator moves as the robot does.",
            ("arm log.npz", "arm log.npz --by reinforcement"),
        ),
        "actuator": Verb(
            "Learn from a log how real actuators differ from the model's: a net that simulations can include.",
            ("arm.xml log.npz", "arm.xml log.npz --no-labels"),
        ),
    },
}
RUNS = ("policy", "policies", "base", "teacher")  # arguments that are runs' folders
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}


def load(name: str) -> Any:
    """The class of a verb's arguments."""
    if name not in VERBS:
        raise unknown("verb", name, VERBS, "surefoot")
    group = next(group for group, verbs in GROUPS.items() if name in verbs)
    module = import_module(f"surefoot.verbs.{group}.{'try_' if name == 'try' else name}")
    return getattr(module, name.capitalize())


def shadowed(verb: object) -> list[str]:
    """A sentence for each run of a verb's arguments that is in the current directory and ships with the package, too."""
    runs = [v for k, v in vars(verb).items() if k in RUNS and v]
    given = [p for v in runs for p in (v if isinstance(v, tuple) else (v,))]
    return [words for p in given if (words := shipped.shadows(p))]
