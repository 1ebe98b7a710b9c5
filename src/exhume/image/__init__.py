"""What an image or a node will run by itself: unit files, cron, containers, and the catalogue of agents."""
