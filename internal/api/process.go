package api

import "time"

// Processes are the processes of a pod's containers.
type Processes struct {
	At    time.Time `json:"at"`
	List  []Process `json:"processes"`
	Whole bool      `json:"whole"` // false if there are more processes than in List
}

// A Process is a process of a container.
type Process struct {
	Container string        `json:"container"`
	PID       int           `json:"pid"`     // in the container
	HostPID   int           `json:"hostPID"` // on the node
	Parent    int           `json:"parent"`  // PID on the node
	User      uint32        `json:"user"`    // on the node
	State     string        `json:"state"`   // one letter, as in ps
	Threads   int           `json:"threads"`
	CPU       time.Duration `json:"cpu"`    // nanoseconds of CPU time
	Memory    uint64        `json:"memory"` // resident bytes
	Age       time.Duration `json:"age"`    // nanoseconds
	Command   string        `json:"command"`
}
