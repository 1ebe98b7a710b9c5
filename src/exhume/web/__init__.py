"""The local web application: a server on loopback that tells a page about one recording, and the page itself."""
