// Package eventtest holds the events that tests make the agent's real code tell against
// docs/events.md: its tables are the golden list of a kubelet's reasons and texts.
//
//	code --Pod, Node--> the tests' Events --Note--> noted
//	                                                  |
//	docs/events.md --rows--> Main: what was noted is a row, and each row of the room was noted
package eventtest
