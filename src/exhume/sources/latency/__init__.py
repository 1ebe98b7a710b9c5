"""How late the kernel is: polls, softirqs and threads that were due and did not run."""
