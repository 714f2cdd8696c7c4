"""What is measured of a policy beside success.

margins.py   how much delay, or how large a push, it tolerates      motion.py   torque, speed, smoothness, power
sweep.py     success against one unknown                            latent.py   what it infers about its world
"""
