// Package plugin is the district of programs beside the agent that extend it.
//
//	plugins  how they register, and which part of the agent handles which type
//	rpc      gRPC servers at sockets below the root directory, which cost nothing until called
package plugin
