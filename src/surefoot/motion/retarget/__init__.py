"""A person's motion for a robot's body, by kinematics."""
