package api

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultSocket is the path of the agent's socket unless --run-dir changes it.
const DefaultSocket = "/run/islet/islet.sock"

// These are the paths of the endpoints.
const (
	PathStatus = "/islet/v1/status"
	// PathPods: GET watches; POST applies; DELETE deletes the pods of a manifest, or
	// /NAMESPACE/NAME; POST /NAMESPACE/NAME/restart restarts a pod.
	PathPods        = "/islet/v1/pods"
	PathDetails     = "/islet/v1/details" // GET /UID: the Details of a pod
	PathImages      = "/islet/v1/images"  // GET; ?details: also the age and the users of each image
	PathImageImport = "/islet/v1/images/import"
	PathImagePull   = "/islet/v1/images/pull"
	PathImagePrune  = "/islet/v1/images/prune" // POST; ?dryRun; returns a Pruned
	PathSettings    = "/islet/v1/settings"     // the agent's settings, for islet doctor
	PathEvents      = "/islet/v1/events"       // ?watch
	PathAccept      = "/islet/v1/accept"       // POST: end the held pods
	PathBackup      = "/islet/v1/backup"       // POST: an archive of the node, which is not sealed; ?bundles, ?include=PATH
	PathTakeOver    = "/islet/v1/takeover"     // POST: make this machine the owner of the node name; ?force
	PathShutdown    = "/islet/v1/shutdown"     // POST: end all pods, by their shutdown order; DELETE: start them again
	PathClock       = "/islet/v1/clock"        // GET; DELETE: forget the proven time
	PathDevices     = "/islet/v1/devices"      // ?all: also devices of the host that belong to no resource
	PathObjects     = "/islet/v1/objects"      // GET; DELETE /KIND/NAMESPACE/NAME, ?data: delete a claim with its data
	PathBoard       = "/islet/v1/board"        // the machine's sensors
	PathIO          = "/islet/v1/io"           // the disk I/O of pods and containers
	// PathFiles is followed by /NAMESPACE/NAME/CONTAINER. GET with ?path returns an archive of the file or directory at this
	// path. POST with ?path and ?name extracts an archive to this path. In this archive, the first component of every entry's
	// name is the value of ?name.
	PathFiles     = "/islet/v1/files"
	PathProcesses = "/islet/v1/processes" // GET /NAMESPACE/NAME: the processes of a pod
	PathStats     = "/stats/summary"
	PathOrigins   = "/islet/v1/origins" // the file, URL, command or API server of each pod, by UID
)

// TrailerError is the HTTP trailer that contains the reason why a log is incomplete. The server sends it only to clients
// whose request has a header of this name. The usual header, TE: trailers, cannot be used for this: Firefox sends this
// header, but does not expose trailers.
const TrailerError = "Islet-Error"

// Status describes the state of the node.
type Status struct {
	Version  string    `json:"version"` // of islet
	Node     string    `json:"node"`
	Files    []string  `json:"files"`              // the node's own configuration files that were read, in order
	Received string    `json:"received,omitempty"` // the received configuration in use, with its source; empty if Files is in use
	Started  time.Time `json:"started"`            // of the agent
	Now      time.Time `json:"now"`                // the node's clock
	NotReady []string  `json:"notReady,omitempty"` // the reasons why the node is not Ready
	Cluster  *Cluster  `json:"cluster,omitempty"`  // nil if the node stands alone
	Held     *Held     `json:"held,omitempty"`     // nil if no pod is held
	Runtime  Runtime   `json:"runtime"`
	Network  Network   `json:"network"`
	Pods     PodCounts `json:"pods"`
	Troubles []Trouble `json:"troubles,omitempty"` // of pods; bounded in number
	// MoreTroubles is the number of troubles that Troubles does not contain.
	MoreTroubles int `json:"moreTroubles,omitempty"`
	// Attention lists everything that needs attention, in words. See FindAttention.
	Attention []Attention `json:"attention,omitempty"`
	Ignored   []Ignored   `json:"ignored,omitempty"` // pods with fields that have no effect on this node; bounded in number
	// Evictable lists the pods, as namespace/name, that the control plane evicts if the link is down for long.
	Evictable []string `json:"evictable,omitempty"`
	Sources   []Source `json:"sources"`
	Imports   []Import `json:"imports,omitempty"`
	Disks     []Disk   `json:"disks,omitempty"`
	Store     Store    `json:"store"`
	Flash     *Flash   `json:"flash,omitempty"`    // bytes written to the disk; nil if unknown
	Problems  []string `json:"problems,omitempty"` // other problems that an administrator should know, one sentence each
	Addresses []string `json:"addresses,omitempty"`
	Sandboxes []string `json:"sandboxes"`        // IDs of the existing sandboxes; null if the runtime does not answer
	Events    []Event  `json:"events,omitempty"` // the latest events of the node since the agent started, oldest first
}

