"""Operations of an OpenAPI document: see `docs/connectors/openapi.md`."""

from keep_actors.services.openapi.connector import OpenApi
from keep_actors.services.openapi.settings import OpenApiReconcile, OpenApiRules, OpenApiSettings

__all__ = ["OpenApi", "OpenApiReconcile", "OpenApiRules", "OpenApiSettings"]
