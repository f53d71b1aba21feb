"""Partners of the real Pulumi engine where a provider's plugin or account is missing."""