// Cluster is the state of the node's link to its control plane.
type Cluster struct {
	Server  string    `json:"server,omitempty"` // host and port; empty if no kubeconfig contains a server
	Link    string    `json:"link"`             // Up, Down, Connecting
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason,omitempty"` // the reason why the link is not Up, as one word
	Message string    `json:"message,omitempty"`
	// These are the ends of the certificates' validity. A time is zero if there is no certificate.
	ClientCertificate  time.Time `json:"clientCertificate,omitzero"`
	ServingCertificate time.Time `json:"servingCertificate,omitzero"`
	Pending            int       `json:"pending"` // pods whose latest status has not reached the API server
}

// Held describes pods that continue to run although the control plane does not have them any more.
// Examples are the pods of a cluster that was restored from a backup, or re-created.
type Held struct {
	Pods  int       `json:"pods"`
	Since time.Time `json:"since"`
	Why   string    `json:"why"`
	Until time.Time `json:"until,omitzero"` // when the node ends these pods; zero if never
}

// TakenOver is the answer to a request to make this machine the owner of the node name.
type TakenOver struct {
	Had bool `json:"had"` // whether this machine already owned the name
}

// Accepted is the answer to a request to end the held pods.
type Accepted struct {
	Ended int `json:"ended"` // number of pods
}

// Event is an event of a pod or the node.
type Event struct {
	Namespace string    `json:"namespace,omitempty"` // the pod's namespace and name; empty for an event of the node
	Pod       string    `json:"pod,omitempty"`
	Type      string    `json:"type"` // Normal, Warning
	Reason    string    `json:"reason"`
	Container string    `json:"container,omitempty"`
	Message   string    `json:"message"`
	Count     int32     `json:"count"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}

// Details are facts about a pod that its API object does not contain.
type Details struct {
	Origin   string   `json:"origin,omitempty"`   // the file, URL, command or API server that the pod comes from
	Problems []string `json:"problems,omitempty"` // objects and tokens that are missing or outdated
	// Hooks are the last postStart hooks that failed. A hook's output may contain secrets, so it is
	// shown only at the local socket and never in an event.
	Hooks  []FailedHook `json:"hooks,omitempty"`
	Events []Event      `json:"events,omitempty"` // the latest ones since the agent started, oldest first
}

// FailedHook is a failure of a container's hook.
type FailedHook struct {
	Container string    `json:"container"`
	At        time.Time `json:"at"`
	Message   string    `json:"message"`
}

// Runtime describes the container runtime of the node.
type Runtime struct {
	Name          string `json:"name"`
	Version       string `json:"version"`
	Endpoint      string `json:"endpoint,omitempty"`   // the socket of an external runtime; empty if the runtime is inside the agent
	Left          string `json:"left,omitempty"`       // pods and images that the previous runtime still keeps, and how to remove them
	OCIRuntime    string `json:"ociRuntime,omitempty"` // crun or runc, with version
	CgroupVersion string `json:"cgroupVersion,omitempty"`
	Snapshotter   string `json:"snapshotter,omitempty"`
	ShimPods      string `json:"shimPods,omitempty"` // how many pods one shim may serve
	Ready         bool   `json:"ready"`
	Message       string `json:"message,omitempty"` // why not ready
}

// Network describes the network of the node's pods.
type Network struct {
	Ready    bool     `json:"ready"`
	Message  string   `json:"message,omitempty"`  // why not ready
	Config   string   `json:"config,omitempty"`   // the conflist in use, or "built in"
	PodCIDRs []string `json:"podCIDRs,omitempty"` // of the built-in network
	Repairs  *Repairs `json:"repairs,omitempty"`  // of the built-in network; nil if nothing was repaired
}

// Repairs counts parts of the pod network that another program removed or changed since the agent
// started, and that were restored.
type Repairs struct {
	Count int       `json:"count"`
	Last  time.Time `json:"last"`
	What  string    `json:"what"` // the last repaired part
}

// PodCounts counts pods by phase.
type PodCounts struct {
	Total     int `json:"total"`
	Running   int `json:"running"`
	Ready     int `json:"ready"`
	Pending   int `json:"pending"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Stuck     int `json:"stuck,omitempty"` // pods that have not ended and cannot proceed without help
}

