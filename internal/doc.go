// Package internal contains the leaf packages. Every part of islet may import these packages. They import no other part of islet.
//
// Configuration and commands:
//
//	api          the types of the local socket
//	config       flags and the KubeletConfiguration and EdgeConfiguration
//	finding      the result of a check of a manifest or configuration
//	hostcommand  flags and exit codes of commands that take the agent's flags
//	redaction    removes secrets from what a person sends to others
//	setuprecord  why the islet.yaml of a boot partition is not in use
//	spelling     suggests the word that a user meant
//
// Pods and the node:
//
//	demand    effective requests and limits of a pod
//	event     the interface for recording events
//	keys      the keys of annotations and labels
//	podspec   containers, images and references of a pod
//	quota     project quotas of directories
//	realtime  the annotations for real time
//	reserve   what pods may use of the machine
//
// Signed files and registries:
//
//	bundle    the format of bundles
//	keyring   registry credentials for an image
//	registry  requests to registries
//	release   archives of islet
//	rollout   the signed index of a staged rollout, and the decisions about it
//	signed    texts with Ed25519 signatures
//
// Untrusted input:
//
//	capped      keeps the first bytes of an output
//	inputweight the memory that a decoded input takes
//	printable   makes text safe to show
//	regular     reads regular files only
//	untrusted   opens files of pods and images
//
// Files, clock and process:
//
//	bootid    identifies a boot
//	clock     the uptime, and times of a clock that was never set
//	durable   crash-safe writes of files
//	inherit   resets what a process inherited
//	led       the LEDs of the board
//	pattern   regular expressions, compiled at first use
//	readonly  disks that do not accept writes
//	sorting   sorts with little code
//	uevent    the device events of the kernel
//
// Connections and waiting:
//
//	clientca  the authorities of client certificates
//	dirty     the keys of changed objects
//	download  the client for web servers
//	connlimit limits the connections to a public port
//	k3s       the supervisor of a k3s server
//	grpcwait  waits for gRPC connections
//	poll      conditional requests at intervals
//	pulse     distinguishes a lost peer from a slow one
//	retry     backoff
//	socket    the local socket
//
// Packages whose names end in "test" help tests.
package internal
