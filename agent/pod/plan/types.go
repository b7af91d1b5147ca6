package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An Op is a kind of action on a pod.
type Op uint8

// The operations. Each operation can be repeated without an error.
const (
	RunSandbox      Op = iota + 1 // release the resources of older sandboxes and run the next sandbox
	StopSandbox                   // stop the sandbox and release its network
	RemoveSandbox                 // stop the sandbox if it is running, and remove it
	StartContainer                // pull the image if necessary, create the container and start it
	StopContainer                 // stop the container within Grace
	RemoveContainer               // remove a container that is not running
	Admit                         // decide whether the pod may run on this node, and store the decision
	Update                        // pass a changed spec to the hooks
	Ended                         // release the resources that a pod needs only while it runs
	Forget                        // release all resources of the pod, and report to the pod's source that it is gone
	PostStart                     // run the postStart hook of a started container
	PreStop                       // run the preStop hook, for at most Grace, before a container is stopped
	Allocate                      // decide whether the pod may have the wanted resources, and store the decision
	Resize                        // apply the allocated resources to running containers and to the pod as a whole
	Unmount                       // unmount the volumes of a pod that stopped because the machine shuts down
)

var opNames = [...]string{"", "RunSandbox", "StopSandbox", "RemoveSandbox", "StartContainer", "StopContainer", "RemoveContainer",
	"Admit", "Update", "Ended", "Forget", "PostStart", "PreStop", "Allocate", "Resize", "Unmount"}

// String returns the name of the operation.
func (o Op) String() string { return opNames[o] }

// An Action is an operation on a subject. The subject is the named container, or the pod itself if no container is
// named. Actions are comparable, so that slices.Equal can compare plans.
type Action struct {
	Op        Op
	Container string // empty for an action on the pod itself
	ID        string // ID of the sandbox or container; empty for RunSandbox and StartContainer
	Attempt   uint32
	Streak    uint32        // number of consecutive crashes, stored as an annotation of the container
	Round     uint32        // for StartContainer: the container's round, see CurrentRound
	Grace     time.Duration // for StopContainer and PreStop
	KeepsLog  bool          // for RemoveContainer: the pod is removed too, so the log is removed with the pod's log directory
	// Interrupts is set for StopContainer and PreStop if they stop a container of a pod that has not ended.
	Interrupts Interruption
	// Hash is the hash of the new definition. It is set for StartContainer, and for StopContainer and PreStop if they
	// stop a container in order to replace it. For RunSandbox, Update and Resize it is the hash of the pod's spec.
	Hash string
	// Target is the ID of the container whose processes an ephemeral container is to see. It is empty if there is no
	// target or the target is not running.
	Target string
}

// A RunningAction is an action that has started and has not ended.
type RunningAction struct {
	Action
	Since time.Time
}

// A State is the state of a container.
type State uint8

// The states have the same meaning as in the CRI. A container in state Unknown may or may not be running. It is stopped
// before any other action.
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
	Started   time.Time // time of the pod's first start; an annotation that is copied from sandbox to sandbox
	Source    string    // source of the pod (annotation kubernetes.io/config.source)
	Namespace string
	Name      string
	IPs       []string
	Hash      string // hash of the pod's spec; empty if unknown
}

// A Container is one attempt to run a container of the pod.
type Container struct {
	ID, Name, SandboxID              string
	Attempt, Streak, Round           uint32
	State                            State
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int32
	Reason                           string // the runtime's reason: OOMKilled, Error, Completed ...
	Message                          string // the termination message; if there is none, the runtime's message
	Image, ImageID                   string
	LogPath                          string
	Hash                             string // hash of the definition; empty if unknown
	StopSignal                       string // first signal that stops the container, by its Kubernetes name; empty if unknown
	User                             *User  // IDs of the first process; nil if unknown
	PostStart                        bool   // the container has a postStart hook; if it has returned, Input.Hooked contains it
	RestartResources                 string // Size.RestartResources at the container's creation; empty if it was empty or is unknown
	Scheduler                        string // keys.ContainerScheduler at the container's creation; empty for the default

	// Resources contains the resources that the runtime reports, and the memory request at the container's creation. It is nil if the
	// runtime reports no resources.
	Resources *Resources
}

// A User contains the IDs with which a process runs.
type User struct {
	UID, GID int64
	Groups   []int64 // supplementary groups
}

// MayRun reports whether the container is or may be running.
func (c Container) MayRun() bool { return c.State == Running || c.State == Unknown }

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

// A Failure records that an operation has failed N times in a row.
type Failure struct {
	N       int
	At      time.Time // of the last failure
	Retry   time.Time // time of the next attempt
	Reason  string    // a kubelet's reason: ErrImagePull, CreateContainerError ...
	Hash    string    // hash of the definition that failed
	ID      string    // for PostStart the container ID, for StartContainer the Target
	Message string
}

// A Restart is a user's request to restart a container. If the container is running, it is stopped. Its end does not
// count as a crash, and the next attempt starts without a back-off.
type Restart struct {
	ID    string
	Grace time.Duration // for StopContainer
}

