"""The HTTP client of exhume: for the Kubernetes API, receivers of profiles, Prometheus and the dashboard of Ray."""
