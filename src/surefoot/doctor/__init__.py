"""The doctor: a policy, its task and a log of it on a robot -> what is wrong, ranked, with evidence."""

from surefoot.doctor.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
