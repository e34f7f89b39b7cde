"""What Sphinx does not know by itself about these pages."""
