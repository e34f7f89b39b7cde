"""Chosen operations of an OpenAPI document as methods of a connector.

GET and HEAD read, anything else changes something, unless the operator says otherwise. The document says which
parameters there are; it never says where a secret goes, which operations are offered, or that nothing changes.
"""

from keep_actors.services.http.endpoint import HttpEndpoint
from keep_actors.services.http.methods import offered
from keep_actors.services.openapi.credentials import base_url_of, check_security, with_credentials
from keep_actors.services.openapi.document import read_document
from keep_actors.services.openapi.method import Documents, operation_of
from keep_actors.services.openapi.operation import read_operation
from keep_actors.services.openapi.settings import OpenApiSettings
from keep_actors.services.service import Service, SettingsError, secrets_in


class OpenApi(Service):
    """One service that has an OpenAPI document."""

    name = "openapi"
    settings_type = OpenApiSettings

    def __init__(self, settings: OpenApiSettings, *, name: str | None = None) -> None:
        super().__init__(settings, name=name)
        if not settings.operations:
            raise SettingsError("operations", 'none is chosen; write a section for each, such as operations."GET /x"')
        document = read_document(settings.document, settings.seen)
        base_url = base_url_of(document, settings)
        credited = with_credentials(document, settings)
        self.hide(*secrets_in(credited))
        self._endpoint = HttpEndpoint(credited, name=self.name, base_url=base_url)
        self.hide(*self._endpoint.hidden)
        documents = Documents.of(document)
        for chosen, rules in settings.operations.items():
            found = read_operation(document, chosen)
            check_security(found, settings)
            operation = operation_of(documents, self.name, found, rules, self._endpoint.headers)
            self.offer([offered(operation, self._endpoint, where=found.where)])

    async def open(self) -> None:
        """Read the certificates."""
        await self._endpoint.open()

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoint.close()
