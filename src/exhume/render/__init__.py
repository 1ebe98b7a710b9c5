"""What reports, the terminal and the web view draw: flame graphs and heat maps, made of a recording's numbers."""
