"""The Kubernetes of a devcluster without its machines: certificates, daemons, and what belongs into every cluster."""
