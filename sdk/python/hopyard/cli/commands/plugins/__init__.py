"""Commands for plugins and for programs that implement a contract: plugins, policy, conformance."""
