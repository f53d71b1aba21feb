"""The images of the devcluster, the containerd root that machines start with, and the training environment."""
