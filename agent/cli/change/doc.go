// Package change has the commands that try another configuration or version of islet on the node:
//
//	file ----> config apply --.
//	archive -> update --------+--> agent: trial --> the agent restarts --> poll --> in use, or why it failed
//	           config revert -'
//
//	agent --> config show, config history --> text
package change
