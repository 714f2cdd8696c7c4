"""A batch whose simulations, rewards, observations and resets stay on one device, as torch tensors (engine warp).

arrays.py     torch's functions by NumPy's names: what Moment.xp is there
world.py      World on mujoco-warp, whose arrays are the tensors
env.py        n episodes of a task in it
collect.py    rollouts that stay there
"""
