package api

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultSocket is where the agent listens unless --run-dir says otherwise.
const DefaultSocket = "/run/islet/islet.sock"

// Paths of the endpoints.
const (
	PathStatus      = "/islet/v1/status"
	PathPods        = "/islet/v1/pods"    // GET: watch; POST: apply; DELETE: those of a manifest, or /NAMESPACE/NAME; POST /NAMESPACE/NAME/restart
	PathDetails     = "/islet/v1/details" // /UID: of a pod
	PathImages      = "/islet/v1/images"
	PathImageImport = "/islet/v1/images/import"
	PathImagePull   = "/islet/v1/images/pull"
	PathImagePrune  = "/islet/v1/images/prune" // POST; ?dryRun; a Pruned
	PathSettings    = "/islet/v1/settings"     // of the agent, for islet doctor
	PathEvents      = "/islet/v1/events"       // ?watch
	PathAccept      = "/islet/v1/accept"       // POST: end the pods that are held
	PathTakeOver    = "/islet/v1/takeover"     // POST; ?force: this machine takes the name of the node over
	PathShutdown    = "/islet/v1/shutdown"     // POST: end all pods in order; DELETE: let them run again
	PathClock       = "/islet/v1/clock"        // GET; DELETE: forget what was taken for proven
	PathDevices     = "/islet/v1/devices"      // ?all: also those that no resource has
	PathObjects     = "/islet/v1/objects"      // GET; DELETE: /KIND/NAMESPACE/NAME, ?data: of a claim with its data
	PathBoard       = "/islet/v1/board"        // sensors of the machine
	PathIO          = "/islet/v1/io"           // what pods and containers read from disks and wrote
	PathStats       = "/stats/summary"
)

// TrailerError is the trailer that says why a log is not complete, for clients that have a header of
// this name in their request. (TE: trailers would not do: Firefox sends it, and shows no trailer.)
const TrailerError = "Islet-Error"

// Status is how the node is.
type Status struct {
	Version   string    `json:"version"` // of islet
	Node      string    `json:"node"`
	Started   time.Time `json:"started"`            // of the agent
	Now       time.Time `json:"now"`                // the node's clock
	NotReady  []string  `json:"notReady,omitempty"` // why pods cannot run here
	Cluster   *Cluster  `json:"cluster,omitempty"`  // nil: the node stands alone
	Held      *Held     `json:"held,omitempty"`     // nil: none are
	Runtime   Runtime   `json:"runtime"`
	Network   Network   `json:"network"`
	Pods      PodCounts `json:"pods"`
	Troubles  []Trouble `json:"troubles,omitempty"`  // pods that failed or are stuck, not too many
	Ignored   []Ignored `json:"ignored,omitempty"`   // pods with fields that do not act here, not too many
	Evictable []string  `json:"evictable,omitempty"` // pods, as namespace/name, that the control plane ends when the link is down for a while
	Sources   []Source  `json:"sources"`
	Imports   []Import  `json:"imports,omitempty"`
	Disks     []Disk    `json:"disks,omitempty"`
	Store     Store     `json:"store"`
	Flash     *Flash    `json:"flash,omitempty"`    // what is written to the disk; nil: not known
	Problems  []string  `json:"problems,omitempty"` // anything else a person should know, each a sentence
	Addresses []string  `json:"addresses,omitempty"`
	Sandboxes []string  `json:"sandboxes"`        // IDs of those that exist; null: the runtime does not answer
	Events    []Event   `json:"events,omitempty"` // of the node since the agent started, the last ones, oldest first
}

// Cluster is how the node stands with its control plane.
type Cluster struct {
	Server  string    `json:"server,omitempty"` // its name and port; empty: no kubeconfig names one
	Link    string    `json:"link"`             // Up, Down, Connecting
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason,omitempty"` // why not Up, as one word
	Message string    `json:"message,omitempty"`
	// The certificates are valid until then; zero: there is none.
	ClientCertificate  time.Time `json:"clientCertificate,omitzero"`
	ServingCertificate time.Time `json:"servingCertificate,omitzero"`
	Pending            int       `json:"pending"` // pods whose latest status the API server does not have yet
}

// Held are pods that run on although the control plane does not have them, as after a
// restore from a backup or in a re-created cluster.
type Held struct {
	Pods  int       `json:"pods"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
	Until time.Time `json:"until,omitzero"` // when they end by themselves; zero: never
}

// TakenOver is the answer to a machine that takes the name of the node over.
type TakenOver struct {
	Had bool `json:"had"` // it had the name before
}

// Accepted is the answer to the end of held pods.
type Accepted struct {
	Ended int `json:"ended"` // pods
}

// Event is something that happened to a pod or the node.
type Event struct {
	Namespace string    `json:"namespace,omitempty"` // of the pod; empty: of the node
	Pod       string    `json:"pod,omitempty"`
	Type      string    `json:"type"` // Normal, Warning
	Reason    string    `json:"reason"`
	Container string    `json:"container,omitempty"`
	Message   string    `json:"message"`
	Count     int32     `json:"count"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}

