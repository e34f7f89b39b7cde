"""Connectors that are there: each is made of settings, in Python or by a section of `keep.toml`."""

from keep_actors.services.configuration import ConfigurationError, load_configuration
from keep_actors.services.service import Service, ServiceSettings, SettingsError

__all__ = ["ConfigurationError", "Service", "ServiceSettings", "SettingsError", "load_configuration"]
