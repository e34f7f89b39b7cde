"""For all tests: Hypothesis measures no time, since a loaded machine is no bug."""

from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")
