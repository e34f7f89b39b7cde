"""A number of things in words."""


def counted(number: int, noun: str) -> str:
    """`1 call`, `1,200 calls`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
