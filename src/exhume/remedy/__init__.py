"""What puts a node right: a plan first, bounded in what it may cost, journalled where it can be undone."""
