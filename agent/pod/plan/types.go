package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An Op names one thing an executor can do to a pod.
type Op uint8

// The operations. Carrying out one that is done already is success.
const (
	RunSandbox      Op = iota + 1 // release what older sandboxes hold, run the next one
	StopSandbox                   // stop it and give back its network
	RemoveSandbox                 // stop it if need be, and remove it
	StartContainer                // pull the image if needed, create, start
	StopContainer                 // stop within Grace
	RemoveContainer               // remove a container that does not run
	Admit                         // decide whether the pod may run here, and store that
	Update                        // let the hooks follow a change of the pod's spec
	Ended                         // give back what a pod needs only while something of it runs
	Forget                        // give back all that the host holds for it, and let its source forget it
	PostStart                     // run the postStart hook of a container that has started
	PreStop                       // run the preStop hook of a container that is to stop, within Grace
	Allocate                      // decide whether the pod may have the resources it is wanted with, and store that
	Resize                        // give what runs of the pod, and the pod as a whole, the allocated resources
)

var opNames = [...]string{"", "RunSandbox", "StopSandbox", "RemoveSandbox", "StartContainer", "StopContainer", "RemoveContainer",
	"Admit", "Update", "Ended", "Forget", "PostStart", "PreStop", "Allocate", "Resize"}

// String returns the name of the operation.
func (o Op) String() string { return opNames[o] }

// An Action is comparable, so plans are compared with slices.Equal. Its subject
// is the container that it names, or the pod itself when it names none.
type Action struct {
	Op        Op
	Container string // empty: the action is on the pod itself
	ID        string // sandbox or container ID; empty for RunSandbox and StartContainer
	Attempt   uint32
	Streak    uint32        // crashes in a row, kept as an annotation of the container
	Round     uint32        // of StartContainer: the run of the whole pod that it belongs to, see Round
	Grace     time.Duration // of StopContainer and PreStop
	Again     bool          // of StopContainer and PreStop: it is to run again however it ends
	// Hash is that of the definition that StartContainer is for, or that StopContainer
	// or PreStop makes room for; of RunSandbox, Update and Resize it is that of the pod's
	// spec.
	Hash string
	// Target is the ID of the container whose processes an ephemeral container is to see;
	// empty: it names none, or none runs.
	Target string
}

// A Flight is an action that was started and has not ended.
type Flight struct {
	Action
	Since time.Time
}

// A State is where a container is in its life.
type State uint8

// The states of the CRI. A container in state Unknown may or may not run: it
// is stopped before anything else happens to it.
const (
	Created State = iota
	Running
	Exited
	Unknown
)

// A Sandbox is one attempt to give the pod a place to live in.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	Started   time.Time // when the pod first started; carried from sandbox to sandbox by annotation
	Source    string    // which source wanted the pod (annotation kubernetes.io/config.source)
	Namespace string
	Name      string
	IPs       []string
	Hash      string // of the pod's spec that it was made for; empty: not known
}

// A Container is one attempt to run a container of the pod.
type Container struct {
	ID, Name, SandboxID              string
	Attempt, Streak, Round           uint32
	State                            State
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	Reason                           string // the runtime's: OOMKilled, Error, Completed ...
	Message                          string // termination message, or else the runtime's
	Image, ImageID                   string
	LogPath                          string
	Hash                             string // of the definition that it was made from; empty: not known
	StopSignal                       string // that it gets first, in Kubernetes' words; empty: not known
	User                             *User  // as whom its first program runs; nil: not known
	PostStart                        bool   // a postStart hook is to run in it; it did once the ID is in Input.Hooked
	Anew                             string // Size.Anew as it was made; empty: none, or not known

	Resources *Resources // what it may use, as the runtime shows it; nil: the runtime does not tell
}

// A User is as whom a program runs. It is not changed.
type User struct {
	UID, GID int64
	Groups   []int64 // the others
}

// Live reports whether the container runs, or may run.
func (c Container) Live() bool { return c.State == Running || c.State == Unknown }

// Observed is what the runtime last said of one pod. It is replaced, never
// changed, so it may be shared.
type Observed struct {
	Sandboxes  []Sandbox
	Containers []Container
}

// A Key names what failed.
type Key struct {
	Container string // empty: the pod itself
	Op        Op
}

// A Failure remembers that an operation failed N times in a row.
type Failure struct {
	N       int
	At      time.Time // the last time
	Retry   time.Time // not again before
	Reason  string    // the kubelet's word for it: ErrImagePull, CreateContainerError ...
	Hash    string    // of the definition that it failed for
	ID      string    // of PostStart the container, of StartContainer the Target
	Message string
}

