package wire

import (
	"encoding/json"
	"time"
)

// Methods of a shim.
const (
	MethodRun      = "run"      // RunRequest -> Running
	MethodKill     = "kill"     // KillRequest
	MethodDelete   = "delete"   // Target; the container must have ended
	MethodList     = "list"     // -> []Container
	MethodReopen   = "reopen"   // Target: open the log file anew
	MethodAttach   = "attach"   // AttachRequest; then Frames both ways
	MethodShutdown = "shutdown" // the shim ends if it has no container
)

// ExitFile is the file in a bundle in which the shim leaves an Exit.
const ExitFile = "exit.json"

// A Request asks for one thing. IDs are the asker's and never zero.
type Request struct {
	ID     uint64          `json:"id"`
	Method string          `json:"method"`
	Body   json.RawMessage `json:"body,omitempty"`
}

// A Reply answers the request of the same ID, or tells an event when ID is zero.
type Reply struct {
	ID    uint64          `json:"id,omitempty"`
	Error string          `json:"error,omitempty"`
	Kind  string          `json:"kind,omitempty"` // of the error: NotFound, Conflict or empty
	Body  json.RawMessage `json:"body,omitempty"`
	Event *Container      `json:"event,omitempty"` // a container ended
}

// Kinds of errors that a caller tells apart.
const (
	NotFound = "NotFound"
	Conflict = "Conflict"
)

// Target names a container.
type Target struct {
	ID   string `json:"id"`
	Wait bool   `json:"wait,omitempty"` // delete: for its end, instead of an error
}

// An OCI is an OCI runtime and how it is called.
type OCI struct {
	Path    string `json:"path"`
	Root    string `json:"root"` // its own state
	Systemd bool   `json:"systemd,omitempty"`
}

// A RunRequest asks to create and start a container from a bundle.
type RunRequest struct {
	ID     string `json:"id"`
	Bundle string `json:"bundle"`
	OCI    OCI    `json:"oci"`
	Log    Log    `json:"log"`
	Cgroup string `json:"cgroup,omitempty"` // its path from the hierarchies' root
	// KillAll: when the first process ends the others must be killed, because they
	// do not share a process namespace of their own.
	KillAll   bool `json:"killAll,omitempty"`
	Terminal  bool `json:"terminal,omitempty"`
	Stdin     bool `json:"stdin,omitempty"`
	StdinOnce bool `json:"stdinOnce,omitempty"`
}

// A Log says where and how a container's CRI log is written. No path: nowhere.
type Log struct {
	Path     string `json:"path,omitempty"`
	MaxBytes int64  `json:"maxBytes,omitempty"` // rotate beyond; 0: never
	MaxFiles int    `json:"maxFiles,omitempty"`
}

// Running is a container that was started.
type Running struct {
	Pid       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
}

// A Container is one that the shim holds.
type Container struct {
	ID string `json:"id"`
	Running
	Exit *Exit `json:"exit,omitempty"` // nil while it runs
}

// An Exit is how a container's first process ended.
type Exit struct {
	Code       int32     `json:"code"` // 128 + signal for a signal
	OOM        bool      `json:"oom,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
}

// A KillRequest sends a signal to a container's first process, or to all.
type KillRequest struct {
	ID     string `json:"id"`
	Signal int    `json:"signal"`
	All    bool   `json:"all,omitempty"`
}

// An AttachRequest asks for a container's streams.
type AttachRequest struct {
	ID     string `json:"id"`
	Stdin  bool   `json:"stdin,omitempty"`
	Stdout bool   `json:"stdout,omitempty"`
	Stderr bool   `json:"stderr,omitempty"`
}