// Trouble describes a pod or container that needs a person's attention. The pod or container has failed, cannot start or
// does not terminate, or a program of the host uses one of its host ports.
type Trouble struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Container string `json:"container,omitempty"`
	Reason    string `json:"reason"`
	Message   string `json:"message,omitempty"`
	ExitCode  *int32 `json:"exitCode,omitempty"` // of the container's last end
	LastLine  string `json:"lastLine,omitempty"` // of the container's log, shortened
	Command   string `json:"command,omitempty"`  // a command that shows more about the trouble
}

// Ignored lists the fields of a pod that this node accepts, but that have no effect here.
type Ignored struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Fields    []string `json:"fields"` // as in spec.containers[0].resizePolicy[1]
}

// Source describes one source of desired pods, such as the manifest directory.
type Source struct {
	Name     string    `json:"name"`             // file, http, local, api
	Origin   string    `json:"origin,omitempty"` // directory or URL
	Spoken   bool      `json:"spoken"`           // the source has delivered its pods since the agent started
	Pods     int       `json:"pods"`
	Problems []Problem `json:"problems,omitempty"`
}

// Problem describes a mistake in a manifest.
type Problem struct {
	Origin  string `json:"origin"`          // file or URL
	Field   string `json:"field,omitempty"` // as in spec.containers[0].image
	Message string `json:"message"`
}

// Import describes the import of an archive, or the pull of an image. The import or pull is in progress,
// or has failed.
type Import struct {
	Ref     string `json:"ref"`
	Status  string `json:"status"`
	Current int64  `json:"current,omitempty"` // bytes
	Total   int64  `json:"total,omitempty"`   // bytes; 0 if unknown
	Error   string `json:"error,omitempty"`
}

// Disk describes a file system that islet writes to.
type Disk struct {
	Path  string `json:"path"`  // islet's directory there
	Total uint64 `json:"total"` // size of the file system, with the blocks that are reserved for root
	Free  uint64 `json:"free"`  // without the blocks that are reserved for root
	// Used is set in Status. The blocks that are reserved for root are neither used nor free.
	Used uint64 `json:"used,omitempty"`
}

// Flash counts the bytes that were written to the disk of the state directory, by days in UTC.
type Flash struct {
	Device    string  `json:"device,omitempty"` // such as /dev/mmcblk0p2; empty if unknown, as for a file system in memory
	Budget    uint64  `json:"budget,omitempty"` // bytes per day; 0 if there is no budget
	Exceeded  bool    `json:"exceeded,omitempty"`
	Today     Written `json:"today"`
	Yesterday Written `json:"yesterday"`
	Mean      Written `json:"mean"` // the mean of the complete days that are recorded, at most seven
	Days      int     `json:"days"` // the number of days that Mean covers
}

// Written counts bytes written to a disk, by origin.
type Written struct {
	Device   uint64 `json:"device"` // by all programs
	Stack    uint64 `json:"stack"`  // by islet and its pods: the sum of the following fields
	Database uint64 `json:"database"`
	Images   uint64 `json:"images"`
	Logs     uint64 `json:"logs"`
	Pods     uint64 `json:"pods"` // their volumes and writable layers
}

// Store is islet's database.
type Store struct {
	Path    string `json:"path"`
	Rebuilt bool   `json:"rebuilt,omitempty"` // the database was corrupt at the start, so it was renamed and rebuilt
	Message string `json:"message,omitempty"`
}

