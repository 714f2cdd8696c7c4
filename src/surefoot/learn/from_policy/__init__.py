"""What is learned from a trained policy, which stays as it is: a student (distill.py), and where the policy will fail (reach_avoid.py)."""