// Details is what a pod's object does not say.
type Details struct {
	Problems []string `json:"problems,omitempty"` // objects and tokens that it cannot have as it should
	// Hooks are its postStart hooks that failed last. What a hook wrote may hold secrets:
	// it is for the person at the device, and no event has it.
	Hooks  []FailedHook `json:"hooks,omitempty"`
	Events []Event      `json:"events,omitempty"` // since the agent started, the last ones, oldest first
}

// FailedHook is why a hook of a container failed.
type FailedHook struct {
	Container string    `json:"container"`
	At        time.Time `json:"at"`
	Message   string    `json:"message"`
}

// Runtime is what runs the containers.
type Runtime struct {
	Name          string `json:"name"`
	Version       string `json:"version"`
	Endpoint      string `json:"endpoint,omitempty"`   // of a runtime behind a socket; empty: it is in the agent's process
	Left          string `json:"left,omitempty"`       // what the runtime of before keeps, and how it is removed
	OCIRuntime    string `json:"ociRuntime,omitempty"` // crun or runc, with version
	CgroupVersion string `json:"cgroupVersion,omitempty"`
	Snapshotter   string `json:"snapshotter,omitempty"`
	ShimPods      string `json:"shimPods,omitempty"` // pods a shim may serve
	Ready         bool   `json:"ready"`
	Message       string `json:"message,omitempty"` // why not ready
}

// Network is the pod network.
type Network struct {
	Ready    bool     `json:"ready"`
	Message  string   `json:"message,omitempty"`  // why not ready
	Config   string   `json:"config,omitempty"`   // the conflist in use, or "built in"
	PodCIDRs []string `json:"podCIDRs,omitempty"` // of the built-in network
	Repairs  *Repairs `json:"repairs,omitempty"`  // of the built-in network; nil: none
}

// Repairs are items of the pod network that another program removed or changed since the
// agent started.
type Repairs struct {
	Count int       `json:"count"`
	Last  time.Time `json:"last"`
	What  string    `json:"what"` // the last item
}

