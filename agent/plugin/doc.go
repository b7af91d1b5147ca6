// Package plugin contains the packages for plugins, which are separate programs that extend the agent.
//
//	plugins  registration, and the handlers of each type of plugin
//	rpc      gRPC servers at sockets below the root directory, created at the first connection
package plugin
