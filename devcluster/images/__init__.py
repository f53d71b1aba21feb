"""What pods run from: the images of the box, the containerd root that machines start with, and the training environment."""