// PodCounts counts pods by phase.
type PodCounts struct {
	Total     int `json:"total"`
	Running   int `json:"running"`
	Ready     int `json:"ready"`
	Pending   int `json:"pending"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Stuck     int `json:"stuck,omitempty"` // neither ended nor able to go on by themselves
}

// Trouble is a pod that a person should look at: it failed, cannot start, or does
// not end.
type Trouble struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Container string `json:"container,omitempty"`
	Reason    string `json:"reason"`
	Message   string `json:"message,omitempty"`
}

// Ignored names the fields of a pod that this node accepts although they do not act.
type Ignored struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Fields    []string `json:"fields"` // as in spec.containers[0].resizePolicy[1]
}

// Source is one origin of wanted pods.
type Source struct {
	Name     string    `json:"name"`             // file, http, local, api
	Origin   string    `json:"origin,omitempty"` // directory or URL
	Spoken   bool      `json:"spoken"`           // it has said what it wants since the agent started
	Pods     int       `json:"pods"`
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is one thing wrong with a manifest.
type Problem struct {
	Origin  string `json:"origin"`          // file or URL
	Field   string `json:"field,omitempty"` // as in spec.containers[0].image
	Message string `json:"message"`
}

// Import is an archive or image that is being brought in, or that failed.
type Import struct {
	Ref     string `json:"ref"`
	Status  string `json:"status"`
	Current int64  `json:"current,omitempty"` // bytes
	Total   int64  `json:"total,omitempty"`   // bytes; 0: not known
	Error   string `json:"error,omitempty"`
}

// Disk is a file system that islet writes to.
type Disk struct {
	Path  string `json:"path"` // islet's directory there
	Total uint64 `json:"total"`
	Free  uint64 `json:"free"` // without what is reserved for root
}

// Flash is what was written to the disk of the state directory, by days of UTC, in bytes.
type Flash struct {
	Device    string  `json:"device,omitempty"` // such as /dev/mmcblk0p2; empty: not known, as for a file system in memory
	Budget    uint64  `json:"budget,omitempty"` // a day; 0: none
	Exceeded  bool    `json:"exceeded,omitempty"`
	Today     Written `json:"today"`
	Yesterday Written `json:"yesterday"`
	Mean      Written `json:"mean"` // of the whole days that are known, at most seven
	Days      int     `json:"days"` // how many these are
}

// Written is what was written, by what.
type Written struct {
	Device   uint64 `json:"device"` // in all, also by what is not islet's
	Stack    uint64 `json:"stack"`  // by islet and its pods: the sum of what follows
	Database uint64 `json:"database"`
	Images   uint64 `json:"images"`
	Logs     uint64 `json:"logs"`
	Pods     uint64 `json:"pods"` // their volumes and writable layers
}

// Store is islet's database.
type Store struct {
	Path    string `json:"path"`
	Rebuilt bool   `json:"rebuilt,omitempty"` // it was found corrupt at start and set aside
	Message string `json:"message,omitempty"`
}

// Object is a ConfigMap, Secret or PersistentVolumeClaim that a manifest of this node
// holds, or the directory of a claim that none does.
type Object struct {
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Source    string            `json:"source,omitempty"` // file, http, local; empty: of no manifest any more
	Origin    string            `json:"origin,omitempty"` // the file or URL
	Created   time.Time         `json:"created,omitzero"` // when this node first had it
	Gone      bool              `json:"gone,omitempty"`   // in no manifest any more, kept for the pods that have it
	Immutable bool              `json:"immutable,omitempty"`
	Type      string            `json:"type,omitempty"` // of a Secret
	Labels    map[string]string `json:"labels,omitempty"`
	Keys      map[string]int    `json:"keys,omitempty"` // of a ConfigMap or Secret, with their bytes; never their values
	Claim     *Claim            `json:"claim,omitempty"`
	Pods      []string          `json:"pods,omitempty"` // that name it, as namespace/name
}

// Claim is what a PersistentVolumeClaim of a manifest has become.
type Claim struct {
	Path     string `json:"path"`           // its directory; it is made for the first pod that uses it
	Size     int64  `json:"size,omitempty"` // bytes that it asks for; 0: no manifest says
	Used     int64  `json:"used"`           // bytes; -1: unknown
	Enforced bool   `json:"enforced,omitempty"`
	Exists   bool   `json:"exists,omitempty"` // the directory does
}

// Applied is what became of one object of a manifest that was applied.
type Applied struct {
	Kind      string    `json:"kind,omitempty"` // empty: Pod
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Action    string    `json:"action"`             // created, configured, unchanged
	Warnings  []string  `json:"warnings,omitempty"` // fields that do not act, and what happens instead
}

// Deleted is a pod that is being deleted, or an object that is, or why it is not.
type Deleted struct {
	Kind      string    `json:"kind,omitempty"` // empty: Pod
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	NotFound  bool      `json:"notFound,omitempty"`
	Error     string    `json:"error,omitempty"`
	Note      string    `json:"note,omitempty"` // what a person should know
}

// EventAlive is the type of a line that says nothing but that the agent is there.
// Every stream has one now and then, or, where its lines have no type, an empty one.
const EventAlive = "ALIVE"

// PodEvent is one line of a watch. SYNCED follows the pods there were when the
// watch began.
type PodEvent struct {
	Type string  `json:"type"` // ADDED, MODIFIED, DELETED, SYNCED, ALIVE
	Pod  *v1.Pod `json:"pod,omitempty"`
}

// Image is one image on the node.
type Image struct {
	ID      string   `json:"id"`
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	Size    uint64   `json:"size"`
	Pinned  bool     `json:"pinned,omitempty"`
}

// Pruned is what became of the images when those were to go that nothing needs.
type Pruned struct {
	Removed []Image `json:"removed"` // or would be
	Kept    []Kept  `json:"kept"`
	Rest    bool    `json:"rest,omitempty"`  // what belongs to no image goes too, or would: downloads that stopped, lost layers
	Freed   uint64  `json:"freed,omitempty"` // bytes of that rest, as the disk says; not known before it went
	Error   string  `json:"error,omitempty"` // why there are no more; those Removed are gone
}

// Kept is an image that stays.
type Kept struct {
	Image
	Why string `json:"why"` // such as: needed by pod default/web
}

// Progress is one line about an import, a pull or an update. The last line has Done or
// Error; an answer that ends without was cut off.
type Progress struct {
	Ref     string   `json:"ref,omitempty"`
	Status  string   `json:"status,omitempty"` // downloading, unpacking, testing, exists, done; of a shutdown: unconfigured
	Current int64    `json:"current,omitempty"`
	Total   int64    `json:"total,omitempty"`
	Done    bool     `json:"done,omitempty"`
	Images  []string `json:"images,omitempty"` // with Done: what is there now
	Update  *Update  `json:"update,omitempty"` // with Done, of an update
	Error   string   `json:"error,omitempty"`
}
