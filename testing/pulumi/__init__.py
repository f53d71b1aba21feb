"""What the real Pulumi engine talks to where a provider's plugin or account is missing."""
