"""Public: check scripts without deploying them."""

from keep_actors.authoring.checking import Checked, check_scripts

__all__ = ["Checked", "check_scripts"]
