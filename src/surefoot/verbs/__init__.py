"""The verbs, in four groups. Each is a file of this room: a frozen dataclass of arguments, whose `run(watch)` is a Report.

A verb prints nothing and writes no page: it returns what it found, and its callers show it. This file imports none of
them, so that `surefoot --help` does not wait for what only one verb needs.
"""

from importlib import import_module
from typing import Any

from surefoot.errors import unknown

GROUPS = {
    "model": {
        "new": "Write a task file for a robot model of yours: it trains as it is, and every number says where it came from.",
        "tasks": "List the ready tasks and what counts as success in each.",
        "look": "Show a robot or a task: joints, actuators, unknowns with ranges, and what looks wrong in the model.",
        "presets": "List published randomization ranges with their sources, or show one applied to a task.",
        "try": "Run a policy that needs no training, to check a task before training on it.",
    },
    "train": {
        "train": "Train a policy. Ctrl-C saves it and prints how to resume.",
        "play": "Watch a policy in the browser (this computer only), or write a short film.",
        "export": "Write a policy as one ONNX file with its contract inside, and check it against the trained net.",
        "cross": "The whole story: train, fail in a hidden reality, train over a belief, succeed; with a page of evidence.",
    },
    "judge": {
        "eval": "Measure a policy's success rate, with an exact 95 % interval.",
        "sweep": "Plot success against one unknown, for one policy or several on the same episodes.",
        "adapt": "Show what an adaptive policy has inferred about its world, and how fast it follows a sudden change.",
        "gate": "Decide whether a policy may leave the simulator: success, limits and margins; exit code 1 means no.",
        "doctor": "Find out why a policy failed on its robot: a log against contract, timing and model; ranked causes.",
    },
    "robot": {
        "record": "Record a log on a simulated robot with hidden physics, playing a policy, a plan or random controls.",
        "explore": "Plan the motion that tells most about chosen unknowns of a robot.",
        "log": "Show a robot's log (csv, json, npz, mat, parquet, mcap, rosbag2, LeRobot v3); plot, resample, save it.",
        "preflight": "Check a log before use: swapped joints, wrong signs, degrees, wrong axes, clock offsets, bad stamps.",
        "replay": "Run a log's controls through a model and compare its motion with the robot's.",
        "identify": "Fit a model's unknowns to real logs, with confidence intervals.",
        "believe": "Turn a log into p(e): as wide as the model needs (dropo), or a posterior (sbi).",
        "missing": "Learn from a log the force a model lacks, such as drag or ground effect, and how much it explains.",
        "delta": "Learn from a log what to add to a task's actions so that the simulator moves as the robot does.",
        "actuator": "Learn from a log what real actuators do beyond the model's: a net that worlds can include.",
    },
}
VERBS = {name: about for group in GROUPS.values() for name, about in group.items()}


def load(name: str) -> Any:
    """The class of a verb's arguments."""
    if name not in VERBS:
        raise unknown("verb", name, VERBS, "surefoot")
    module = import_module(f"surefoot.verbs.{'try_' if name == 'try' else name}")
    return getattr(module, name.capitalize())
