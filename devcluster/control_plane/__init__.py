"""The Kubernetes of a box without its machines: certificates, daemons, and what belongs into every cluster."""
