"""Reusable terms under the field's names: functions of a Moment (n rows) for rewards, observations and terminations."""
