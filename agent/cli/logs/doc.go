// Package logs has the command islet logs:
//
//	arguments, -l --> pods --> containers --> one stream for each --> lines with prefixes --> filter --> output
//	                                            ^     |
//	                   the agent is back -------'     '--> the agent is lost: follow waits for it
//
// A followed log continues after its last printed line.
package logs
