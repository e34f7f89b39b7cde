"""Values as text for people: hidden characters, calls, schemas. Pure."""
