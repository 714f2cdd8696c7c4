"""Sim2sim2real: learn where learning is easy, carry the motion over to the world that is like the robot.

    support world:     teacher pi by PPO,  psi(o_t) ~ k_{t+1}  learned beside it        k: joints, base, contacts
    validation world:  student by PPO,  r_t = r_task + w exp(-|k_{t+1} - psi(o_t)|^2)   psi frozen, asked at every step

The two worlds share the robot's kinematics and nothing else: actions mean other torques in each, so no action is copied.
"""
