"""Learning with a robot among the simulations: some rows of every batch come from it, the others from simulation.

    batch = (1 - rho) n simulations + rho n rows of the robot        rho: share of the robot, the same in every batch

On-policy learning needs few real rows if simulated ones carry the rest: the robot corrects what simulation has wrong, simulation
keeps the policy from overfitting to some minutes. Between policy and motors is the runtime's limiter, in both.
"""
