package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An Op is a kind of action on a pod.
type Op uint8

// The operations. Repeating an operation succeeds.
const (
	RunSandbox      Op = iota + 1 // release the resources of older sandboxes and run the next one
	StopSandbox                   // stop the sandbox and release its network
	RemoveSandbox                 // stop the sandbox if necessary and remove it
	StartContainer                // pull the image if necessary, create the container and start it
	StopContainer                 // stop the container within Grace
	RemoveContainer               // remove a container that does not run
	Admit                         // decide whether the pod may run on this node, and store the decision
	Update                        // pass a changed spec to the hooks
	Ended                         // release the resources that a pod needs only while it runs
	Forget                        // release all resources of the pod, and let its source forget the pod
	PostStart                     // run the postStart hook of a started container
	PreStop                       // run the preStop hook within Grace, before a container is stopped
	Allocate                      // decide whether the pod may have the wanted resources, and store the decision
	Resize                        // apply the allocated resources to running containers and to the pod as a whole
)

var opNames = [...]string{"", "RunSandbox", "StopSandbox", "RemoveSandbox", "StartContainer", "StopContainer", "RemoveContainer",
	"Admit", "Update", "Ended", "Forget", "PostStart", "PreStop", "Allocate", "Resize"}

// String returns the name of the operation.
func (o Op) String() string { return opNames[o] }

// An Action is an operation on a subject: the named container, or the pod itself if no container is named. It is
// comparable, so that plans can be compared with slices.Equal.
type Action struct {
	Op        Op
	Container string // empty for an action on the pod itself
	ID        string // sandbox or container ID; empty for RunSandbox and StartContainer
	Attempt   uint32
	Streak    uint32        // consecutive crashes, stored as an annotation of the container
	Round     uint32        // for StartContainer: the container's round, see Round
	Grace     time.Duration // for StopContainer and PreStop
	Again     bool          // for StopContainer and PreStop: the container runs again, whatever its restart policy
	// Hash is the hash of the new definition for StartContainer, and for StopContainer and PreStop if they stop a
	// container in order to replace it. For RunSandbox, Update and Resize it is the hash of the pod's spec.
	Hash string
	// Target is the container ID of an ephemeral container's target, whose processes it is to see. It is empty if
	// there is no target or the target does not run.
	Target string
}

// A Flight is an action that was started and has not ended.
type Flight struct {
	Action
	Since time.Time
}

// A State is the state of a container.
type State uint8

// The states of the CRI. A container in state Unknown may or may not run. It is stopped before any other action.
const (
	Created State = iota
	Running
	Exited
	Unknown
)

// A Sandbox is one attempt to run the sandbox of a pod.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	Started   time.Time // time of the pod's first start, copied from sandbox to sandbox as an annotation
	Source    string    // source of the pod (annotation kubernetes.io/config.source)
	Namespace string
	Name      string
	IPs       []string
	Hash      string // of the pod's spec; empty if not known
}

// A Container is one attempt to run a container of the pod.
type Container struct {
	ID, Name, SandboxID              string
	Attempt, Streak, Round           uint32
	State                            State
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	Reason                           string // from the runtime: OOMKilled, Error, Completed ...
	Message                          string // termination message, or else the runtime's message
	Image, ImageID                   string
	LogPath                          string
	Hash                             string // of the definition; empty if not known
	StopSignal                       string // first signal to stop the container, by its Kubernetes name; empty if not known
	User                             *User  // of the first process; nil if not known
	PostStart                        bool   // has a postStart hook; Input.Hooked tells whether it has returned
	Anew                             string // Size.Anew when the container was created; empty if there was none or it is not known

	Resources *Resources // as the runtime reports them; nil if it does not
}

// A User holds the IDs that a process runs with. It is immutable.
type User struct {
	UID, GID int64
	Groups   []int64 // the others
}

// Live reports whether the container runs or may run.
func (c Container) Live() bool { return c.State == Running || c.State == Unknown }

// Observed is the last known state of a pod in the runtime. It is immutable, so it may be shared.
type Observed struct {
	Sandboxes  []Sandbox
	Containers []Container
}

// A Key identifies an operation that failed.
type Key struct {
	Container string // empty for the pod itself
	Op        Op
}

// A Failure records that an operation failed N times in a row.
type Failure struct {
	N       int
	At      time.Time // of the last failure
	Retry   time.Time // no retry before this time
	Reason  string    // as in a kubelet: ErrImagePull, CreateContainerError ...
	Hash    string    // of the definition that failed
	ID      string    // for PostStart the container, for StartContainer the Target
	Message string
}

// A Restart is a person's request to restart a container. The container is stopped if it runs, its end does not count
// as a crash, and the next attempt starts without a back-off.
type Restart struct {
	ID    string
	Grace time.Duration // for StopContainer
}

