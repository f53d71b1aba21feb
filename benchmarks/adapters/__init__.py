"""Training loops of other libraries, on machines that are killed, told to leave and added."""
