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
	MethodHold     = "hold"     // RunRequest: only the streams; see Held
	MethodLetGo    = "let go"   // Target -> Held: of a container whose streams it holds
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
	// Owner is to have the container's streams if its root is not the host's: else it
	// could not open /dev/stdout.
	Owner *Owner `json:"owner,omitempty"`
	// Mounts is what a shim that does not see the host's mounts must know; nil:
	// the OCI runtime runs among the host's mounts.
	Mounts *Mounts `json:"mounts,omitempty"`
}

// An Owner is a user of the host, and a group.
type Owner struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Mounts are what a container needs from below the directories that its shim does
// not see the mounts of. In the bundle a symbolic link leads to each place on the
// host, so that it also works for a shim that sees all of them; one that does not
// puts the mount itself in the link's place for as long as the container starts.
type Mounts struct {
	// Pins is the directory on the host with the pinned namespaces to which the
	// bundle's link PinsLink leads.
	Pins string `json:"pins,omitempty"`
	// Borrow are the sources of bind mounts, by the path of their link in the
	// bundle. The root file system is one of them, without a link.
	Borrow map[string]string `json:"borrow,omitempty"`
	// Same are the sources that must be the same file seen from the shim and from
	// the host; else the container is started among the host's mounts.
	Same []string `json:"same,omitempty"`
}

// PinsLink is the link in a bundle to its sandbox's pinned namespaces.
const PinsLink = "ns"

// A Log says where and how a container's CRI log is written. No path: nowhere.
type Log struct {
	Path     string `json:"path,omitempty"`
	MaxBytes int64  `json:"maxBytes,omitempty"` // rotate beyond; 0: never
	MaxFiles int    `json:"maxFiles,omitempty"`
	// Interval is the least time between two rotations; 0, as an older agent says: 10 s. A log
	// that comes to Most bytes before is rotated all the same; 0: MaxBytes times MaxFiles.
	Interval time.Duration `json:"interval,omitempty"`
	Most     int64         `json:"most,omitempty"`
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
	Held bool  `json:"held,omitempty"` // only its streams are here
}

// Held is what a shim knows at its end of a container of which it has only held the
// streams, because another program runs it. They are FIFOs in the bundle, which are
// there when it is asked to hold them, and of which the asker holds the writing ends
// until that program has opened them. It moves output until nobody can write any more.
type Held struct {
	OOM bool `json:"oom,omitempty"` // the kernel killed one of its processes
}

// The FIFOs of a container whose streams a shim holds, in its bundle. stdin is there
// if the container wants one, stderr if it has no terminal.
const (
	FIFOStdin  = "stdin"
	FIFOStdout = "stdout"
	FIFOStderr = "stderr"
)

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
	End    bool   `json:"end,omitempty"` // the asker knows StreamEnd
}

// Attached answers an AttachRequest. A shim that does not know StreamEnd has no body in
// its reply.
type Attached struct {
	End bool `json:"end,omitempty"` // the last frame is StreamEnd
}
