// Package eventtest compares the events that the agent's code emits in tests with docs/events.md,
// whose tables list the reasons and texts of a kubelet's events.
//
//	code --Pod, Node--> the tests' Events --RecordEvent--> noted
//	                                                  |
//	docs/events.md --rows--> Main: each noted event has a row, and each row of the package has a noted event
package eventtest
