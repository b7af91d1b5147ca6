package keys

// These are the values of ConfigSource. A kubelet uses the same names, except for SourceLocal, the
// source of pods that were applied at the local socket, and SourceBundle, the source of the pods of the
// signed bundle that the node runs.
const (
	SourceFile  = "file"
	SourceHTTP  = "http"
	SourceAPI   = "api"
	SourceLocal = "local"

	SourceBundle = "bundle"
)
