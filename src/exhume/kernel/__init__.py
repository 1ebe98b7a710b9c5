"""The kernel's own interfaces, thin: perf events, bpf, ethtool, clocks."""
