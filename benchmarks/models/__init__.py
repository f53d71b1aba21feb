"""Models that one rank does not hold: sharded in pods that come and go, and saved in parts."""