// Object is a ConfigMap, Secret or PersistentVolumeClaim from a manifest of this node, or the
// directory of a claim that is no longer in a manifest.
type Object struct {
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Source    string            `json:"source,omitempty"` // file, http, local; empty if no manifest contains the object any more
	Origin    string            `json:"origin,omitempty"` // the file or URL
	Created   time.Time         `json:"created,omitzero"` // when this node first saw the object
	Gone      bool              `json:"gone,omitempty"`   // no manifest contains the object any more, but pods still use it
	Immutable bool              `json:"immutable,omitempty"`
	Type      string            `json:"type,omitempty"` // of a Secret
	Labels    map[string]string `json:"labels,omitempty"`
	Keys      map[string]int    `json:"keys,omitempty"` // size in bytes of each key of a ConfigMap or Secret; values are never shown
	Claim     *Claim            `json:"claim,omitempty"`
	Pods      []string          `json:"pods,omitempty"` // pods that refer to the object, as namespace/name
}

// Claim is the state of a PersistentVolumeClaim from a manifest.
type Claim struct {
	Path     string `json:"path"`           // the claim's directory, which is created for the first pod that uses the claim
	Size     int64  `json:"size,omitempty"` // requested bytes; 0 if no manifest contains the claim
	Used     int64  `json:"used"`           // bytes; -1 if unknown
	Enforced bool   `json:"enforced,omitempty"`
	Exists   bool   `json:"exists,omitempty"` // the directory exists
}

// Applied is the result for one object of an applied manifest.
type Applied struct {
	Kind      string    `json:"kind,omitempty"` // empty: Pod
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Action    string    `json:"action"`             // created, configured, unchanged
	Warnings  []string  `json:"warnings,omitempty"` // the fields that have no effect; each text also describes the actual behavior
	// Rejection is set only after a dry run. It is the reason and message with which the node would reject the pod.
	Rejection string `json:"rejection,omitempty"`
}

// Deleted is the result of a request to delete a pod or object. If the deletion has not begun, NotFound or Error
// is set.
type Deleted struct {
	Kind      string    `json:"kind,omitempty"` // empty: Pod
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	NotFound  bool      `json:"notFound,omitempty"`
	Error     string    `json:"error,omitempty"`
	Note      string    `json:"note,omitempty"` // a hint for the user
}

// EventAlive is the type of a line that only shows that the agent is alive. Every stream contains such a line from
// time to time. A stream whose lines have no type contains empty lines for the same purpose.
const EventAlive = "ALIVE"

// PodEvent is one line of a watch. The first lines are the pods that existed when the watch began.
// A line of the type SYNCED follows them.
type PodEvent struct {
	Type string  `json:"type"` // ADDED, MODIFIED, DELETED, SYNCED, ALIVE
	Pod  *v1.Pod `json:"pod,omitempty"`
}

// Image describes an image on the node.
type Image struct {
	ID      string   `json:"id"`
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	Size    uint64   `json:"size"`
	Pinned  bool     `json:"pinned,omitempty"`

	// Added and Users are set only if the request has the parameter ?details.
	Added time.Time `json:"added,omitzero"`  // when this node gave the image its oldest name; zero if unknown
	Users []string  `json:"users,omitempty"` // the pods that need the image, as namespace/name, and other users
}

// Pruned is the result of removing unneeded images.
type Pruned struct {
	Removed []Image `json:"removed"` // the images that were removed, or would be removed without the dry run
	Kept    []Kept  `json:"kept"`
	Rest    bool    `json:"rest,omitempty"`  // data that belongs to no image is removed as well, such as stopped downloads and lost layers
	Freed   uint64  `json:"freed,omitempty"` // bytes that the removal of this data has freed on the disk; unknown in a dry run
	Error   string  `json:"error,omitempty"` // why the removal stopped; the images in Removed are gone
}

// Kept is an image that was not removed.
type Kept struct {
	Image
	Why string `json:"why"` // the reason, such as: needed by pod default/web
}

// Progress is one line of the answer to an import, a pull or an update. The last line of the answer
// has Done or Error. An answer without such a line is incomplete.
type Progress struct {
	Ref     string   `json:"ref,omitempty"`
	Status  string   `json:"status,omitempty"` // downloading, unpacking, testing, exists, done; of a shutdown: unconfigured
	Current int64    `json:"current,omitempty"`
	Total   int64    `json:"total,omitempty"`
	Done    bool     `json:"done,omitempty"`
	Images  []string `json:"images,omitempty"` // only with Done: the images that are now present
	Update  *Update  `json:"update,omitempty"` // only with Done of an update
	Bundle  *Bundle  `json:"bundle,omitempty"` // only with Done of islet bundle apply
	Error   string   `json:"error,omitempty"`
}
