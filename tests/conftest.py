"""For all tests: Hypothesis measures no time, since a loaded machine is no bug; who is interrupted, ends."""

import signal

from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")

# A shell has what it starts in the background ignore this signal, and so would everything that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
