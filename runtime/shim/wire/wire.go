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
	MethodReopen   = "reopen"   // Target: reopen the log file
	MethodAttach   = "attach"   // AttachRequest; then Frames both ways
	MethodHold     = "hold"     // RunRequest: serve only the streams; see Held
	MethodLetGo    = "let go"   // Target -> Held: ends MethodHold
	MethodShutdown = "shutdown" // ends the shim if it has no containers
)

// ExitFile is the file in a bundle to which the shim writes an Exit.
const ExitFile = "exit.json"

// A Request calls a method. The caller chooses its IDs, which must not be zero.
type Request struct {
	ID     uint64          `json:"id"`
	Method string          `json:"method"`
	Body   json.RawMessage `json:"body,omitempty"`
}

// A Reply is the reply to the request with the same ID, or an event if ID is zero.
type Reply struct {
	ID    uint64          `json:"id,omitempty"`
	Error string          `json:"error,omitempty"`
	Kind  string          `json:"kind,omitempty"` // of the error: NotFound, Conflict or empty
	Body  json.RawMessage `json:"body,omitempty"`
	Event *Container      `json:"event,omitempty"` // a container ended
}

// Kinds of errors that callers distinguish.
const (
	NotFound = "NotFound"
	Conflict = "Conflict"
)

// Target is the container of a request.
type Target struct {
	ID   string `json:"id"`
	Wait bool   `json:"wait,omitempty"` // delete: wait for the container's end instead of returning an error
}

// An OCI is an OCI runtime and its global options.
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
	Cgroup string `json:"cgroup,omitempty"` // path below the root of the hierarchies
	// KillAll: when the first process has ended, the others must be killed, because they do not
	// have a PID namespace of their own.
	KillAll   bool `json:"killAll,omitempty"`
	Terminal  bool `json:"terminal,omitempty"`
	Stdin     bool `json:"stdin,omitempty"`
	StdinOnce bool `json:"stdinOnce,omitempty"`
	// Owner becomes the owner of the container's streams if its root is not the host's root.
	// Otherwise it could not open /dev/stdout.
	Owner *Owner `json:"owner,omitempty"`
	// Mounts is for shims that do not see the pods' mounts; nil: the OCI runtime runs in the host's
	// mount namespace.
	Mounts *Mounts `json:"mounts,omitempty"`
}

// An Owner is a UID and a GID of the host.
type Owner struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Mounts are the mounts that a container needs from below the directories that are hidden from its
// shim. The bundle has a symbolic link to each of these host paths, which is enough for a shim that
// sees all mounts. Another shim replaces the link by a copy of the mount while the container
// starts.
type Mounts struct {
	// Pins is the host's directory of the pinned namespaces, the target of the bundle's link
	// PinsLink.
	Pins string `json:"pins,omitempty"`
	// Borrow are the sources of bind mounts, by the path of their link in the bundle. They include
	// the root file system, which has no link.
	Borrow map[string]string `json:"borrow,omitempty"`
	// Same are sources that must be the same file for the shim and the host. Otherwise the
	// container is started in the host's mount namespace.
	Same []string `json:"same,omitempty"`
}

// PinsLink is the link in a bundle to its sandbox's pinned namespaces.
const PinsLink = "ns"

// A Log configures a container's CRI log. Without a path there is no log.
type Log struct {
	Path     string `json:"path,omitempty"`
	MaxBytes int64  `json:"maxBytes,omitempty"` // size at which the log is rotated; 0: never
	MaxFiles int    `json:"maxFiles,omitempty"`
	// Interval is the minimum time between two rotations; 0, as sent by older agents, means 10 s. A
	// log that reaches Most bytes is rotated earlier; 0: MaxBytes times MaxFiles.
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
	Held bool  `json:"held,omitempty"` // another program runs it, and the shim serves only its streams
}

// Held is the result of MethodLetGo. The shim serves the streams of a container that another
// program runs. They are FIFOs in the bundle, which must exist when MethodHold is called. The
// caller keeps the write ends open until that program has opened them. The shim copies output until
// all writers have closed the FIFOs.
type Held struct {
	OOM bool `json:"oom,omitempty"` // the kernel killed one of its processes
}

// The FIFOs in the bundle of a container of which the shim serves only the streams. There is a
// stdin if the container wants one, and a stderr if it has no terminal.
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
	End    bool   `json:"end,omitempty"` // the caller supports StreamEnd
}

// Attached is the reply to an AttachRequest. The reply of a shim that does not support StreamEnd
// has no body.
type Attached struct {
	End bool `json:"end,omitempty"` // the last frame is StreamEnd
}
