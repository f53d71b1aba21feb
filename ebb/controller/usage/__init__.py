"""Machine time and its price: who used which machine, by the day."""
