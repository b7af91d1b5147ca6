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
	MethodList     = "list"     // returns []Container
	MethodReopen   = "reopen"   // Target; reopens the log file
	MethodAttach   = "attach"   // AttachRequest; then Frames both ways
	MethodHold     = "hold"     // RunRequest; serves only the streams, see Held
	MethodLetGo    = "let go"   // Target -> Held; ends MethodHold
	MethodShutdown = "shutdown" // ends the shim if it has no containers
)

// ExitFile is the file in a bundle to which the shim writes an Exit.
const ExitFile = "exit.json"

// A Request calls a method. The caller chooses the ID, which must not be zero.
type Request struct {
	ID     uint64          `json:"id"`
	Method string          `json:"method"`
	Body   json.RawMessage `json:"body,omitempty"`
}

// A Reply is the reply to the request with the same ID. If the ID is zero, it is an event.
type Reply struct {
	ID    uint64          `json:"id,omitempty"`
	Error string          `json:"error,omitempty"`
	Kind  string          `json:"kind,omitempty"` // kind of the error: NotFound, Conflict or empty
	Body  json.RawMessage `json:"body,omitempty"`
	Event *Container      `json:"event,omitempty"` // the container has ended
}

// Kinds of errors that callers distinguish.
const (
	NotFound = "NotFound"
	Conflict = "Conflict"
)

// Target is the container of a request.
type Target struct {
	ID   string `json:"id"`
	Wait bool   `json:"wait,omitempty"` // for delete: wait for the container's end and do not return an error
}

// An OCI is an OCI runtime with its global options.
type OCI struct {
	Path    string `json:"path"`
	Root    string `json:"root"` // directory of its state
	Systemd bool   `json:"systemd,omitempty"`
}

// A RunRequest creates and starts a container from a bundle.
type RunRequest struct {
	ID     string `json:"id"`
	Bundle string `json:"bundle"`
	OCI    OCI    `json:"oci"`
	Log    Log    `json:"log"`
	Cgroup string `json:"cgroup,omitempty"` // path relative to the root of the hierarchies
	// KillAll is set for a container without a PID namespace of its own. When its first process has
	// ended, its other processes must be killed.
	KillAll   bool `json:"killAll,omitempty"`
	Terminal  bool `json:"terminal,omitempty"`
	Stdin     bool `json:"stdin,omitempty"`
	StdinOnce bool `json:"stdinOnce,omitempty"`
	// Owner becomes the owner of the container's streams. It is set if the container's root is not
	// the host's root. Without it, the container could not open /dev/stdout.
	Owner *Owner `json:"owner,omitempty"`
	// Mounts is for shims that do not see the pods' mounts. If it is nil, the OCI runtime runs in
	// the host's mount namespace.
	Mounts *Mounts `json:"mounts,omitempty"`
}

// An Owner is a UID and a GID of the host.
type Owner struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Mounts are the mounts that a container needs from below the directories that are hidden from its
// shim. The bundle has a symbolic link to each of these host paths. For a shim that sees all
// mounts, the link is enough. Another shim replaces the link by a copy of the mount while the
// container starts.
type Mounts struct {
	// Pins is the host's directory of the pinned namespaces. The bundle's link PinsLink points to
	// it.
	Pins string `json:"pins,omitempty"`
	// Borrow are the sources of bind mounts, by the path of their link in the bundle. They include
	// the root file system, which has no link.
	Borrow map[string]string `json:"borrow,omitempty"`
	// Same are sources that must be the same file for the shim and the host. If one is not, the
	// container is started in the host's mount namespace.
	Same []string `json:"same,omitempty"`
}

// PinsLink is the link in a bundle to the pinned namespaces of its sandbox.
const PinsLink = "ns"

// A Log configures the CRI log of a container. If it has no path, there is no log.
type Log struct {
	Path     string `json:"path,omitempty"`
	MaxBytes int64  `json:"maxBytes,omitempty"` // size at which the log is rotated; if it is 0, the log is not rotated
	MaxFiles int    `json:"maxFiles,omitempty"`
	// Interval is the minimum time between two rotations. Older agents send 0, which means 10 s. A
	// log that reaches Most bytes is rotated earlier. If Most is 0, it is MaxBytes times MaxFiles.
	Interval time.Duration `json:"interval,omitempty"`
	Most     int64         `json:"most,omitempty"`
}

// Running describes a started container.
type Running struct {
	Pid       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
}

// A Container is a container of the shim.
type Container struct {
	ID string `json:"id"`
	Running
	Exit *Exit `json:"exit,omitempty"` // nil while it is running
	Held bool  `json:"held,omitempty"` // whether another program runs it, so that the shim serves only its streams
}

// Held is the result of MethodLetGo. The methods are for a container that another program runs and
// whose streams the shim serves. The streams are FIFOs in the bundle, which must exist when
// MethodHold is called. The caller must keep the write ends open until that program has opened
// them. The shim copies the output until all writers have closed the FIFOs.
type Held struct {
	OOM bool `json:"oom,omitempty"` // whether the kernel killed one of its processes because memory was short
}

// The FIFOs in the bundle of a container of which the shim serves only the streams. There is a FIFO
// for stdin if the container has stdin, and one for stderr if it has no terminal.
const (
	FIFOStdin  = "stdin"
	FIFOStdout = "stdout"
	FIFOStderr = "stderr"
)

// An Exit is the end of a container's first process.
type Exit struct {
	Code       int32     `json:"code"` // 128 + signal number if a signal killed it
	OOM        bool      `json:"oom,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
}

// A KillRequest sends a signal to a container's first process, or to all processes.
type KillRequest struct {
	ID     string `json:"id"`
	Signal int    `json:"signal"`
	All    bool   `json:"all,omitempty"`
}

// An AttachRequest requests a container's streams.
type AttachRequest struct {
	ID     string `json:"id"`
	Stdin  bool   `json:"stdin,omitempty"`
	Stdout bool   `json:"stdout,omitempty"`
	Stderr bool   `json:"stderr,omitempty"`
	End    bool   `json:"end,omitempty"` // whether the caller supports StreamEnd
}

// Attached is the reply to an AttachRequest. The reply has no body if the shim does not support
// StreamEnd.
type Attached struct {
	End bool `json:"end,omitempty"` // whether the last frame is StreamEnd
}
