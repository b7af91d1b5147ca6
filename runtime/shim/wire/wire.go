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

// A Reply answers the request with the same ID. A Reply with the ID zero is an event.
type Reply struct {
	ID    uint64          `json:"id,omitempty"`
	Error string          `json:"error,omitempty"`
	Kind  string          `json:"kind,omitempty"` // NotFound, Conflict or empty
	Body  json.RawMessage `json:"body,omitempty"`
	Event *Container      `json:"event,omitempty"` // a container that has ended
}

// Kinds of errors that callers distinguish.
const (
	NotFound = "NotFound"
	Conflict = "Conflict"
)

// A Target selects the container of a request.
type Target struct {
	ID   string `json:"id"`
	Wait bool   `json:"wait,omitempty"` // for delete: wait until the container has ended instead of returning an error
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
	// KillAll makes the shim kill the other processes of the cgroup when the first process has
	// ended. It is set for a container that shares its PID namespace.
	KillAll bool `json:"killAll,omitempty"`
	// Plain means that the specification has neither hooks nor Intel RDT. After its end, the shim may
	// then delete the container without the OCI runtime.
	Plain     bool `json:"plain,omitempty"`
	Terminal  bool `json:"terminal,omitempty"`
	Stdin     bool `json:"stdin,omitempty"`
	StdinOnce bool `json:"stdinOnce,omitempty"`
	// Owner is the owner of the container's streams. It is set for a container in a user namespace,
	// which otherwise could not open /dev/stdout.
	Owner *Owner `json:"owner,omitempty"`
	// Mounts is used by shims in their own mount namespace. If it is nil, the OCI runtime runs in
	// the host's mount namespace.
	Mounts *Mounts `json:"mounts,omitempty"`
}

// An Owner is a UID and a GID of the host.
type Owner struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Mounts are the mounts of a container below the directories that are hidden from its shim. The
// bundle contains a symbolic link to each source. A shim in its own mount namespace replaces the
// link by a copy of the mount while the container starts. A shim in the host's mount namespace uses
// the link.
type Mounts struct {
	// Pins is the directory of the sandbox's pinned namespaces on the host. PinsLink points to it.
	Pins string `json:"pins,omitempty"`
	// Borrow contains the sources of bind mounts. The key is the path of the link to the source,
	// relative to the bundle. There is also an entry for the root file system, which has no link.
	Borrow map[string]string `json:"borrow,omitempty"`
	// Same contains sources that must be the same file in the mount namespaces of the shim and the host. If one of them is a different
	// file, the container is started in the host's mount namespace.
	Same []string `json:"same,omitempty"`
}

// PinsLink is the name of the link in a bundle to the directory of the sandbox's pinned namespaces.
const PinsLink = "ns"

// A Log configures the CRI log of a container. If it has no path, there is no log.
type Log struct {
	Path     string `json:"path,omitempty"`
	MaxBytes int64  `json:"maxBytes,omitempty"` // size at which the log is rotated; 0 disables rotation
	MaxFiles int    `json:"maxFiles,omitempty"`
	// Interval is the minimum time between two rotations. Older agents send the interval 0, which means 10 s. HardMaxBytes is the size in
	// bytes at which a log is rotated without this delay. If it is 0, this size is MaxBytes times MaxFiles. Its name in JSON is that of
	// the first version.
	Interval     time.Duration `json:"interval,omitempty"`
	HardMaxBytes int64         `json:"most,omitempty"`
}

// Running is the first process of a started container.
type Running struct {
	Pid       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
}

// A Container reports the state of a container of the shim.
type Container struct {
	ID string `json:"id"`
	Running
	Exit *Exit `json:"exit,omitempty"` // nil while it is running
	Held bool  `json:"held,omitempty"` // whether another program runs it; see MethodHold
}

// Held is the result of MethodLetGo. MethodHold and MethodLetGo are for a container that another
// program runs, while the shim serves its streams. The streams are FIFOs in the bundle, which must
// exist when MethodHold is called. The caller must keep the write ends open until the other program
// has opened them. The shim copies the output until all writers have closed the FIFOs.
type Held struct {
	OOM bool `json:"oom,omitempty"` // whether the OOM killer killed a process of the container
}

// FIFOs in the bundle of a held container. FIFOStdin exists only if the container has stdin.
// FIFOStderr exists only if the container has no terminal.
const (
	FIFOStdin  = "stdin"
	FIFOStdout = "stdout"
	FIFOStderr = "stderr"
)

// An Exit describes the end of a container's first process.
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

// An AttachRequest connects to streams of a container.
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
