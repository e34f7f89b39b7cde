"""The supply chain: what the wheel needs, within which bounds, and the bill that says so."""
