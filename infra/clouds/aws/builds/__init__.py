"""The images: their repositories, and how they are built within `up`."""
