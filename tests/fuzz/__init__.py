"""Fuzzing that stays: hostile inputs for everything that reads what an attacker writes.

`pytest tests/fuzz` tries each target for some seconds, `python -m tests.fuzz NAME --minutes 30` for longer.
"""
