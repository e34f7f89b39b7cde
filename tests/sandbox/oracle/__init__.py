"""The native engine, as an oracle: the same prelude and the same scripts must come to the same outcome in both."""
