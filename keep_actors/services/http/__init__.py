"""Calls of web services that an operator declares, and the parts that other kinds over HTTP are made of."""

from keep_actors.services.http.connector import Http
from keep_actors.services.http.settings import HttpBasic, HttpCall, HttpReconcile, HttpRules, HttpSettings

__all__ = ["Http", "HttpBasic", "HttpCall", "HttpReconcile", "HttpRules", "HttpSettings"]
