"""Kubernetes: the API server's client, a node's conditions and events, and taking a node out of service."""