// Health contains the results of a container's probes. A container without probes has no Health. It counts as started
// and ready while it is running.
type Health struct {
	Started   bool // the startup probe has passed
	Ready     bool
	Unhealthy bool // the startup or liveness probe has failed
}

// An End is the decision that a pod must not run, or must stop. The pod was rejected or evicted, or its phase was
// already final. Its containers are stopped, and it never runs again.
type End struct {
	Phase           v1.PodPhase // the phase if it is already final; if empty, the pod becomes Failed when all its containers have stopped
	Reason, Message string
	Grace           time.Duration // maximum grace period of the pod's containers; 0 means the grace period of the spec
	Disrupted       bool          // the pod gets the condition DisruptionTarget
}

// Input contains all the data that Decide and status.Compute use.
type Input struct {
	UID      types.UID
	Want     *v1.Pod       // the wanted pod; nil means that the pod is to be removed completely
	Deleting bool          // the pod is to end gracefully and then to be removed
	Grace    time.Duration // total grace period of the containers
	Lives    uint32        // how often the pod has ended and was then wanted again with the same UID; counted as restarts
	Stopping time.Time     // when the end of the pod was first requested
	Waiting  bool          // an earlier pod with the same name still exists
	Hold     bool          // nothing is done, because no source wants the pod, but some sources have not reported their pods yet
	Admitted bool          // the node has decided that the pod may run
	End      *End          // the node's decision that the pod must not run, or must stop
	Started  time.Time     // when the node first accepted the pod

	// Reconsider requests another decision on a pod that has an End, because the reason for the End may no longer
	// apply.
	Reconsider bool

	// ShutdownSince is the time at which the pod began to end because the machine shuts down. It is zero if the machine does
	// not shut down. If ShutdownSince is set, Grace is the pod's grace period for the shutdown. The pod runs again after the
	// next boot.
	ShutdownSince time.Time

	// Want contains the resources that the node has allocated to the pod. If Undecided is true, the pod's
	// source wants other resources, and the node has not decided about them yet. Pending is the last
	// decision.
	Undecided bool
	Pending   Pending

	// Sizes contains the allocated resources by container name. Containers without an entry cannot be resized.
	// Sized contains the resources that the runtime last accepted, by container ID. PodLevel contains the allocated
	// resources of the pod as a whole. Leveled contains the resources that were last set for the pod as a whole. If
	// Leveled is nil, it is treated as equal to PodLevel. If Unsure is true, the pod's actual resources may differ
	// from Leveled. If Resized is true, a resize of the pod may have been interrupted by the end of the agent. The
	// containers without an entry in Sized then have any of the resources that were allocated to the pod.
	Sizes    map[string]Size
	Sized    map[string]Resources
	PodLevel Resources
	Leveled  *Resources
	Unsure   bool
	Resized  bool

	// Spec is the hash of the wanted spec. Applied is the hash of the spec that was last passed to the hooks. Both
	// are empty if unknown.
	Spec, Applied string

	Ended     bool // the hooks have released the resources that only a running pod needs, and nothing has been started since
	Unmounted bool // the hooks have unmounted the pod's volumes for a shutdown, and nothing has been started since
	Forgotten bool // the hooks have released all resources and the source was informed, and nothing has been started since

	// Stale is the ID of a ready sandbox that must be replaced because the node's network has changed. It is empty if
	// there is none.
	Stale string

	Observed Observed
	InFlight map[string]RunningAction // actions in flight, by subject
	Failed   map[Key]Failure          // failures of the wanted definitions
	Health   map[string]Health        // results of probes, by container ID

	// Hooked contains the IDs of the containers whose postStart hook has returned. PreStopped contains the durations
	// of preStop hooks that have returned or failed, by container ID.
	Hooked     map[string]bool
	PreStopped map[string]time.Duration

	// Interrupted contains the Interruptions of the pod's containers, by container ID.
	Interrupted map[string]Interruption

	// Requested contains the restarts that a user requested, by container name.
	Requested map[string]Restart

	DeadLimit DeadLimit

	// CrashMax is the maximum crash back-off. 0 means 5 min.
	CrashMax time.Duration

	Now time.Time
}

// DeadLimit limits how many ended containers of a pod are kept. The newest container of each name is always kept.
type DeadLimit struct {
	// More is the number of containers of each name that are kept in addition to the last one that ended. If it is -1,
	// the last container that ended is also removed once the next container is running.
	More int
	// MinAge is the minimum time for which each container is kept.
	MinAge time.Duration
}

// A Decision contains the actions that a pod needs now, and the time at which to call Decide again.
type Decision struct {
	Start  []Action  // actions to start, each on another idle subject
	Cancel []string  // subjects whose action in flight is no longer wanted
	Wake   time.Time // time at which to call Decide again even without an event; zero if that is not needed
	Done   bool      // the pod is not wanted any more, and nothing of it is left

	Notices []Notice // messages for users, each of which is reported once
}

// A Notice is the reason why a container is waiting or why the pod is ending.
type Notice struct {
	Container string // empty for the pod itself
	Reason    string // CrashLoopBackOff, ImagePullBackOff, DeadlineExceeded
	N         int    // the attempt that ended, or the number of failed pulls
}
