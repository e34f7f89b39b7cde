"""`ctx.sheet`: rows of a CSV file or an XLSX workbook."""

from keep_actors.services.sheet.connector import Sheet
from keep_actors.services.sheet.settings import SheetColumn, SheetSettings

__all__ = ["Sheet", "SheetColumn", "SheetSettings"]
