package trial

import "time"

// Times of a program's trial. A program that does not work is replaced within a minute.
const (
	ProgramHealthy  = 30 * time.Second // how long the node must be as healthy as before
	ProgramDeadline = 50 * time.Second // after this time a hanging program is killed, and the previous one is started
)