// An Ask is a person's wish that a container runs anew: it is stopped if it runs, the
// next attempt does not wait, and its end counts as no crash.
type Ask struct {
	ID    string
	Grace time.Duration // for its processes to end
}

// Health is what the probes of a container say. A container without probes has
// none and counts as started and ready while it runs.
type Health struct {
	Started   bool // the startup probe passed
	Ready     bool
	Unhealthy bool // the startup or liveness probe gave it up
}

// An End is a verdict on a pod: not admitted, evicted, or over since long. Its
// containers are stopped and it never runs again.
type End struct {
	Phase           v1.PodPhase // that it is in already; empty: it is Failed once nothing of it runs
	Reason, Message string
	Grace           time.Duration // the most that its containers get to end; 0: as its spec says
	Disrupted       bool          // the node ends it for the sake of others (condition DisruptionTarget)
}

// Input is everything Decide and status.Make may look at.
type Input struct {
	UID      types.UID
	Want     *v1.Pod       // the wanted pod; nil: nothing of it may stay
	Deleting bool          // it is to end gracefully and to be removed
	Grace    time.Duration // how long its containers get in all
	Lives    uint32        // how often it has ended and come back under its UID: counted as restarts
	Stopping time.Time     // when the end of the pod was first asked for
	Waiting  bool          // a predecessor of the same name is not gone yet
	Hold     bool          // nobody wants it, but its source has not spoken yet: leave it alone
	Admitted bool          // the node decided that it may run here
	End      *End          // the node decided that it may not, or not any more
	Started  time.Time     // when the node first took the pod up

	// Reconsider asks for another decision on a pod with an End: the reason may be gone.
	Reconsider bool

	// Off is when it was the pod's turn to end because the machine goes off; zero: it is not. Grace is then its grace
	// period. The pod runs again after the next boot.
	Off time.Time

	// Want has the resources that the node allocated to the pod. Undecided says that it is wanted with others, about
	// which the node has to decide. Pending is the last decision.
	Undecided bool
	Pending   Pending

	// Sizes are the allocated resources by container name; a container that is not in it cannot be resized. Sized are
	// the resources that the runtime last accepted, by container ID. Level and Leveled are the same of the pod as a
	// whole; a nil Leveled counts as Level. Unsure says that the pod may have other resources.
	Sizes   map[string]Size
	Sized   map[string]Resources
	Level   Resources
	Leveled *Resources
	Unsure  bool

	// Spec is the hash of the wanted spec, Applied the hash of the spec that the hooks know. Empty: not known.
	Spec, Applied string

	Ended     bool // the hooks released what a pod that has ended does not need; nothing was started since
	Forgotten bool // the hooks released everything, and its source was told; nothing was started since

	// Stale is the ID of a sandbox that is to be replaced though it is ready, because the node's network has changed.
	// Empty: there is none.
	Stale string

	Seen   Observed
	Busy   map[string]Flight // in flight, by subject
	Failed map[Key]Failure   // of the wanted definitions
	Health map[string]Health // by container ID

	// Hooked has the IDs of the containers whose postStart hook has returned. PreStopped has, by container ID, how long
	// the preStop hook took, for hooks that have ended or failed.
	Hooked     map[string]bool
	PreStopped map[string]time.Duration

	// Replaced has, by name, the IDs of containers that were stopped for a new definition, or to run Again: they start
	// again whatever their restart policy is.
	Replaced map[string]string

	// Asked has, by name, the containers that a person requested to restart.
	Asked map[string]Ask

	// Dead bounds how many containers that have ended are kept.
	Dead Dead

	// CrashMax is the longest back-off of a container that ends again and again;
	// 0 stands for 5 min.
	CrashMax time.Duration

	Now time.Time
}

// Dead bounds what is kept of the containers of a pod that have ended. The newest of each
// name stays in any case.
type Dead struct {
	// More is how many are kept of each name beyond the last one that ended. -1: not even
	// that one, once the next one runs.
	More int
	// MinAge is how long each is kept at least.
	MinAge time.Duration
}

// Decision is what to do now, and when to ask again.
type Decision struct {
	Start  []Action  // each on a different idle subject
	Cancel []string  // subjects whose action in flight is no longer wanted
	Wake   time.Time // ask again then even if nothing happens; zero: only on events
	Done   bool      // nothing of the pod is left, and nothing of it is wanted

	Notices []Notice // what a person should be told, each once
}

// A Notice says for what a container waits, or why the pod ends.
type Notice struct {
	Container string // empty: it is of the pod
	Reason    string // CrashLoopBackOff, ImagePullBackOff, DeadlineExceeded
	N         int    // the attempt that ended, or how many pulls failed
}
