"""Measurements, each as a ratio against something run beside it."""
