"""A real runtime under load, killed with SIGKILL at random times and audited against records that it cannot touch.

`python -m tests.torture --minutes M [--seed S]`; `tests/runtime/test_sigkill.py` is a short run of it.
"""
