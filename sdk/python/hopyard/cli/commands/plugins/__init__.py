"""Commands for plugins and for programs that follow a contract: plugins, policy, conformance."""
