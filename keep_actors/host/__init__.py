"""The services that all workflows of one runtime share: storage, reading, time, run slots, fault points."""