// Health is the result of a container's probes. A container without probes has no Health and counts as started and
// ready while it runs.
type Health struct {
	Started   bool // the startup probe has passed
	Ready     bool
	Unhealthy bool // the startup or liveness probe has failed
}

// An End is a decision that a pod must not run or not run any longer: it was rejected, evicted, or had ended long
// before. Its containers are stopped, and it never runs again.
type End struct {
	Phase           v1.PodPhase // the phase if it is already final; empty: Failed as soon as nothing of the pod runs
	Reason, Message string
	Grace           time.Duration // maximum grace period of its containers; 0 means that of the spec
	Disrupted       bool          // the node ends the pod in favour of other pods (condition DisruptionTarget)
}

// Input is all the data that Decide and status.Make use.
type Input struct {
	UID      types.UID
	Want     *v1.Pod       // the wanted pod; nil means that all of it is to be removed
	Deleting bool          // the pod is to end gracefully and to be removed
	Grace    time.Duration // total grace period of the containers
	Lives    uint32        // how many times the pod has ended and was wanted again under its UID; counted as restarts
	Stopping time.Time     // when the end of the pod was first requested
	Waiting  bool          // an earlier pod of the same name still exists
	Hold     bool          // no source wants the pod, but not all sources are known yet: do nothing
	Admitted bool          // the node decided that the pod may run
	End      *End          // the node decided that the pod must not run, or not any longer
	Started  time.Time     // when the node first accepted the pod

	// Reconsider requests another decision about a pod that has an End, because the reason may no longer apply.
	Reconsider bool

	// Off is when the pod began to end because of a shutdown of the machine. It is zero otherwise. Grace is then the
	// pod's grace period for the shutdown. The pod runs again after the next boot.
	Off time.Time

	// Want contains the resources that the node allocated to the pod. Undecided means that other resources are
	// wanted, about which the node has to decide. Pending is the last decision.
	Undecided bool
	Pending   Pending

	// Sizes are the allocated resources by container name. Containers without an entry cannot be resized. Sized are
	// the resources that the runtime last accepted, by container ID. Level and Leveled are the same for the pod as a
	// whole. If Leveled is nil, it counts as equal to Level. Unsure means that the pod's actual resources may differ.
	Sizes   map[string]Size
	Sized   map[string]Resources
	Level   Resources
	Leveled *Resources
	Unsure  bool

	// Spec is the hash of the wanted spec. Applied is the hash of the spec that was last passed to the hooks. Both
	// are empty if not known.
	Spec, Applied string

	Ended     bool // the hooks released what an ended pod does not need, and nothing was started since
	Forgotten bool // the hooks released everything and the source was informed, and nothing was started since

	// Stale is the ID of a ready sandbox that has to be replaced because the node's network has changed. It is empty
	// if there is none.
	Stale string

	Seen   Observed
	Busy   map[string]Flight // actions in flight, by subject
	Failed map[Key]Failure   // failures of the wanted definitions
	Health map[string]Health // by container ID

	// Hooked contains the IDs of the containers whose postStart hook has returned. PreStopped contains the duration
	// of preStop hooks that have returned or failed, by container ID.
	Hooked     map[string]bool
	PreStopped map[string]time.Duration

	// Replaced contains, by name, the IDs of containers that were stopped for a new definition or with Again. They
	// start again whatever their restart policy is.
	Replaced map[string]string

	// Requested contains, by container name, the restarts that a person requested.
	Requested map[string]Restart

	// Dead limits how many ended containers are kept.
	Dead Dead

	// CrashMax is the longest crash back-off. 0 means 5 min.
	CrashMax time.Duration

	Now time.Time
}

// Dead limits how many ended containers of a pod are kept. The newest container of each name is kept in any case.
type Dead struct {
	// More is how many are kept of each name in addition to the last one that ended. With -1 that one is not kept
	// either when the next one runs.
	More int
	// MinAge is the minimum time for which each is kept.
	MinAge time.Duration
}

// Decision is what to do now, and when to call Decide again.
type Decision struct {
	Start  []Action  // each for another idle subject
	Cancel []string  // subjects whose action in flight is no longer wanted
	Wake   time.Time // call Decide again at this time even without an event; zero if not needed
	Done   bool      // nothing of the pod is left or wanted

	Notices []Notice // news for people, each reported once
}

// A Notice is the reason why a container waits or why the pod ends.
type Notice struct {
	Container string // empty for the pod itself
	Reason    string // CrashLoopBackOff, ImagePullBackOff, DeadlineExceeded
	N         int    // the attempt that ended, or the number of failed pulls
}
