"""Behaviour cloning: policies that do what logs show, in as many ways as these show."""
