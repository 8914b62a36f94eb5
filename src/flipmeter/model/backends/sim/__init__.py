"""Simulated raters with a planted tilt: the calibration weights of the instrument."""
